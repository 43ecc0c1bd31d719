"""lux.DataLoader: torch's loader with a position."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import random
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from drawing_data import Drawing, three_epochs, through_a_file, told
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

import luxmeter as lux
from luxmeter.errors import CheckpointError, UsageError


class Shifting(Sampler[int]):
    """A user's sampler with a generator of its own, and a global draw besides."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rng = np.random.default_rng(4)
        self.own = random.Random(5)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        shift = int(self.rng.integers(self.length)) + self.own.randrange(3) + random.randrange(3)
        for i in range(self.length):
            yield (i * 3 + shift + int(torch.randint(2, (1,)))) % self.length


class Counting(Sampler[list[int]]):
    """A batch sampler of uneven batches, whose only state is a counter: it has state_dict()."""

    def __init__(self) -> None:
        self.epochs = 0

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[list[int]]:
        self.epochs += 1
        for size in range(1, 5):
            yield [(self.epochs * 7 + size + i) % 11 for i in range(size)]

    def state_dict(self) -> dict[str, int]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epochs = state["epochs"]


LOADERS: dict[str, Any] = {
    "in order": lambda **o: lux.DataLoader(Drawing(), batch_size=3, **o),
    "shuffled": lambda **o: lux.DataLoader(Drawing(), batch_size=3, shuffle=True, **o),
    "drop last": lambda **o: lux.DataLoader(Drawing(), batch_size=3, shuffle=True, drop_last=True, **o),
    "single samples": lambda **o: lux.DataLoader(
        Drawing(6), batch_size=None, shuffle=True, collate_fn=tensors, **o
    ),
    "random sampler": lambda **o: lux.DataLoader(
        Drawing(), batch_size=3, sampler=RandomSampler(Drawing()), **o
    ),
    "sampler with generator": lambda **o: lux.DataLoader(
        Drawing(), 3, sampler=SubsetRandomSampler(range(2, 11), torch.Generator().manual_seed(8)), **o
    ),
    "weighted": lambda **o: lux.DataLoader(
        Drawing(),
        3,
        sampler=WeightedRandomSampler([1.0, 50.0] * 5, 12, generator=torch.Generator().manual_seed(1)),
        **o,
    ),
    "distributed": lambda **o: lux.DataLoader(
        Drawing(), 2, sampler=DistributedSampler(Drawing(), num_replicas=2, rank=1), **o
    ),
    "users sampler": lambda **o: lux.DataLoader(Drawing(), 3, sampler=Shifting(11), drop_last=True, **o),
    "list of indices": lambda **o: lux.DataLoader(Drawing(), 2, sampler=[5, 1, 5, 2, 9], **o),
    "batch sampler": lambda **o: lux.DataLoader(
        Drawing(), batch_sampler=BatchSampler(Shifting(11), batch_size=4, drop_last=False), **o
    ),
    "counting batch sampler": lambda **o: lux.DataLoader(Drawing(), batch_sampler=Counting(), **o),
    "subset": lambda **o: lux.DataLoader(Subset(Drawing(), [3, 1, 8, 9]), 2, shuffle=True, **o),
}


def tensors(sample: tuple[int, float]) -> list[torch.Tensor]:
    return [torch.tensor(part) for part in sample]


@pytest.mark.parametrize("name", LOADERS)
def test_every_position_resumes_exactly(name: str) -> None:
    make = lambda: LOADERS[name](seed=1)  # noqa: E731
    epochs = three_epochs(make())
    flat = [batch for epoch in epochs for batch in epoch]
    loader, done = make(), 0
    for _ in range(2):
        for batch in loader:
            done += 1
            position, state = loader.get_state(), loader.state_dict()
            rest = make()
            rest.load_state_dict(through_a_file(state))
            assert rest.get_state() == position
            assert rest.state_dict()["epoch"] == position.epoch
            again = [batch for _ in range(position.epoch, 3) for batch in told(rest)]
            assert again == flat[done:], (name, position)
            by_hand = make()
            by_hand.set_state(position)
            first_rest = [row[0] for row in told(by_hand)]
            assert first_rest == [row[0] for row in epochs[position.epoch][position.step :]]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True, "prefetch_factor": 4}])
