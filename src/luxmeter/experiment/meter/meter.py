"""Meters: values by name that print in one line (`Meter`), and their averages over many steps (`AvgMeter`)."""

from __future__ import annotations

import builtins
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from typing import Any, TypeVar

import numpy as np

from luxmeter.errors import MissingNameError, UsageError, suggestion
from luxmeter.experiment.meter import averages, vectors
from luxmeter.experiment.meter import format as meter_format
from luxmeter.experiment.meter import pending as meter_pending
from luxmeter.experiment.meter.averages import Average, Spans
from luxmeter.experiment.meter.format import DIGITS, Format
from luxmeter.experiment.meter.vectors import VectorAverage, is_vector
from luxmeter.torch_extra import HAS_TORCH, Tensor, torch

M = TypeVar("M", bound="Meter")
How = Callable[[Any], str]


class Meter:
    """Any values by name. They come out as they went in; only printing formats them.

    `m.loss_` is the text "loss", so that a name can be completed by an editor: `m.percent(m.acc_)`.
    """

    _values: dict[str, Any]
    _formats: dict[str, How]

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.__dict__["_values"] = {}
        self.__dict__["_formats"] = {}
        if values is not None:
            self.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] == "_":
            self.__dict__[name] = value  # an attribute of a subclass, not a value
        elif name in _RESERVED or name[-1:] == "_":
            raise _refused(name)
        else:
            self._values[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name.endswith("_"):
            return name[:-1]
        return self._absent(name) if name not in self else self[name]

    def _absent(self, name: str) -> Any:
        return NotYet(_missing(self, name))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise _missing(self, name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str) or not name or name.endswith("_"):
            raise _refused(name)
        self._values[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise _missing(self, name)
        del self._values[name]

    def update(self, values: Mapping[str, Any] | Meter) -> None:
        """Set many names; formats of another meter come along."""
        if isinstance(values, Meter):
            self._formats.update(values._formats)
        for name, value in values.items():
            self[name] = value

    # Formats

    def int(self, name: str) -> None:
        """Print `name` without places."""
        self._formats[name] = Format("int", 0)

    def float(self, name: str, digits: builtins.int = DIGITS) -> None:
        """Print `name` with so many places."""
        self._formats[name] = Format("float", digits)

    tensorfloat = float

    def percent(self, name: str, digits: builtins.int = 2) -> None:
        """Print `name` as a percentage: 0.236 is 23.60%."""
        self._formats[name] = Format("percent", digits)

    def format(self, name: str, how: How | str) -> None:
        """Print `name` by a function, or by a format text such as `.3e`."""
        self._formats[name] = how if callable(how) else meter_format.SpecFormat(how)

    # Reading

    def keys(self) -> KeysView[str]:
        """The names, in the order they came."""
        return self._values.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values as they are."""
        return [(name, self[name]) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default` when there is none."""
        return self[name] if name in self else default  # noqa: SIM401  this is that get

    def to_dict(self) -> dict[str, Any]:
        """Names and values as a dict; an AvgMeter gives its means."""
        return dict(self._values)

    def scalars(self) -> dict[str, Any]:
        """All that is a number, as Python numbers (this reads tensors, and so waits for their device)."""
        found = {name: meter_format.as_number(value) for name, value in self.to_dict().items()}
        return {name: number for name, number in found.items() if number is not None}

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> builtins.int:
        return len(self.keys())

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.keys()})

    def __str__(self) -> str:
        return "  ".join(f"@{name}={self._show(name)}" for name in self.keys())

    def __repr__(self) -> str:
        return str(self)

    def _show(self, name: str) -> str:
        return meter_format.show(self._values[name], self._formats.get(name))

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class NotYet:
    """What `m.count` is before its first value, so that `m.count += 1` can begin: a sum begins with 0, a product with 1.

    Whatever else is done with it raises what `m["count"]` does.
    """

    def __init__(self, error: MissingNameError) -> None:
        self.__error = error

    def __add__(self, other: Any) -> Any:
        return other

    def __sub__(self, other: Any) -> Any:
        return -other

    def __truediv__(self, other: Any) -> Any:
        return 1 / other

    __radd__ = __mul__ = __rmul__ = __add__

    def __repr__(self) -> str:
        return f"<{self.__error.what}>"

    def __refuse(self, *_: Any) -> Any:
        raise self.__error

    __float__ = __int__ = __index__ = __bool__ = __complex__ = __str__ = __format__ = __len__ = __iter__ = (
        __call__
    ) = __refuse
    __getitem__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __round__ = (
        __getattr__
    ) = __refuse
    __eq__ = __ne__ = __refuse
    __hash__ = None  # type: ignore[assignment]


