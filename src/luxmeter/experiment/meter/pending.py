"""Updates that wait to be averaged, so that an update costs little and never waits for a device."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from luxmeter.errors import UsageError
from luxmeter.experiment.meter.averages import Average, Spans, fold
from luxmeter.experiment.meter.vectors import is_vector
from luxmeter.torch_extra import HAS_TORCH, Tensor, torch

CHUNK = 1024  # updates that wait at most before they are folded

# Read past torch.Tensor.item: the meter's own reading is no call of the user's that a trace should count.
_item = Tensor.__mro__[1].item  # type: ignore[attr-defined]
_is_cpu = attrgetter("is_cpu")
_AS_THEY_ARE = frozenset({int, str, bool, type(None)})


@dataclass(frozen=True)
class Block:
    """Values that still lie on a device: a row for each update, a column for each name."""

    names: tuple[str, ...]
    weights: list[float]
    rows: Tensor


Entry = tuple[tuple[str, ...], list[Any], float]  # names, their values, weight


@dataclass(frozen=True)
class Waiting:
    """One update's values on a device; `after` entries of the host came before it."""

    names: tuple[str, ...]
    weight: float
    row: Tensor
    after: int


class Plan:
    """How to take an update whose names and types are those of one seen before: each name has its place."""

    __slots__ = ("checked", "columns", "floats", "kinds", "names", "rest", "tensors", "vectors")

    def __init__(self, given: dict[str, Any], averaged: set[str]) -> None:
        """Raises TypeError if a value needs a closer look every time."""
        groups: dict[str, list[str]] = {"float": [], "tensor": [], "rest": []}
        for name, value in given.items():
            groups[_group(name, value, averaged)].append(name)
        self.names = tuple(given)
        # item() refuses what is no tensor; the types of all else must be looked at.
        self.checked = _getter([*groups["float"], *groups["rest"]])
        self.kinds = tuple(map(type, self.checked(given)))
        self.columns = (*groups["float"], *groups["tensor"])
        self.floats = _getter(groups["float"])
        self.tensors = _getter(groups["tensor"])
        self.rest = tuple(groups["rest"])
        self.vectors = tuple(name for name in self.rest if is_vector(given[name], ints=name in averaged))


def _group(name: str, value: Any, averaged: set[str]) -> str:
    kind = type(value)
    if kind is float:
        return "float"
    if kind in (int, bool) and name in averaged:
        raise TypeError(name)
    if kind is Tensor and value.is_cpu and scalar_of(value) is not None:
        return "tensor"
    if kind in _AS_THEY_ARE or (scalar_of(value) is None and not is_device_scalar(value)):
        return "rest"
    raise TypeError(name)


def _getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda given: (given[names[0]],)) if names else (lambda given: ())


