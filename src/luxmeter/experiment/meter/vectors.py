"""Averages of tensors and arrays, element by element, where they lie: nothing here waits for a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from luxmeter.experiment.meter.averages import Spans
from luxmeter.torch_extra import HAS_TORCH, Tensor, torch

LARGEST = 65_536  # elements; what is larger (a batch of pictures) is no metric, and would be kept as often as the window is long

_ARRAY_NAMES = ("last", "sum", "min", "max", "ema_sum")

# The methods underneath: a trace shows the user's calls, not these.
_Base: Any = Tensor.__mro__[1] if HAS_TORCH else None


@dataclass
class VectorAverage:
    """What `Average` is of a number, of all elements at once. Tensors and arrays come out as such."""

    last: Any
    sum: Any
    min: Any
    max: Any
    ema_sum: Any
    count: int = 0
    weight: float = 0.0
    ema_weight: float = 0.0
    recent: deque[tuple[Any, float]] = field(default_factory=deque)

    @property
    def mean(self) -> Any:
        """The sum of value times weight, over the sum of weights."""
        return self._over(self.sum, self.weight)

    @property
    def avg(self) -> Any:
        """The mean, by its other usual name."""
        return self.mean

    @property
    def ema(self) -> Any:
        """The exponential average, without the pull of its start."""
        return self._over(self.ema_sum, self.ema_weight)

    @property
    def windowed(self) -> Any:
        """The weighted average of the last few values."""
        ways = _of(self.last)
        total = ways.zeros(self.sum)
        for value, weight in self.recent:
            ways.blend(total, 1.0, value, weight)
        return self._over(total, sum(weight for _, weight in self.recent))

    def _over(self, total: Any, weight: float) -> Any:
        return _of(self.last).result(total, 1 / weight if weight else np.nan, self.last)

    def __str__(self) -> str:
        return str(self.mean)


@dataclass(frozen=True)
class _Ways:
    """How it is done with arrays, or with tensors."""

    copy: Callable[[Any], Any]  # in double precision
    zeros: Callable[[Any], Any]  # as many
    blend: Callable[[Any, float, Any, float], Any]  # total * keep + value * weight, in place
    low: Callable[[Any, Any], Any]
    high: Callable[[Any, Any], Any]
    result: Callable[[Any, float, Any], Any]  # total * factor, as floats of the precision of the value


def _blend_arrays(total: Any, keep: float, value: Any, weight: float) -> None:
    total *= keep
    total += value * weight


def _blend_tensors(total: Any, keep: float, value: Any, weight: float) -> None:
    if keep != 1.0:
        _Base.mul_(total, keep)
    _Base.add_(total, value, alpha=weight)


def _precise(value: Any) -> Any:
    """A copy in double precision, where the device has it."""
    double = value.device.type in ("cpu", "cuda")
    return _Base.to(_Base.detach(value), torch.float64 if double else torch.float32, copy=True)


def _as_tensor(total: Any, factor: float, like: Any) -> Any:
    dtype = like.dtype if like.dtype in (torch.float32, torch.float64) else torch.float32
    return _Base.to(_Base.mul(total, factor), dtype)


def _as_array(total: Any, factor: float, like: Any) -> Any:
    return (total * factor).astype(
        like.dtype if like.dtype.kind == "f" and like.itemsize >= 4 else np.float32
    )


def _zero_tensors(like: Any) -> Any:
    return _Base.zero_(_Base.clone(like))


_ARRAYS = _Ways(
    lambda value: np.array(value, np.float64), np.zeros_like, _blend_arrays, np.fmin, np.fmax, _as_array
)
_TENSORS = (
    _Ways(_precise, _zero_tensors, _blend_tensors, _Base.fmin, _Base.fmax, _as_tensor)
    if HAS_TORCH
    else _ARRAYS
)


def _of(value: Any) -> _Ways:
    return _ARRAYS if isinstance(value, np.ndarray) else _TENSORS


def is_vector(value: Any, *, ints: bool = False) -> bool:
    """Whether the value is averaged element by element: floats (with `ints` ints, too), more than one, not too many."""
    if type(value) is np.ndarray:
        return 1 < value.size <= LARGEST and value.dtype.kind in ("biuf" if ints else "f")
    if not isinstance(value, Tensor) or type(value) not in (Tensor, torch.nn.Parameter):
        return False
    if value.layout is not torch.strided or value.is_quantized or value.is_meta or value.is_nested:
        return False
    kind = not value.is_complex() if ints else value.is_floating_point()
    return kind and 1 < value.numel() <= LARGEST


def added(before: VectorAverage | None, value: Any, weight: float, spans: Spans) -> VectorAverage | None:
    """With one value more. None if it does not fit those before: then there is no average of them."""
    if before is not None and not _alike(before.last, value):
        return None
    if isinstance(value, np.ndarray):
        return _added(before, value, weight, spans, _ARRAYS)
    try:
        # What inference mode makes could not be added to outside of it.
        with torch._C._InferenceMode(False):
            return _added(before, value, weight, spans, _TENSORS)
    except (RuntimeError, NotImplementedError):  # no data that can be read: inside vmap, say
        return None


def _added(
    before: VectorAverage | None, value: Any, weight: float, spans: Spans, ways: _Ways
) -> VectorAverage:
    x = ways.copy(value)
    if before is not None:
        before = _beside(before, value)
    else:
        first = ways.result(x, 1.0, value)
        before = VectorAverage(
            value, ways.zeros(x), first, first, ways.zeros(x), recent=deque(maxlen=spans.window)
        )
    share = (1 - spans.decay) * weight
    ways.blend(before.sum, 1.0, x, weight)
    ways.blend(before.ema_sum, spans.decay, x, share)
    before.last, before.min, before.max = value, ways.low(before.min, value), ways.high(before.max, value)
    before.count += 1
    before.weight += weight
    before.ema_weight = before.ema_weight * spans.decay + share
    before.recent.append((x, weight))
    return before


def as_it_is_now(average: VectorAverage) -> VectorAverage:
    """A copy that further values do not change."""
    ways = _of(average.last)
    return replace(
        average, sum=ways.copy(average.sum), ema_sum=ways.copy(average.ema_sum), recent=average.recent.copy()
    )


def _alike(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) is isinstance(b, np.ndarray) and a.shape == b.shape


def _beside(average: VectorAverage, value: Any) -> VectorAverage:
    """Where the value lies: one that was loaded lies on the host."""
    if isinstance(value, np.ndarray) or average.sum.device == value.device:
        return average

    def moved(tensor: Any) -> Any:
        return _Base.to(tensor, value.device, non_blocking=True)

    arrays = {name: moved(getattr(average, name)) for name in _ARRAY_NAMES}
    return replace(
        average, **arrays, recent=deque(((moved(v), w) for v, w in average.recent), average.recent.maxlen)
    )


def merge(a: VectorAverage, b: VectorAverage) -> VectorAverage | None:
    """Both together; None if they do not fit each other."""
    if not _alike(a.last, b.last):
        return None
    a, ways = _beside(a, b.last), _of(a.last)
    total, ema = ways.copy(a.sum), ways.copy(a.ema_sum)
    ways.blend(total, 1.0, b.sum, 1.0)
    ways.blend(ema, 1.0, b.ema_sum, 1.0)
    return VectorAverage(
        b.last, total, ways.low(a.min, b.min), ways.high(a.max, b.max), ema, a.count + b.count, a.weight + b.weight,
        a.ema_weight + b.ema_weight, deque([*a.recent, *b.recent]),
    )  # fmt: skip


def to_record(average: VectorAverage, place: Callable[[Any], Any]) -> dict[str, Any]:
    """The average as plain values and tensors, for a checkpoint or another rank; `place` moves a tensor."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"array": value.tolist(), "dtype": value.dtype.str}
        return place(value)

    arrays = {name: plain(getattr(average, name)) for name in _ARRAY_NAMES}
    numbers = {name: getattr(average, name) for name in ("count", "weight", "ema_weight")}
    return {**arrays, **numbers, "recent": [[plain(value), weight] for value, weight in average.recent]}


def from_record(record: dict[str, Any], spans: Spans) -> VectorAverage:
    """What `to_record` gave."""

    def read(value: Any) -> Any:
        return np.array(value["array"], value["dtype"]) if isinstance(value, dict) else value.clone()

    arrays = {name: read(record[name]) for name in _ARRAY_NAMES}
    recent = deque(((read(value), float(weight)) for value, weight in record["recent"]), spans.window)
    numbers = {name: record[name] for name in ("count", "weight", "ema_weight")}
    return VectorAverage(**arrays, **numbers, recent=recent)
