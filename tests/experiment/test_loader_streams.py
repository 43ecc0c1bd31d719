"""lux.DataLoader over what has no end or no index: endless samplers, IterableDataset."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from drawing_data import Drawing, three_epochs, through_a_file, told
from torch.utils.data import IterableDataset, Sampler, get_worker_info

import luxmeter as lux
from luxmeter.errors import CheckpointError


class Endless(Sampler[int]):
    """No length and no end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield random.randrange(11)


def test_an_endless_sampler() -> None:
    make = lambda: lux.DataLoader(Drawing(), 3, sampler=Endless(), seed=1)  # noqa: E731
    loader = make()
    iterator = iter(loader)
    batches = told(next(iterator) for _ in range(40))
    values = [value for _, row in batches for value in row]
    assert len(set(values)) == len(values)  # a sample draws anew each time it comes
    state = None
    loader = make()
    for count, _ in enumerate(loader, 1):
        if count == 17:
            state = loader.state_dict()
            break
    rest = make()
    assert state is not None
    rest.load_state_dict(through_a_file(state))
    iterator = iter(rest)
    assert told(next(iterator) for _ in range(23)) == batches[17:]
    assert rest.get_state().indices is None


class Stream(IterableDataset[Any]):
    """Sharded over workers, drawing as it goes."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, 12, step):
            yield index, random.random() + float(np.random.rand()) + torch.rand(1).item()


class StatefulStream(Stream):
    """Says where it is: then nothing is read twice."""

    def __init__(self) -> None:
        self.position = 0
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < 12:
            self.position += 1
            self.read += 1
            yield self.position - 1, random.random() + torch.rand(1).item()
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_iterable_datasets_resume_by_reading_again(workers: int, persistent: bool) -> None:
    options: dict[str, Any] = {"persistent_workers": True} if persistent and workers else {}
    make = lambda: lux.DataLoader(Stream(), batch_size=2, num_workers=workers, seed=1, **options)  # noqa: E731
    epochs = three_epochs(make())
    assert all(len(epoch) == 6 for epoch in epochs) and epochs[0] != epochs[1]
    for stop in (1, 4, 6, 9):
        loader, done = make(), 0
        random_before = torch.get_rng_state()
        while done < stop:
            for _ in loader:
                torch.rand(1)  # training draws in between
                done += 1
                if done == stop:
                    break
        torch.set_rng_state(random_before)
        rest = make()
        rest.load_state_dict(through_a_file(loader.state_dict()))
        left = [batch for epoch in range(rest.epoch, 3) for batch in told(rest)]
        assert left == [batch for epoch in epochs for batch in epoch][stop:], (workers, stop)
    assert torch.equal(torch.get_rng_state(), random_before)


def test_a_stateful_iterable_dataset_is_not_read_again() -> None:
    make = lambda: lux.DataLoader(StatefulStream(), batch_size=2, seed=1)  # noqa: E731
    epochs = three_epochs(make())
    loader = make()
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    rest = make()
    rest.load_state_dict(through_a_file(loader.state_dict()))
    assert rest.state_dict()["stream"]["dataset"] == {"position": 8}
    assert told(rest) == epochs[0][4:]
    assert rest.dataset.read == 4  # type: ignore[attr-defined]
    assert told(rest) == epochs[1]


def test_another_number_of_workers_is_refused_for_a_stream() -> None:
    stream = lux.DataLoader(Stream(), batch_size=2, num_workers=2)
    with pytest.raises(CheckpointError, match="num_workers was 2 and is 0"):
        lux.DataLoader(Stream(), batch_size=2).load_state_dict(stream.state_dict())