def test_workers_change_nothing_and_lose_nothing(workers: int, options: dict[str, Any]) -> None:
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    alone = three_epochs(LOADERS["shuffled"](seed=1))
    loader = LOADERS["shuffled"](seed=1, num_workers=workers, **options)
    assert three_epochs(loader) == alone
    assert [len({index for batch in epoch for index in batch[0]}) for epoch in alone] == [11] * 3
    iterator = iter(LOADERS["shuffled"](seed=1, num_workers=workers, **options))
    next(iterator)
    state = iterator._loader.state_dict()  # type: ignore[attr-defined]
    assert (state["epoch"], state["step"]) == (
        0,
        1,
    )  # what the workers hold ready is not counted as handed out


def test_workers_that_are_spawned_read_the_same() -> None:
    alone = told(LOADERS["shuffled"](seed=1))
    assert told(LOADERS["shuffled"](seed=1, num_workers=1, multiprocessing_context="spawn")) == alone


def test_persistent_workers_follow_a_new_position() -> None:
    loader = LOADERS["shuffled"](seed=1, num_workers=2, persistent_workers=True)
    epochs = three_epochs(LOADERS["shuffled"](seed=1))
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    del iterator
    assert told(loader) == epochs[1]
    loader.load_state_dict(state)
    assert told(loader) == epochs[0][1:]
    assert told(loader) == epochs[1]
    other_seed = LOADERS["shuffled"](seed=2)
    loader.load_state_dict(other_seed.state_dict())
    assert told(loader) == told(other_seed)


def test_reading_leaves_the_random_state_of_training_alone() -> None:
    for name in LOADERS:
        lux.random.fix_seed(1)
        expected = [random.random(), float(np.random.rand()), torch.rand(1).item()]
        lux.random.fix_seed(1)
        list(LOADERS[name]())
        assert [random.random(), float(np.random.rand()), torch.rand(1).item()] == expected, name


def test_a_sample_draws_the_same_in_any_batch_and_order() -> None:
    def by_index(loader: Any) -> dict[int, float]:
        return {
            index: value
            for indices, values in told(loader)
            for index, value in zip(indices, values, strict=True)
        }

    in_order = by_index(lux.DataLoader(Drawing(), batch_size=4, seed=1))
    assert by_index(lux.DataLoader(Drawing(), batch_size=3, shuffle=True, seed=1)) == in_order
    assert by_index(lux.DataLoader(Drawing(), 2, sampler=range(10, -1, -1), seed=1)) == in_order
    assert by_index(lux.DataLoader(Drawing(), batch_size=4, seed=2)) != in_order
    loader = lux.DataLoader(Drawing(), batch_size=4, seed=1)
    list(loader)
    assert not set(by_index(loader).values()) & set(in_order.values())  # the next epoch draws anew


def test_a_sample_that_comes_twice_draws_twice() -> None:
    values = [
        value for _, row in told(lux.DataLoader(Drawing(), 2, sampler=[5, 5, 5, 5], seed=1)) for value in row
    ]
    assert len(set(values)) == 4


def test_the_seed_is_that_of_fix_seed_unless_given() -> None:
    lux.random.fix_seed(5)
    first = told(LOADERS["shuffled"]())
    torch.rand(10)
    assert told(LOADERS["shuffled"]()) == first == told(LOADERS["shuffled"](seed=5))
    assert told(LOADERS["shuffled"](generator=torch.Generator().manual_seed(5))) == first
    lux.random.fix_seed(6)
    assert told(LOADERS["shuffled"]()) != first