@dataclass(slots=True)
class Pending:
    """What came and was not averaged yet."""

    # As long as the updates bring the same names with the same types, their numbers lie here, row after row.
    plan: Plan | None = None
    plans_left: int = 8  # after so many changes every value is looked at by itself
    host_only: bool = field(default_factory=lambda: no_accelerator())
    flat: array[float] = field(default_factory=lambda: array("d"))
    flat_weights: array[float] = field(default_factory=lambda: array("d"))
    # Otherwise every update is an entry, and what lies on a device waits in tensors.
    entries: list[Entry] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def add_planned(self, given: dict[str, Any], weight: float, latest: dict[str, Any]) -> bool:
        """Take an update that fits the plan; False if it does not."""
        # This is the hot path: a tensor's item() alone takes half of it, so nothing here is done twice.
        plan = self.plan
        if plan is None or tuple(given) != plan.names:
            return False
        if plan.kinds and tuple(map(type, plan.checked(given))) != plan.kinds:
            return False
        flat = self.flat
        size = len(flat)
        try:
            tensors = plan.tensors(given)
            if self.host_only or all(map(_is_cpu, tensors)):
                for name in plan.rest:
                    value = given[name]
                    latest[name] = value if type(value) in _AS_THEY_ARE else _as_it_is(value)
                if plan.kinds:
                    flat.extend(plan.floats(given))
                flat.extend(map(_item, tensors))
                self.flat_weights.append(weight)
                return True
        except (AttributeError, TypeError, RuntimeError, NotImplementedError):
            del flat[size:]
        return False

    def make_plan(self, given: dict[str, Any], averaged: set[str]) -> None:
        """Plan for more updates like this one, if there can be a plan and there were not too many."""
        self.plan = None
        if self.plans_left > 0:
            self.plans_left -= 1
            try:
                self.plan = Plan(given, averaged)
            except TypeError:
                self.plans_left = 0

    def __len__(self) -> int:
        return len(self.flat_weights) + len(self.entries)

    def add_mixed(
        self, values: dict[str, Any], kept: dict[str, Any], later: dict[str, Tensor], weight: float
    ) -> None:
        """Queue what is small; tensors on a device are copied there, and what is big is not held back."""
        if later or kept:
            values = {name: value for name, value in values.items() if name not in later and name not in kept}
        self.entries.append((tuple(values), list(values.values()), weight))
        if later:
            after = len(self.entries)
            self.waiting += [Waiting(names, weight, row, after) for names, row in stacked(later)]

    def fold(
        self, averages: dict[str, Average], averaged: set[str], latest: dict[str, Any], spans: Spans
    ) -> None:
        """Average what lies in host memory, and pack what lies on a device, without reading it."""
        self._fold_flat(averages, latest, spans)
        names = {name for entry in self.entries for name in entry[0]}
        if any(name in names for block in self.blocks for name in block.names):
            self._read_blocks(averages, latest, spans)  # they came before
        if any(name in names for one in self.waiting for name in one.names):
            self._fold_in_order(averages, averaged, latest, spans)
        else:
            _fold_alike(self.entries, averages, averaged, spans)
            self._pack()
        self.entries, self.waiting = [], []

    def read(
        self, averages: dict[str, Average], averaged: set[str], latest: dict[str, Any], spans: Spans
    ) -> None:
        """Average everything; this waits for the device."""
        if len(self) or self.waiting or self.blocks:
            self.fold(averages, averaged, latest, spans)
            self._read_blocks(averages, latest, spans)

    def _fold_flat(self, averages: dict[str, Average], latest: dict[str, Any], spans: Spans) -> None:
        if not self.flat_weights:
            return
        names = self.plan.columns if self.plan else ()
        if names:
            rows = np.frombuffer(self.flat).reshape(len(self.flat_weights), len(names))
            before = [averages.get(name, Average()) for name in names]
            averages.update(
                zip(names, fold(before, rows, np.frombuffer(self.flat_weights), spans), strict=True)
            )
            latest.update(zip(names, rows[-1].tolist(), strict=True))
        self.flat, self.flat_weights = array("d"), array("d")

    def _pack(self) -> None:
        """One block for all rows of the same names, so that a long run leaves few tensors."""
        groups: dict[Any, list[Waiting]] = {}
        for one in self.waiting:
            groups.setdefault((one.names, one.row.dtype, one.row.device), []).append(one)
        for group in groups.values():
            rows = torch.stack([one.row for one in group])
            self.blocks.append(Block(group[0].names, [one.weight for one in group], rows))

    def _read_blocks(self, averages: dict[str, Average], latest: dict[str, Any], spans: Spans) -> None:
        for block in self.blocks:
            rows = block.rows.cpu().double().numpy()
            before = [averages.get(name, Average()) for name in block.names]
            for name, average in zip(block.names, fold(before, rows, block.weights, spans), strict=True):
                averages[name] = average
                latest[name] = average.last
        self.blocks = []

    def _fold_in_order(
        self, averages: dict[str, Average], averaged: set[str], latest: dict[str, Any], spans: Spans
    ) -> None:
        """A name came from the host and from a device: only reading now keeps the order of its values."""
        start = 0
        for one in self.waiting:
            _fold_alike(self.entries[start : one.after], averages, averaged, spans)
            self.blocks.append(Block(one.names, [one.weight], one.row[None]))
            self._read_blocks(averages, latest, spans)
            start = one.after
        _fold_alike(self.entries[start:], averages, averaged, spans)


def no_accelerator() -> bool:
    """Whether this torch knows no device but the host, so that reading a tensor waits for none.

    Asked of the build: torch.cuda.is_available() may start CUDA, which a process that forks later must not.
    """
    if not HAS_TORCH:
        return True
    built = torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None)
    other = torch.backends.mps.is_built() or "torch_xla" in sys.modules
    # A backend of somebody else's has its name here.
    renamed = getattr(torch._C, "_get_privateuse1_backend_name", str)()
    return not (built or other or renamed != "privateuseone")


