"""What happens in a worker of lux.DataLoader: seed, read the samples, collate.

The seed of a sample comes from the loader's seed, the epoch and the sample alone, so its augmentation is the same
whichever worker reads it, in whichever batch, before or after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from luxmeter.experiment.seed.rng_state import seed_everything, stable_seed


class Ticket(NamedTuple):
    """One batch to read: everything a worker needs to know, so that workers may outlive an epoch or a resume."""

    seed: int | None  # None: do not seed
    epoch: int
    indices: Any  # a list of sample indices, or one index where there is no automatic batching
    repeats: (
        tuple[int, ...] | None
    )  # how often each sample came before in this epoch, where a sampler repeats some


class SampleFetch(Dataset[Any]):
    """Ticket -> finished batch, of a dataset with indices."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], *, batched: bool) -> None:
        self.dataset = dataset
        self._collate = collate
        self._batched = batched
        # Rows of plain tensors are taken at once: the same values as stacking them one by one, in a tenth of the time.
        self._at_once = (
            batched
            and type(dataset) is TensorDataset
            and collate is default_collate
            and all(
                type(t) is torch.Tensor and t.layout is torch.strided and not t.requires_grad
                for t in dataset.tensors
            )
        )

    def __getitem__(self, ticket: Ticket) -> Any:
        if self._at_once:
            rows = torch.tensor(ticket.indices)
            return [tensor[rows] for tensor in self.dataset.tensors]
        if not self._batched:
            return self._collate(self._sample(ticket, ticket.indices, (ticket.repeats or (0,))[0]))
        if _reads_batches(self.dataset):
            # One call reads the whole batch: its seed is that of all its samples together.
            if ticket.seed is not None:
                _seed("batch", ticket.seed, ticket.epoch, tuple(ticket.indices), ticket.repeats)
            samples = self.dataset.__getitems__(ticket.indices)
        else:
            repeats = ticket.repeats or (0,) * len(ticket.indices)
            samples = [
                self._sample(ticket, index, count)
                for index, count in zip(ticket.indices, repeats, strict=True)
            ]
        if ticket.seed is not None:
            _seed("collate", ticket.seed, ticket.epoch, tuple(ticket.indices[:1]), ticket.repeats)
        return self._collate(samples)

    def _sample(self, ticket: Ticket, index: Any, repeat: int) -> Any:
        if ticket.seed is not None:
            _seed("sample", ticket.seed, ticket.epoch, index, repeat)
        return self.dataset[index]


class StreamFetch(IterableDataset[Any]):
    """The samples of an IterableDataset, seeded at the start of every epoch by seed, epoch and worker.

    The cell (seed, epoch, seeding on) lies in shared memory: workers that live on see each new epoch in it.
    """

    def __init__(self, dataset: Any, cell: torch.Tensor) -> None:
        self.dataset = dataset
        self._cell = cell

    def __iter__(self) -> Iterator[Any]:
        seed, epoch, seeding = self._cell.tolist()
        if seeding:
            worker = get_worker_info()
            _seed("stream", seed, epoch, 0 if worker is None else worker.id)
        yield from self.dataset


def same(batch: Any) -> Any:
    """The collate function of the inner loader: SampleFetch has collated already."""
    return batch


def start_worker(init: Callable[[int], None] | None, worker_id: int) -> None:
    """Let get_worker_info().dataset be the user's dataset, as it is in torch's own loader."""
    info = get_worker_info()
    if info is not None:
        fetch: Any = info.dataset
        object.__setattr__(info, "dataset", fetch.dataset)  # torch makes it read-only
    if init is not None:
        init(worker_id)


def draws_nothing(dataset: Any, collate: Callable[[Any], Any]) -> bool:
    """Whether reading is known to use no random number, so that nothing has to be seeded: tensors, and torch's own parts of them."""
    if collate is not default_collate:
        return False
    if type(dataset) is ConcatDataset:
        return all(draws_nothing(inner, collate) for inner in dataset.datasets)
    if type(dataset) is Subset:
        return draws_nothing(dataset.dataset, collate)
    return type(dataset) is TensorDataset


def _reads_batches(dataset: Any) -> bool:
    if type(dataset) is Subset:  # its __getitems__ only passes on; sample by sample it can be seeded
        return _reads_batches(dataset.dataset)
    return callable(getattr(dataset, "__getitems__", None))


def _seed(*parts: object) -> None:
    seed_everything(stable_seed(*parts), accelerators=False)