class AvgMeter(Meter):
    """Averages of what meters say, step after step; prints `last(average)`.

    Floats, and tensors and arrays of floats element by element, are averaged; ints, texts and all else keep their last
    value. An update costs a few microseconds and never waits for a device: values are read when the averages are.
    """

    def __init__(self, *, window: int = 20, decay: float = 0.98) -> None:
        if window < 1 or not 0 <= decay < 1:
            raise UsageError(
                "meter-spans",
                f"AvgMeter was asked for window={window} and decay={decay}.",
                "The window holds at least one value; the decay is from 0 to below 1.",
            )
        super().__init__()
        self.__dict__.update(
            _spans=Spans(window, decay),
            _averages={},
            _vectors={},
            _averaged=set(),
            _pending=meter_pending.Pending(),
        )

    _spans: Spans
    _averages: dict[str, Average]
    _vectors: dict[str, VectorAverage | None]  # None: its values do not fit each other, the last is kept
    _averaged: set[str]
    _pending: meter_pending.Pending

    def update(self, meter: Mapping[str, Any] | Meter | None, weight: float = 1.0) -> None:
        """Add a meter or a mapping; `weight` counts it as so many (the batch size, say). None adds nothing."""
        if type(meter) is Meter:
            given = meter._values
            if meter._formats:
                self._formats.update(meter._formats)
        else:
            given = meter_pending.as_values(meter)
            self._formats.update(getattr(meter, "_formats", {}))
        pending = self._pending
        if pending.add_planned(given, weight, self._values) or self._planned_anew(given, weight):
            if pending.plan is not None and pending.plan.vectors:
                self._add_vectors(pending.plan.vectors, weight)
            if len(pending.flat_weights) >= meter_pending.CHUNK:
                self._fold()
            return
        if pending.flat_weights:
            self._fold()  # from here on the last values are kept at once: those before come first
        later, kept, values = meter_pending.sorted_out(given)
        self._values.update(values)
        self._values.update(kept)
        pending.add_mixed(values, kept, later, weight)
        self._add_vectors(kept, weight)
        if len(pending.entries) >= meter_pending.CHUNK:
            self._fold()

    def _add_vectors(self, names: Iterable[str], weight: builtins.float) -> None:
        for name in names:
            value, known = self._values[name], self._vectors
            if is_vector(value, ints=name in self._averaged) and known.get(name, value) is not None:
                known[name] = vectors.added(known.get(name), value, weight, self._spans)
            elif name in known:
                known[name] = None

    def _planned_anew(self, given: dict[str, Any], weight: float) -> bool:
        """The update did not fit the plan: make another one and take it by that, or say that there is none."""
        pending = self._pending
        if not pending.plans_left:
            return False
        self._fold()
        pending.make_plan(given, self._averaged)
        if pending.plan is None:
            return False
        for name in given:
            self._values.setdefault(name, math.nan)  # its place in the order
        return pending.add_planned(given, weight, self._values)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] == "_":
            self.__dict__[name] = value
        elif name in _RESERVED or name[-1:] == "_":
            raise _refused(name)
        else:
            self.update({name: value})

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str) or not name or name.endswith("_"):
            raise _refused(name)
        self.update({name: value})

    def keys(self) -> KeysView[str]:
        self._fold()
        return self._values.keys()

    def _absent(self, name: str) -> Any:
        raise _missing(self, name)

    def average(self, name: str) -> None:
        """Average `name` from now on even if its values are ints."""
        self._fold()
        self._averaged.add(name)
        self._pending.plan = None

    def __getitem__(self, name: str) -> Any:
        """The average of a name that is averaged (mean, sum, min, max, last, ema, windowed); else the last value."""
        self._read()
        average = self._average(name)
        if average is None:
            return super().__getitem__(name)
        return average if isinstance(average, Average) else vectors.as_it_is_now(average)

    def _average(self, name: str) -> Average | VectorAverage | None:
        if name in self._averages:
            return self._averages[name]
        vector = self._vectors.get(name)
        return None if vector is None or vector.last is not self._values.get(name) else vector

    def to_dict(self) -> dict[str, Any]:
        self._read()
        found = ((name, value, self._average(name)) for name, value in self._values.items())
        return {name: value if average is None else average.mean for name, value, average in found}

    def last(self) -> Meter:
        """A meter with the last values, printed in the same way."""
        self._read()
        meter = Meter(
            {n: self._averages[n].last if n in self._averages else v for n, v in self._values.items()}
        )
        meter._formats.update(self._formats)
        return meter

    def reset(self) -> None:
        """Forget all values; formats stay."""
        self._values.clear()
        self._averages.clear()
        self._vectors.clear()
        self.__dict__["_pending"] = meter_pending.Pending()

    def __delattr__(self, name: str) -> None:
        self._read()
        super().__delattr__(name)
        self._averages.pop(name, None)
        self._vectors.pop(name, None)

    def merge(self, *others: AvgMeter) -> AvgMeter:
        """A new meter that has seen what this one and the others have."""
        merged = AvgMeter(window=self._spans.window, decay=self._spans.decay)
        for meter in (self, *others):
            meter._read()
            merged._values.update(meter._values)
            merged._formats.update(meter._formats)
            merged._averaged.update(meter._averaged)
            for name, average in meter._averages.items():
                merged._averages[name] = averages.merge(merged._averages.get(name, Average()), average)
            for name, vector in meter._vectors.items():
                before = merged._vectors.get(name, vector)
                if before is vector is not None:
                    merged._vectors[name] = vectors.as_it_is_now(vector)
                else:
                    merged._vectors[name] = before and vector and vectors.merge(before, vector)
        return merged

    def merge_ranks(self, group: Any = None) -> AvgMeter:
        """A new meter over all ranks of torch.distributed, the same on each; alone, a copy of this one.

        Every rank must call it. What is averaged is exact; other values are those of the highest rank.
        """
        return _gather(self, group)

    def state_dict(self) -> dict[str, Any]:
        """All averages as plain values and tensors, for a checkpoint."""
        return self._state(lambda tensor: tensor.detach().clone())

    def _state(self, place: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        self._read()
        return {
            "averages": {name: averages.to_record(average) for name, average in self._averages.items()},
            "vectors": {
                name: vectors.to_record(vector, place) if vector and self._average(name) is vector else None
                for name, vector in self._vectors.items()
            },
            "averaged": sorted(self._averaged),
            "values": {
                n: place(v) if isinstance(v, Tensor) else v for n, v in self._values.items() if _is_plain(v)
            },
            "order": list(self._values),
            "window": self._spans.window,
            "decay": self._spans.decay,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; formats are kept."""
        self.reset()
        found = {name: averages.from_record(record) for name, record in state["averages"].items()}
        self.__dict__.update(_spans=Spans(state["window"], state["decay"]), _averaged=set(state["averaged"]))
        for name, record in state.get("vectors", {}).items():
            self._vectors[name] = record and vectors.from_record(record, self._spans)
        for name in state["order"]:
            if name in found:
                self._averages[name] = found[name]
                self._values[name] = state["values"].get(name, found[name].last)
            elif (vector := self._vectors.get(name)) is not None:
                self._values[name] = vector.last
            elif name in state["values"]:
                self._values[name] = state["values"][name]

    def _show(self, name: str) -> str:
        how = self._formats.get(name)
        average = self._averages.get(name)
        if average is None:
            return meter_format.show(self._values[name], how)
        value = self._values[name]
        last = value if type(value) in (int, float) and not math.isnan(value) else average.last
        return f"{meter_format.show(last, how)}({meter_format.show(average.mean, how)})"

    def shown(self, name: str, *, recent: bool = False) -> str:
        """The mean of a name as the meter prints it, over all updates or over the last few; of what is not averaged, the last."""
        value = self[name]
        if isinstance(value, Average | VectorAverage):
            value = value.windowed if recent else value.mean
        return meter_format.show(value, self._formats.get(name))

    def __str__(self) -> str:
        self._read()
        return super().__str__()

    def _fold(self) -> None:
        self._pending.fold(self._averages, self._averaged, self._values, self._spans)

    def _read(self) -> None:
        self._pending.read(self._averages, self._averaged, self._values, self._spans)

    def __getstate__(self) -> dict[str, Any]:
        self._read()
        return {**self.__dict__, "_pending": meter_pending.Pending()}


_RESERVED = frozenset(name for kind in (Meter, AvgMeter) for name in dir(kind) if not name.startswith("_"))


def _missing(meter: Meter, name: str) -> MissingNameError:
    known = list(meter.keys())
    return MissingNameError(
        "missing-value",
        f"The meter has no value {name!r}.",
        suggestion(str(name), known) or (f"It has {', '.join(known)}." if known else "It is empty."),
    )


def _refused(name: Any) -> UsageError:
    return UsageError(
        "meter-name",
        f"A value of a meter cannot be called {name!r}.",
        "Names that end in '_' stand for the name itself, and names of methods are taken; m['name'] takes those.",
    )


def _is_plain(value: Any) -> bool:
    """Whether a checkpoint can hold the value as it is."""
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return (
        value is None
        or isinstance(value, str | Tensor)
        or (isinstance(value, numbers.Real) and not isinstance(value, np.generic))
    )


def _gather(meter: AvgMeter, group: Any) -> AvgMeter:
    """The meters of all ranks merged in the order of the ranks."""
    if not (HAS_TORCH and torch.distributed.is_available() and torch.distributed.is_initialized()):
        return meter.merge()
    dist = torch.distributed
    states: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(states, meter._state(lambda tensor: tensor.detach().cpu()), group)
    parts = []
    for part in states:
        one = type(meter)(window=part["window"], decay=part["decay"])
        one.load_state_dict(part)
        parts.append(one)
    merged = parts[0].merge(*parts[1:])
    merged._formats.update(meter._formats)
    return merged
