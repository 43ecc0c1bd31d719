"""The data of a task: a list of samples, transforms of each, and a sampler, on the loader that keeps its position."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset

from luxmeter.errors import UsageError, near_names
from luxmeter.experiment import BaseParams, DataLoader
from luxmeter.train.registries import DATASETS, SAMPLERS, TRANSFORMS, build

_DATA = ("samples", "transforms", "dataset", "sampler", "batch_sampler")
_OPTIONS = [
    name
    for name in (*inspect.signature(TorchDataLoader.__init__).parameters, "seed", "seed_samples")
    if name not in (*_DATA, "self")
]


class SampleDataset(Dataset[Any]):
    """Samples (anything with a length and indices), each put through the transforms when it is read."""

    def __init__(self, samples: Any, transforms: Sequence[Callable[[Any], Any]] = ()) -> None:
        if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
            raise UsageError(
                "samples-kind",
                f"{type(samples).__name__} is no list of samples: it has no length and no indices.",
                "Give a list, or a dataset of torch.",
            )
        self.samples = samples
        self.transforms = list(transforms)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        sample = self.samples[index]
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class On:
    """A transform of one entry of each sample: of a key of a dict, of a position of a tuple."""

    def __init__(self, entry: str | int, transform: Callable[[Any], Any]) -> None:
        self.entry = entry
        self.transform = transform

    def __call__(self, sample: Any) -> Any:
        try:
            changed = self.transform(sample[self.entry])
        except (KeyError, IndexError, TypeError) as error:
            there = list(sample) if isinstance(sample, Mapping) else f"a {type(sample).__name__}"
            error.add_note(f"The transform is on {self.entry!r} of a sample, which has {there}")
            raise
        if isinstance(sample, Mapping):
            return {**sample, self.entry: changed}
        return tuple(changed if at == self.entry else one for at, one in enumerate(sample))

    def __repr__(self) -> str:
        return f"{self.transform!r} on {self.entry!r}"


def make_loader(cfg: Any, *, key: str = "data") -> DataLoader[Any]:
    """The loader that a config says: `samples` and `transforms`, or a `dataset`; a `sampler` or `batch_sampler`; options.

    A transform may say `"on"` which entry of a sample it is. All else goes to lux.DataLoader (batch_size, shuffle, ...).
    """
    said: dict[str, Any] = cfg.to_dict() if isinstance(cfg, BaseParams) else dict(cfg)
    check_loader(said, key=key)
    options = {name: value for name, value in said.items() if name not in _DATA}
    if "dataset" in said:
        dataset = build(said["dataset"], DATASETS, key=f"{key}.dataset")
    else:
        transforms = [
            _transform(one, f"{key}.transforms.{at}") for at, one in enumerate(said.get("transforms") or ())
        ]
        dataset = SampleDataset(build(said["samples"], DATASETS, key=f"{key}.samples"), transforms)
    for name in ("sampler", "batch_sampler"):
        if said.get(name) is not None:
            options[name] = build(
                said[name], SAMPLERS, key=f"{key}.{name}", data_source=dataset, dataset=dataset
            )
    return DataLoader(dataset, **options)


def check_loader(said: Mapping[str, Any], *, key: str) -> None:
    """Refuse names that `make_loader` does not know, and data that is given twice or not at all."""
    for name in said:
        if name not in (*_DATA, *_OPTIONS):
            raise UsageError(
                "build-argument",
                f"{key}: data takes no {name!r}.",
                near_names(name, (*_DATA, *_OPTIONS)) or f"It takes {', '.join((*_DATA, *_OPTIONS))}.",
            )
    if ("samples" in said) == ("dataset" in said) or ("dataset" in said and "transforms" in said):
        raise UsageError(
            "data-incomplete",
            f"{key}: It has {', '.join(name for name in _DATA if name in said) or 'no data'}.",
            "Give samples, with transforms if you like, or a dataset.",
        )


def _transform(cfg: Any, key: str) -> Callable[[Any], Any]:
    on = cfg.get("on") if isinstance(cfg, Mapping) else None
    if on is not None:
        cfg = {name: value for name, value in cfg.items() if name != "on"}
    transform: Callable[[Any], Any] = build(cfg, TRANSFORMS, key=key)
    if not callable(transform):
        raise UsageError(
            "transform-kind",
            f"{key}: {transform!r} cannot be called.",
            "Give a function or a callable object.",
        )
    return transform if on is None else On(on, transform)
