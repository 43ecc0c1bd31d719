"""The data of a trainer: loaders by name, made when they are first used, batches moved to where they are computed on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import torch

from luxmeter.errors import UsageError, suggestion
from luxmeter.nested import tensors_of

NAMES = ("train", "eval", "test")


class DataBundle:
    """Loaders by name. A callable without iteration of its own is called at its first use: evaluation makes no training data."""

    def __init__(self) -> None:
        self._given: dict[str, Iterable[Any] | Callable[[], Iterable[Any]]] = {}
        self._made: dict[str, Iterable[Any]] = {}

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

    def __getitem__(self, name: str) -> Iterable[Any]:
        if name not in self._made:
            if name not in self._given:
                raise UsageError(
                    "no-data",
                    f"There is no {name} data.",
                    f"Register it in initial_trainer: self.regist_databundler({name}=DataLoader(...)).",
                )
            given: Any = self._given[name]
            made = given if hasattr(given, "__iter__") else given()
            if not hasattr(made, "__iter__"):
                raise UsageError(
                    "data-kind",
                    f"What makes the {name} data returned a {type(made).__name__}, which gives no batches.",
                    "Return a DataLoader or any iterable of batches.",
                )
            self._made[name] = made
        return self._made[name]

    def is_lazy(self, name: str) -> bool:
        """Whether it is made at its first use."""
        return not hasattr(self._given.get(name), "__iter__")

    def made(self) -> dict[str, Iterable[Any]]:
        """Those that exist."""
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
        said += f" of {len(loader.dataset)} samples"
    except (AttributeError, TypeError):
        return said
    size = getattr(loader, "batch_size", None)
    said += f" in batches of {size}" if size is not None else ""
    return said + (" with drop_last" if getattr(loader, "drop_last", False) else "")