def _fold_alike(entries: list[Entry], averages: dict[str, Average], averaged: set[str], spans: Spans) -> None:
    """Fold in order; neighbours with the same names go together."""
    start = 0
    for i in range(1, len(entries) + 1):
        if i == len(entries) or entries[i][0] != entries[start][0]:
            _fold_entries(entries[start:i], averages, averaged, spans)
            start = i


def _fold_entries(
    entries: list[Entry], averages: dict[str, Average], averaged: set[str], spans: Spans
) -> None:
    """Entries with the same names."""
    weights = [weight for _, _, weight in entries]
    columns = zip(*(values for _, values, _ in entries), strict=True)
    for name, column in zip(entries[0][0], columns, strict=True):
        wanted = (float, int, bool) if name in averaged else (float,)
        pairs = [
            (value, weight) for value, weight in zip(column, weights, strict=True) if type(value) in wanted
        ]
        if pairs:
            numbers = [[float(value)] for value, _ in pairs]
            before = averages.get(name, Average())
            averages[name] = fold([before], numbers, [weight for _, weight in pairs], spans)[0]


def sorted_out(given: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """What must be read later, what is only kept, and all values, with numbers in place of host tensors."""
    later: dict[str, Tensor] = {}
    kept: dict[str, Any] = {}
    values = given.copy()
    for name, value in given.items():
        kind = type(value)
        if kind is float or kind in _AS_THEY_ARE:
            continue
        if kind is Tensor and value.is_cpu and not value.ndim and value.is_floating_point():
            values[name] = _item(value)
        elif (number := scalar_of(value)) is not None:
            values[name] = number
        elif is_device_scalar(value):
            later[name] = value
        else:
            kept[name] = value.detach() if isinstance(value, Tensor) else value
    for name in later:
        values[name] = math.nan  # a place in the order of the names, until it is read
    return later, kept, values


def stacked(later: dict[str, Tensor]) -> list[tuple[tuple[str, ...], Tensor]]:
    """Copies of the values, one small tensor for each kind and device, made on the device without waiting for it.

    A copy, because the caller may change its tensor in place before the average is read.
    """
    groups: dict[tuple[torch.dtype, torch.device], dict[str, Tensor]] = {}
    for name, value in later.items():
        groups.setdefault((value.dtype, value.device), {})[name] = value
    with torch.no_grad():
        return [
            (tuple(group), torch.stack([value.reshape(()) for value in group.values()]))
            for group in groups.values()
        ]


def _as_it_is(value: Any) -> Any:
    """What is kept as it is, without its graph; TypeError if it has become a number."""
    if scalar_of(value) is not None or is_device_scalar(value):
        raise TypeError
    return value.detach() if isinstance(value, Tensor) else value


def is_device_scalar(value: Any) -> bool:
    """A tensor of one element that does not lie in host memory."""
    return isinstance(value, Tensor) and not value.is_cpu and value.numel() == 1 and not value.is_complex()


def scalar_of(value: Any) -> float | None:
    """The number in host memory that the value is, if it is to be averaged: no int, no text."""
    if isinstance(value, Tensor):
        if not value.is_cpu or value.numel() != 1 or value.is_complex():
            return None
        try:
            return float(_item(value))
        except (RuntimeError, NotImplementedError):  # sparse, quantized or without data
            return None
    if isinstance(value, np.ndarray):
        return float(value.item()) if value.size == 1 and value.dtype.kind in "biuf" else None
    if isinstance(value, np.floating | float):
        return float(value)
    return None


def as_values(meter: Any) -> dict[str, Any]:
    """The values of a mapping or of a subclass of Meter; None has none."""
    if meter is None:
        return {}
    inner = getattr(meter, "_values", None)
    if hasattr(meter, "_averages"):
        raise UsageError(
            "meter-of-meters",
            "An AvgMeter was given to update().",
            "Put two AvgMeters together with merge(), or update with its last().",
        )
    if isinstance(inner, dict):
        return dict(inner)
    if isinstance(meter, Mapping) and all(isinstance(name, str) for name in meter):
        return dict(meter)
    raise UsageError(
        "not-a-meter",
        f"update() was given {type(meter).__name__!r}.",
        "Give a Meter, or a dict of names and values.",
    )