def test_what_does_not_fit_is_refused() -> None:
    state = lux.DataLoader(Drawing(11), batch_size=3, shuffle=True, seed=1).state_dict()
    for other in (
        lux.DataLoader(Drawing(12), batch_size=3, shuffle=True),
        lux.DataLoader(Drawing(11), batch_size=4, shuffle=True),
        lux.DataLoader(Drawing(11), batch_size=3),
        lux.DataLoader(Drawing(11), batch_size=3, sampler=Shifting(11)),
        lux.DataLoader(Drawing(11), batch_size=3, shuffle=True, drop_last=True),
    ):
        with pytest.raises(CheckpointError, match="loader-changed"):
            other.load_state_dict(state)
    with pytest.raises(CheckpointError, match="loader-state"):
        other.load_state_dict({"epoch": 1})
    loader = lux.DataLoader(Drawing(11), batch_size=3, shuffle=True, seed=1)
    next(iter(loader))
    with pytest.raises(CheckpointError, match="another order"):
        loader.load_state_dict({**loader.state_dict(), "order": "0" * 64})
    with pytest.raises(UsageError, match="loader-order"):
        lux.DataLoader(Drawing(), num_workers=2, in_order=False)
    with pytest.raises(UsageError, match="loader-position"):
        loader.set_state((0, 99, None))


def test_epochs_breaks_and_peeks() -> None:
    epochs = three_epochs(LOADERS["shuffled"](seed=1))
    loader = LOADERS["shuffled"](seed=1)
    assert (loader.epoch, loader.step) == (0, 0)
    for _ in loader:
        break
    assert (loader.epoch, loader.step) == (0, 1)  # an interrupted epoch may still be saved and resumed
    assert told(loader) == epochs[1]  # as with torch, a new loop is a new epoch
    assert (loader.epoch, loader.step) == (2, 0)
    next(iter(loader))
    loader.next_epoch()
    assert loader.get_state()[:2] == (3, 0)
    loader.set_epoch(1)
    assert told(loader) == epochs[1]
    loader.set_state((0, 2, None))
    loader.set_epoch(0)  # as loops do; the position restored in this epoch stays
    assert told(loader) == epochs[0][2:]
    assert len(loader) == 4


def test_get_batch_data_goes_over_the_end_of_epochs() -> None:
    epochs = three_epochs(LOADERS["shuffled"](seed=1))
    loader = LOADERS["shuffled"](seed=1)
    batches = told(loader.get_batch_data() for _ in range(6))
    assert batches == epochs[0] + epochs[1][:2]
    assert loader.get_state()[:2] == (1, 2)
    with pytest.raises(UsageError, match="loader-empty"):
        lux.DataLoader(Drawing(0), batch_size=2).get_batch_data()


@pytest.mark.parametrize("taken", ["get_batch_data", "iterated"])
def test_a_dropped_loader_ends_its_workers_at_once(taken: str) -> None:
    loader = lux.DataLoader(Drawing(8), batch_size=2, num_workers=1)
    before = set(multiprocessing.active_children())
    gc.disable()  # nothing is left to it
    try:
        batch = loader.get_batch_data() if taken == "get_batch_data" else next(iter(loader))
        assert len(batch) and len(set(multiprocessing.active_children()) - before) == (
            taken == "get_batch_data"
        )
        known = weakref.ref(loader)
        del loader
        assert known() is None
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_of_a_loader_stands_where_it_does(copied: Callable[[Any], Any]) -> None:
    loader = lux.DataLoader(list(range(8)), batch_size=2, shuffle=True, seed=1)
    loader.get_batch_data()
    other = copied(loader)
    assert other.get_state() == loader.get_state()
    assert [one.tolist() for one in (other.get_batch_data(), other.get_batch_data())] == [
        one.tolist() for one in (loader.get_batch_data(), loader.get_batch_data())
    ]


def say_dataset(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None and isinstance(info.dataset, Drawing)
    info.dataset.length = 100 + worker_id


class Told(Drawing):
    def __getitem__(self, index: int) -> tuple[int, float]:
        return self.length, 0.0


def test_it_is_torchs_loader() -> None:
    loader = lux.DataLoader(Told(), 2, num_workers=2, worker_init_fn=say_dataset)
    assert isinstance(loader, torch.utils.data.DataLoader) and isinstance(loader.dataset, Drawing)
    assert {length for lengths, _ in told(loader) for length in lengths} == {100, 101}
    with pytest.raises(ValueError, match="mutually exclusive"):
        lux.DataLoader(Drawing(), 2, shuffle=True, sampler=Shifting(11))
    plain = torch.utils.data.DataLoader(Drawing(), 4)
    ours = lux.DataLoader(Drawing(), 4, None, None, None, 0, None, False, True)
    assert [b[0] for b in told(ours)] == [b[0] for b in told(plain)][:2]


class Batched(Drawing):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(index, float(np.random.rand())) for index in indices]


