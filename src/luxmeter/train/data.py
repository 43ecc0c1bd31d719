"""The data of a trainer: loaders by name, made when they are first used, batches moved to where they are computed on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.distributed import DistributedSampler

from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment import DataLoader, Shard, ShardedBatches
from luxmeter.nested import tensors_of
from luxmeter.render import counted
from luxmeter.train.registries import about

NAMES = ("train", "eval", "test")


class DataBundle:
    """Loaders by name. A callable without iteration of its own is called at its first use: evaluation makes no training data."""

    def __init__(self) -> None:
        self._given: dict[str, Iterable[Any] | Callable[[], Iterable[Any]]] = {}
        self._made: dict[str, Iterable[Any]] = {}
        self._dealer: Dealer | None = None
        self.how_to_give = "Register it in initial_trainer: self.regist_databundler({name}=DataLoader(...))."

    def deal(self, dealer: Dealer) -> None:
        """With several ranks: each has its part of the data."""
        self._dealer = dealer
        self._made = {name: dealer.part(name, loader) for name, loader in self._made.items()}

    def register(self, loaders: Mapping[str, Any]) -> None:
        """Take loaders, or what makes them; None takes one away."""
        for name, loader in loaders.items():
            if name not in NAMES:
                raise UsageError(
                    "data-name",
                    f"regist_databundler takes no {name!r}.",
                    suggestion(name, NAMES) or f"It takes {', '.join(NAMES)}.",
                )
            if loader is not None and not hasattr(loader, "__iter__") and not callable(loader):
                raise UsageError(
                    "data-kind",
                    f"The {name} data is a {type(loader).__name__}, which gives no batches.",
                    "Give a DataLoader, any iterable of batches, or a function that makes one.",
                )
            self._made.pop(name, None)
            self._given.pop(name, None)
            if loader is not None:
                self._given[name] = loader

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def demand(self, name: str) -> None:
        """Refuse that it was not given."""
        if name not in self._given:
            error = UsageError("no-data", f"There is no {name} data.", self.how_to_give.format(name=name))
            raise about(error, f"data.{name}")

    def __getitem__(self, name: str) -> Iterable[Any]:
        if name not in self._made:
            self.demand(name)
            given: Any = self._given[name]
            made = given if hasattr(given, "__iter__") else given()
            if not hasattr(made, "__iter__"):
                raise UsageError(
                    "data-kind",
                    f"What makes the {name} data returned a {type(made).__name__}, which gives no batches.",
                    "Return a DataLoader or any iterable of batches.",
                )
            self._made[name] = made if self._dealer is None else self._dealer.part(name, made)
        return self._made[name]

    def is_lazy(self, name: str) -> bool:
        """Whether it is made at its first use."""
        return not hasattr(self._given.get(name), "__iter__")

    def made(self) -> dict[str, Iterable[Any]]:
        """Those that exist."""
        if self._dealer is not None:
            return {name: self[name] for name in self._given if name in self._made or not self.is_lazy(name)}
        return {
            name: loader
            for name, given in self._given.items()
            if (loader := self._made.get(name, given)) is not None and hasattr(loader, "__iter__")
        }

    def length(self, name: str) -> int | None:
        """How many batches an epoch has, if it says so."""
        loader = self[name]
        try:
            return len(loader) if isinstance(loader, Sized) else None
        except TypeError:  # of an IterableDataset
            return None


class Dealer:
    """Gives each rank its part of the data; what it cannot deal out it leaves as it is, and says so."""

    def __init__(self, rank: int, ranks: int, seed: int, notice: Callable[[str], None]) -> None:
        self._rank, self._ranks, self._seed, self._notice = rank, ranks, seed, notice
        self._dealt: list[Any] = []

    def part(self, name: str, loader: Iterable[Any]) -> Iterable[Any]:
        """This rank's part: of training data as much as the others', of other data each batch on one rank."""
        if any(loader is known for known in self._dealt):
            return loader  # as the training data, say
        why_not = _undealt(loader)
        if why_not:
            self._notice(f"The {name} data, {described(loader)}, is read by every rank as it is: {why_not}.")
            return loader
        even = name == NAMES[0]
        if isinstance(loader, DataLoader):
            loader.shard(self._rank, self._ranks, even=even, seed=self._seed)
            self._dealt.append(loader)
            return loader
        assert isinstance(loader, TorchDataLoader) and loader.batch_size is not None
        batches = ShardedBatches(
            loader.sampler,
            loader.batch_size,
            Shard(self._rank, self._ranks, even),
            drop_last=loader.drop_last,
            seed=self._seed,
        )
        return _with_batches(loader, batches)


def _undealt(loader: Any) -> str:
    """Why a loader cannot be dealt out to ranks; empty if it can."""
    if not isinstance(loader, TorchDataLoader):
        return "it is no DataLoader"
    if isinstance(loader.dataset, IterableDataset):
        return "what a rank reads of an IterableDataset is the dataset's own business (torch.distributed.get_rank)"
    if isinstance(loader.sampler, DistributedSampler):
        return "it has a DistributedSampler"
    if loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler:
        return "it has a batch sampler of its own, or no batches"
    if not isinstance(loader, DataLoader) and type(loader) is not TorchDataLoader:
        return f"a {type(loader).__name__} may do more than torch's; give it a DistributedSampler"
    return ""


def _with_batches(loader: TorchDataLoader[Any], batches: ShardedBatches) -> TorchDataLoader[Any]:
    """The same loader with other batches."""
    given = {
        name: getattr(loader, name)
        for name in (
            "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
            "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
        )
        if hasattr(loader, name)
    }  # fmt: skip
    return TorchDataLoader(loader.dataset, batch_sampler=batches, **given)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the samplers of torch's DataLoader which epoch comes, if they ask for it."""
    if isinstance(loader, TorchDataLoader) and not isinstance(loader, DataLoader):
        for sampler in (loader.batch_sampler, loader.sampler):
            if callable(tell := getattr(sampler, "set_epoch", None)):
                tell(epoch)


def moved(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """The batches on a device."""
    if device.type == "cpu":
        return iter(batches)
    return (to_device(batch, device) for batch in batches)


def to_device(value: Any, device: torch.device) -> Any:
    """A nested value with its tensors, and what else has a `to`, on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if callable(getattr(value, "to", None)) and not isinstance(value, type):
        return value.to(device)  # whatever it is made of, it knows best: a PackedSequence, a graph
    if isinstance(value, Mapping):
        inside = {key: to_device(inner, device) for key, inner in value.items()}
        if (
            isinstance(value, dict) and type(value) is not dict
        ):  # a defaultdict, say: what it was made with stays
            same = copy.copy(value)
            same.update(inside)
            return same
        return inside
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(inner, device) for inner in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(inner, device) for inner in value)
    return value


def samples_in(batch: Any) -> int:
    """The length of the first tensor in a batch that has one; 0 if there is none."""
    if isinstance(batch, list | tuple) and batch and isinstance(batch[0], torch.Tensor) and batch[0].ndim:
        return len(batch[0])
    return next((len(tensor) for tensor in tensors_of(batch) if tensor.ndim), 0)


def described(loader: Any) -> str:
    """`a DataLoader of 3 samples in batches of 4 with drop_last`: what can be said of data without reading it."""
    said = f"a {type(loader).__name__}"
    try:
        said += f" of {counted(len(loader.dataset), 'sample')}"
    except (AttributeError, TypeError):
        return said
    size = getattr(loader, "batch_size", None)
    said += f" in batches of {size}" if size is not None else ""
    return said + (" with drop_last" if getattr(loader, "drop_last", False) else "")
