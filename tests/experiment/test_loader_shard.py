"""A rank's part of the data: all parts together are the whole, in training evenly, in evaluation each batch once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler

from luxmeter import DataLoader
from luxmeter.errors import UsageError
from luxmeter.experiment import Shard, ShardedBatches


def loader(rank: int, ranks: int, *, even: bool = True, length: int = 23, **options: Any) -> DataLoader[Any]:
    made: DataLoader[Any] = DataLoader(list(range(length)), batch_size=3, **{"shuffle": True, **options})
    if ranks:
        made.shard(rank, ranks, even=even, seed=7)
    return made


def read(made: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in made]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 40),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["shuffle", "sampler"]),
)
def test_all_parts_together_are_the_whole(
    ranks: int, length: int, even: bool, drop_last: bool, order: str
) -> None:
    def made(rank: int) -> DataLoader[Any]:
        sampler = (
            {"shuffle": None, "sampler": SubsetRandomSampler(range(length))} if order == "sampler" else {}
        )
        return loader(rank, ranks, even=even, length=length, drop_last=drop_last, **sampler)

    parts = [made(rank) for rank in range(ranks)]
    for epoch in range(2):
        batches = [read(part) for part in parts]
        assert [len(own) for own in batches] == [len(part) for part in parts], epoch
        found = [index for own in batches for batch in own for index in batch]
        if even:
            assert len({len(own) for own in batches}) == 1
            for together in zip(*batches, strict=True):
                assert len({len(batch) for batch in together}) == 1
            size = 3 * ranks
            assert len(set(found)) == (length // size * size if drop_last else length)
            assert len(found) - len(set(found)) < ranks
        else:
            assert len(found) == len(set(found)) == (length // 3 * 3 if drop_last else length)


def test_together_they_read_what_one_reads_in_larger_batches() -> None:
    parts = [read(loader(rank, 2)) for rank in range(2)]
    one = DataLoader(list(range(23)), batch_size=6, shuffle=True, seed=7)
    for whole, first, second in zip(read(one), *parts, strict=True):
        assert sorted(set(first + second)) == sorted(whole)


def test_batches_of_an_evaluation_are_those_of_one_process() -> None:
    parts = [read(loader(rank, 3, even=False, shuffle=False)) for rank in range(3)]
    whole = read(loader(0, 0, shuffle=False))
    assert [parts[number % 3][number // 3] for number in range(len(whole))] == whole


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("order", ["shuffle", "sampler"])
def test_a_position_is_found_again(even: bool, order: str) -> None:
    def made(rank: int) -> DataLoader[Any]:
        given = {"shuffle": None, "sampler": SubsetRandomSampler(range(23))} if order == "sampler" else {}
        return loader(rank, 2, even=even, **given)

    for rank in range(2):
        whole = [*read(first := made(rank)), *read(first)]
        second = made(rank)
        before = [batch.tolist() for _, batch in zip(range(2), second, strict=False)]
        state = second.state_dict()
        rest = second.get_state()
        again = made(rank)
        again.load_state_dict(state)
        assert (again.epoch, again.step) == (0, 2)
        found = [*read(again), *read(again)]
        assert before + found == whole
        assert rest.indices == whole[2 : len(first)]


@pytest.mark.parametrize("order", ["shuffle", "sampler"])
def test_with_another_number_of_ranks_the_rest_of_the_epoch_is_read(order: str) -> None:
    given = {"shuffle": None, "sampler": SubsetRandomSampler(range(24))} if order == "sampler" else {}
    first = [loader(rank, 2, length=24, **given) for rank in range(2)]
    seen = [
        index for own in first for _, batch in zip(range(2), own, strict=False) for index in batch.tolist()
    ]
    state = first[0].state_dict()
    alone = loader(0, 0, length=24, **given)
    alone.load_state_dict(state)
    assert alone.step == 4  # of eight batches of three
    rest = [index for batch in read(alone) for index in batch]
    assert sorted(seen + rest) == list(range(24))
    four = [loader(rank, 4, length=24, **given) for rank in range(4)]
    for one in four:
        one.load_state_dict(state)
    assert [one.step for one in four] == [1] * 4
    rest = [index for one in four for batch in read(one) for index in batch]
    assert sorted(seen + rest) == list(range(24))


def test_for_a_loader_of_torch_the_order_is_the_same_on_every_rank() -> None:
    parts = []
    for rank in range(2):
        torch.manual_seed(rank)
        batches = ShardedBatches(RandomSampler(range(20)), 4, Shard(rank, 2), drop_last=False, seed=3)
        before = torch.get_rng_state()
        first = list(batches)
        assert torch.equal(before, torch.get_rng_state()) and len(first) == len(batches) == 3
        batches.set_epoch(1)
        assert list(batches) != first
        parts.append(first)
    assert sorted(index for own in parts for batch in own for index in batch) == list(range(20))


def test_what_cannot_be_dealt_out_is_refused() -> None:
    own = BatchSampler(RandomSampler(range(6)), 2, drop_last=False)
    with pytest.raises(UsageError, match="cannot be dealt out"):
        DataLoader(list(range(6)), batch_sampler=own).shard(0, 2)
    with pytest.raises(UsageError, match="no rank 2 of 2"):
        loader(0, 0).shard(2, 2)