def test_a_dataset_that_reads_whole_batches() -> None:
    make = lambda: lux.DataLoader(Batched(), 3, shuffle=True, seed=1)  # noqa: E731
    epochs = three_epochs(make())
    loader = make()
    next(iter(loader))
    rest = make()
    rest.load_state_dict(loader.state_dict())
    assert told(rest) == epochs[0][1:]


def noisy(samples: list[Any]) -> list[torch.Tensor]:
    return [torch.tensor([index for index, _ in samples]), torch.rand(1)]


def test_randomness_in_collate_is_seeded_too() -> None:
    alone = told(lux.DataLoader(Drawing(), 3, collate_fn=noisy, seed=1))
    assert told(lux.DataLoader(Drawing(), 3, collate_fn=noisy, seed=1, num_workers=2)) == alone
    assert len({value for _, (value,) in alone}) == 4


def test_seeding_by_sample_can_be_left_out() -> None:
    torch.manual_seed(1)
    loader = lux.DataLoader(Drawing(), 3, seed=1, seed_samples=False)
    first = told(loader)
    loader.set_epoch(0)
    assert told(loader) != first


class Failing(Drawing):
    def __getitem__(self, index: int) -> tuple[int, float]:
        if index == 7:
            raise KeyError("sample 7")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_sample_is_the_users_error_and_moves_nothing(workers: int) -> None:
    loader = lux.DataLoader(Failing(), 3, num_workers=workers, seed=1)
    random_before = lux.random.get_state()["torch"]
    with pytest.raises(KeyError, match="sample 7"):
        list(loader)
    assert loader.get_state()[:2] == (0, 2)
    assert torch.equal(random_before, torch.get_rng_state())


TENSORS = TensorDataset(
    torch.arange(22.0).reshape(11, 2), torch.arange(11), torch.arange(33).reshape(11, 3, 1).bool()
)


@pytest.mark.parametrize(
    "dataset",
    [TENSORS, TensorDataset(torch.arange(11)), Subset(TENSORS, [3, 1, 8]), ConcatDataset([TENSORS, TENSORS])],
    ids=["tensors", "one", "subset", "concat"],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_plain_tensors_give_what_torch_gives(dataset: Any, workers: int) -> None:
    """Their rows are taken at once and nothing is seeded: the same batches, of the same kinds."""
    given = {"batch_size": 4, "num_workers": workers}
    theirs = list(torch.utils.data.DataLoader(dataset, **given))
    ours = list(lux.DataLoader(dataset, **given))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other) is list
        for own, their in zip(one, other, strict=True):
            assert own.dtype == their.dtype and own.is_contiguous() and torch.equal(own, their)


def test_only_what_cannot_draw_is_not_seeded() -> None:
    class Shaken(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)[0] + torch.rand(1)

    def read(dataset: Any, **more: Any) -> list[list[float]]:
        torch.manual_seed(3)
        loader = lux.DataLoader(dataset, batch_size=4, seed=1, **more)
        state = torch.get_rng_state()
        batches = [torch.as_tensor(batch).flatten().tolist() for batch in loader]
        assert torch.equal(state, torch.get_rng_state())
        return batches

    shaken = Shaken(torch.zeros(11))
    worker = {"num_workers": 1, "multiprocessing_context": "fork"}  # neither class nor lambda can be pickled
    assert read(shaken) == read(shaken, **worker) == read(Subset(shaken, range(11)))
    noisy = {"collate_fn": lambda samples: torch.rand(len(samples))}
    assert read(TENSORS, **noisy) == read(TENSORS, **worker, **noisy)
