"""What torch's tensors and modules say about themselves: value facts at first sight, a module's settings.

Both are for `signature.describe(..., facts=facts_of, module=module_of)`. Import this only where torch is imported.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from luxmeter.signature.modules import module_of as module_of
from luxmeter.signature.records import Facts

_MOST_VALUES = 1 << 13  # of a larger tensor this many are looked at, spread over all of it
_FEW = 32
_SIGNATURE_VALUES = 1 << 15  # of all tensors of one signature
_LEAST_VALUES = 64  # what a tensor gets when its signature's are used up
_SIGNATURE_TENSORS = 256
_FREE_NS = 250_000_000  # of looking in all, and beyond it a hundredth of the time that went by
_SHARE = 100

# What numpy calls values of these types; bfloat16 it does not know, others have no order.
_NUMPY = {
    torch.float64: "f8", torch.float32: "f4", torch.float16: "f2", torch.bfloat16: "u2",
    torch.int64: "i8", torch.int32: "i4", torch.int16: "i2", torch.int8: "i1",
    torch.uint64: "u8", torch.uint32: "u4", torch.uint16: "u2", torch.uint8: "u1", torch.bool: "u1",
}  # fmt: skip
Values = npt.NDArray[Any]


class Looks:
    """Looks at values of arguments within bounds: so many a signature, so much time in all."""

    def __init__(
        self, clock: Callable[[], int] = perf_counter_ns, used: Callable[[], int] = thread_time_ns
    ) -> None:
        """`used`: processor time of this thread. By the clock a look would also take the time of other threads."""
        self._clock, self._used, self._began_ns = clock, used, clock()
        self._spent_ns = 0
        self.skipped = 0  # tensors that were not looked at because a bound was reached

    def of_signature(self) -> Callable[[torch.Tensor], Facts | None]:
        """What looks at the tensors of one signature."""
        tensors, values = _SIGNATURE_TENSORS, _SIGNATURE_VALUES

        def look(t: torch.Tensor) -> Facts | None:
            nonlocal tensors, values
            if not tensors or self._spent_ns > _FREE_NS + (self._clock() - self._began_ns) // _SHARE:
                self.skipped += 1
                return None
            start_ns = self._used()
            found = facts_of(t, most=max(min(values, _MOST_VALUES), _LEAST_VALUES))
            if found is not None:
                tensors, values = tensors - 1, max(values - min(t.numel(), _MOST_VALUES), 0)
            self._spent_ns += self._used() - start_ns
            return found

        return look


def facts_of(t: torch.Tensor, *, most: int = _MOST_VALUES) -> Facts | None:
    """Range, density, order and whether the values are probabilities; of a large tensor, of `most` values of it.

    Reads the memory itself, with no operator of torch: a profiler or a mode of the user's sees nothing of it.
    """
    try:
        seen = _memory(t)
    except Exception:  # noqa: BLE001  (nested, wrapped by a transform ...: no memory of its own)
        return None
    if seen is None:
        return None
    with np.errstate(all="ignore"):
        some = _numbers(_sample(seen, most), t)
        if t.dtype is torch.bool:
            return Facts(density=int(np.count_nonzero(some)) / len(some))
        # What is no number is passed over; all of them: nothing is known.
        low, high = np.fmin.reduce(some).item(), np.fmax.reduce(some).item()
        if not t.is_floating_point():
            in_order = bool((some[1:] >= some[:-1]).all()) if t.dim() == 1 else None
            few = tuple(some.tolist()) if t.numel() <= _FEW else None
            return Facts(low=low, high=high, sorted=in_order, values=few)
        if math.isnan(low):
            return None
        return Facts(
            low=low,
            high=high,
            density=int(np.count_nonzero(some)) / len(some) if low <= 0 <= high else None,
            sums_to_one=_probabilities(seen, t, most) if 0 <= low <= high <= 1 else None,
        )


class _Memory:
    """Memory as numpy is told of it."""

    def __init__(self, **told: Any) -> None:
        self.__array_interface__ = {"version": 3, **told}


def _memory(t: torch.Tensor) -> Values | None:
    """The tensor's values where they lie, to be read at once. None: not on this machine's memory, or of no known type."""
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout is not torch.strided:
        return None
    kind = _NUMPY.get(t.dtype)
    if kind is None or t.device.type != "cpu" or not t.numel():
        return None
    shape, stride, size = tuple(t.shape), t.stride(), t.element_size()
    is_lazy_copy = getattr(torch._C, "_is_cow_tensor", None)
    if is_lazy_copy is None or is_lazy_copy(t):  # to ask for its address would copy it
        return None
    span = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    # A storage may be smaller than what a tensor shows of it (resized to nothing, as FSDP does), or none at all.
    if (t.storage_offset() + span) * size > t.untyped_storage().nbytes() or not t.data_ptr():
        return None
    place = _Memory(
        shape=shape,
        typestr=f"{_ORDER}{kind}",
        data=(t.data_ptr(), True),
        strides=tuple(s * size for s in stride),
    )
    return np.asarray(place)


_ORDER = "<" if sys.byteorder == "little" else ">"


def _sample(seen: Values, most: int) -> Values:
    """At most so many values, spread over all dimensions: an odd step meets them all."""
    if seen.size <= most:
        return seen
    step = -(-seen.size // most) | 1
    if seen.flags.c_contiguous:
        return seen.reshape(-1)[::step]
    return seen[np.unravel_index(np.arange(0, seen.size, step), seen.shape)]


def _numbers(some: Values, t: torch.Tensor) -> Values:
    """As numbers that can be compared and added, flat."""
    if t.dtype is torch.bfloat16:
        some = (some.astype(np.uint32) << 16).view(np.float32)
    elif t.dtype is torch.float16:
        some = some.astype(np.float32)
    if t.is_neg():  # the values lie there without their sign
        some = -some
    return some.reshape(-1)


def _probabilities(seen: Values, t: torch.Tensor, most: int) -> int | None:
    """The dimension along which values sum to one: the last, else the second."""
    for dim in [-1, 1] if t.dim() > 2 else [-1]:
        if not t.dim() or not 1 < t.shape[dim] <= most:
            continue
        rows = np.moveaxis(seen, dim, -1)
        n = rows.shape[-1]
        step = -(-seen.size // most) | 1
        if rows.ndim > 1:
            rows = rows[np.unravel_index(np.arange(0, seen.size // n, step), rows.shape[:-1])]
        if (np.abs(_numbers(rows, t).reshape(-1, n).sum(-1) - 1) <= 1e-2).all():
            return dim % t.dim()
    return None
