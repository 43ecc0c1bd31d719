"""Is a result right? Every number within what its dtype explains, and where that is not enough, within what rounding the
inputs explains.

1. A number may be off by `_ROUNDINGS` roundings of its dtype, of itself and of the largest number of its tensor.
2. Where that fails, the reference is computed again with every input, and what every kernel on the way gives, moved by
   one rounding, up or down. What the reference itself moves by then, times `_MARGIN`, is allowed, too: an operator cannot
   be better than its numbers. That is how ill-conditioned inputs, cancellation, ties and jumps are told from faults, number
   by number. What is left, and needs a name, stands in `excuses`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Roundings that are allowed at once, by the dtype of the result.
_ROUNDINGS = {torch.float16: 4.0, torch.bfloat16: 4.0, torch.complex32: 4.0}
_OTHER_ROUNDINGS = 16.0
_MARGIN = 32.0  # times what the reference moves by
NOISES = 4  # so often the reference is moved


@dataclass(frozen=True)
class Compared:
    """How far a result is from the reference: `error` relative to the largest number, `allowed` the same; `ratio` of both.

    `why` is empty if it is right; `excused` says what made a further difference right.
    """

    error: float = 0.0
    allowed: float = 0.0
    why: str = ""
    excused: str = ""
    part: str = ""

    @property
    def ratio(self) -> float:
        """The error as a share of what is allowed."""
        if not self.error:
            return 0.0
        return self.error / self.allowed if self.allowed else math.inf


def compare(
    got: Sequence[Any],
    wanted: Sequence[Any],
    *,
    part: str,
    coarsest: torch.dtype | None,
    moved: Callable[[], Iterable[Sequence[Any]]],
    tolerance: float | None = None,
    floor: float = 0.0,
) -> Compared:
    """The worst of all pairs. `moved()` gives the reference's values for inputs moved by a rounding; asked when needed, and for no
    more than it takes: each is dear.

    `floor` times the allowed number of roundings is always allowed.
    """
    if len(got) != len(wanted):
        return Compared(math.inf, 0.0, f"gives {len(got)} values, the reference {len(wanted)}", part=part)
    layouts = [a.layout if _is_sparse(a) and _is_sparse(b) and a.layout is b.layout else None
               for a, b in zip(got, wanted, strict=True)]  # fmt: skip
    if any(layouts):
        got, wanted = _opened(got, layouts), _opened(wanted, layouts)
        dense, moved = moved, lambda: (_opened(m, layouts) for m in dense() if len(m) == len(layouts))
    worst = Compared(part=part)

    def others(number: int) -> Iterator[Any]:
        return (values[number] for values in moved() if len(values) == len(wanted))

    for number, (a, b) in enumerate(zip(got, wanted, strict=True)):
        found = _pair(a, b, coarsest, functools.partial(others, number), tolerance, floor)
        name = part if len(got) == 1 else f"{part} {number}"
        if (bool(found.why), found.ratio) > (bool(worst.why), worst.ratio) or (
            found.excused and not worst.excused and not worst.why
        ):
            worst = Compared(
                found.error,
                found.allowed,
                found.why,
                found.excused or worst.excused,
                name if found.why else part,
            )
    return worst


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def _opened(values: Sequence[Any], layouts: Sequence[torch.layout | None]) -> list[Any]:
    """Sparse tensors as their indices and values: made dense, wrong indices would read where they must not."""
    found: list[Any] = []
    for value, layout in zip(values, layouts, strict=True):
        if layout is None or not isinstance(value, torch.Tensor) or value.layout is not layout:
            found.append(value)
        elif layout is torch.sparse_coo:
            found += [(whole := value.detach().coalesce()).indices(), whole.values()]
        elif layout in (torch.sparse_csr, torch.sparse_bsr):
            found += [value.crow_indices(), value.col_indices(), value.values()]
        elif layout in (torch.sparse_csc, torch.sparse_bsc):
            found += [value.ccol_indices(), value.row_indices(), value.values()]
        else:
            found.append(value)
    return found


def _pair(
    got: Any,
    wanted: Any,
    coarsest: torch.dtype | None,
    others: Callable[[], Iterable[Any]],
    tolerance: float | None,
    floor: float,
) -> Compared:
    if not isinstance(got, torch.Tensor) and not isinstance(wanted, torch.Tensor):
        return _plain(got, wanted, coarsest, others, tolerance)
    if got is None or wanted is None:
        return _absent(got, wanted)
    if not isinstance(got, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return Compared(
            math.inf, 0.0, f"gives a {type(got).__name__}, the reference a {type(wanted).__name__}"
        )
    if got.shape != wanted.shape:
        if any(isinstance(t, torch.Tensor) and t.shape == got.shape for t in others()):
            return Compared(excused=SHAPE_MOVES)
        return Compared(math.inf, 0.0, f"gives {list(got.shape)}, the reference {list(wanted.shape)}")
    if _kind(got) != _kind(wanted):
        return Compared(math.inf, 0.0, f"gives {_name(got.dtype)}, the reference {_name(wanted.dtype)}")
    if not got.numel():
        return Compared()
    a, b = _plain_values(got), _plain_values(wanted)
    return _values(a, b, got.dtype, coarsest, others, tolerance, floor)


def allowed_of(dtype: torch.dtype | None) -> float:
    """What the largest number of a tensor may be off by, as a share of it: where an error was none of size."""
    if dtype is None:
        return 0.0
    return 2 * _ROUNDINGS.get(dtype, _OTHER_ROUNDINGS) * torch.finfo(dtype).eps


SHAPE_MOVES = "its shape depends on the last digits of the inputs"
ILL_CONDITIONED = "the reference moves as much when its inputs are rounded"


def _values(
    got: torch.Tensor,
    wanted: torch.Tensor,
    dtype: torch.dtype,
    coarsest: torch.dtype | None,
    others: Callable[[], Iterable[Any]],
    tolerance: float | None,
    floor: float = 0.0,
) -> Compared:
    if not (dtype.is_floating_point or dtype.is_complex):
        return _whole_numbers(got, wanted, others)
    eps, tiny, largest = _limits(dtype, coarsest)
    # As the dtype holds it: what is beyond its range is infinite there.
    wanted = (
        torch.where(wanted.abs() > largest, wanted * math.inf, wanted) if not wanted.is_complex() else wanted
    )
    same = (got == wanted) | (got.isnan() & wanted.isnan())
    gap = torch.where(same, 0.0, (got - wanted).abs())
    finite = torch.where(wanted.isfinite(), wanted, torch.zeros_like(wanted)).abs()
    scale = float(finite.max())
    share = _ROUNDINGS.get(dtype, _OTHER_ROUNDINGS) * eps if tolerance is None else tolerance
    allowed = share * (finite + scale) + tiny + _OTHER_ROUNDINGS * floor
    wrong = ~(gap <= allowed)
    if not bool(wrong.any()):
        return _worst(gap, allowed, scale)
    if tolerance is None:
        moves = torch.zeros_like(gap)
        jumps = torch.zeros_like(wrong)
        for other in others():
            if not isinstance(other, torch.Tensor) or other.shape != wanted.shape:
                continue
            one = _plain_values(other)
            change = torch.where((one == wanted) | (one.isnan() & wanted.isnan()), 0.0, (one - wanted).abs())
            jumps |= change.isnan() | change.isinf()
            moves = torch.maximum(moves, torch.nan_to_num(change, nan=0.0, posinf=0.0))
            wider = allowed + _MARGIN * torch.maximum(moves, _typical(moves))
            wrong = ~(gap <= wider) & ~jumps
            if not bool(wrong.any()):
                return Compared(excused=ILL_CONDITIONED)
        allowed = allowed + _MARGIN * torch.maximum(moves, _typical(moves))
    at = int(torch.where(wrong, torch.nan_to_num(gap, nan=math.inf), -1.0).flatten().argmax())
    off, here = float(gap.flatten()[at]), float(allowed.flatten()[at])
    count = int(wrong.sum())
    said = _said(got.flatten()[at].item(), wanted.flatten()[at].item(), count, got.numel())
    if not math.isfinite(off):
        return Compared(math.inf, here, said)
    base = max(scale, tiny)
    return Compared(off / base, here / base, said)


def _typical(moves: torch.Tensor) -> torch.Tensor:
    """What nine of ten numbers move by at most: four tries may have missed one, and a jump of one is no excuse
    for all."""
    flat = moves.flatten()
    return flat.kthvalue(int(0.9 * (flat.numel() - 1)) + 1).values


def _worst(gap: torch.Tensor, allowed: torch.Tensor, scale: float) -> Compared:
    if not float(gap.max()):
        return Compared()
    at = int((gap / allowed).flatten().argmax())
    base = scale or 1.0
    return Compared(float(gap.flatten()[at]) / base, float(allowed.flatten()[at]) / base)


def _whole_numbers(got: torch.Tensor, wanted: torch.Tensor, others: Callable[[], Iterable[Any]]) -> Compared:
    wrong = got != wanted
    if not bool(wrong.any()):
        return Compared()
    for one in others():
        if isinstance(one, torch.Tensor) and one.shape == wanted.shape:
            wrong = wrong & (_plain_values(one) == wanted)
            if not bool(wrong.any()):
                return Compared(excused=ILL_CONDITIONED)
    at = int(wrong.flatten().to(torch.uint8).argmax())
    return Compared(
        math.inf,
        0.0,
        _said(got.flatten()[at].item(), wanted.flatten()[at].item(), int(wrong.sum()), got.numel()),
    )


def _plain(
    got: Any,
    wanted: Any,
    coarsest: torch.dtype | None,
    others: Callable[[], Iterable[Any]],
    tolerance: float | None,
) -> Compared:
    numbers = (bool, int, float, complex)
    if got == wanted or (got is None and wanted is None):
        return Compared()
    if isinstance(got, torch.dtype) and isinstance(wanted, torch.dtype):
        return Compared()  # the reference is in another precision
    if isinstance(got, float | complex) and isinstance(wanted, numbers):
        a, b = (
            torch.tensor(v, dtype=torch.complex128 if isinstance(got, complex) else torch.float64)
            for v in (got, wanted)
        )
        return _values(
            a,
            b,
            coarsest or torch.float32,
            coarsest,
            lambda: (torch.tensor(v, dtype=a.dtype) for v in others()),
            tolerance,
        )
    if any(one != wanted for one in others()):
        return Compared(excused=ILL_CONDITIONED)
    if type(got) is type(wanted) and not isinstance(got, (*numbers, str, torch.Size)):
        return Compared()  # an object that has no value to compare
    return Compared(math.inf, 0.0, f"gives {got!r}, the reference {wanted!r}"[:160])


def _absent(got: Any, wanted: Any) -> Compared:
    """No gradient is a gradient of zeros."""
    there = wanted if got is None else got
    if (got is None and wanted is None) or not bool(torch.count_nonzero(_plain_values(there))):
        return Compared()
    return Compared(
        math.inf,
        0.0,
        f"gives {'none' if got is None else 'one'} where the reference gives {'one' if got is None else 'none'}",
    )


def _limits(dtype: torch.dtype, coarsest: torch.dtype | None) -> tuple[float, float, float]:
    """One rounding, the smallest normal number and the largest: of the coarser of the result and what it was made of."""
    of = [
        torch.finfo(d) for d in (dtype, coarsest) if d is not None and (d.is_floating_point or d.is_complex)
    ]
    return max(f.eps for f in of), max(f.tiny for f in of), torch.finfo(dtype).max


def _plain_values(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, dense, in the widest dtype of its kind."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _kind(tensor: torch.Tensor) -> str:
    if tensor.is_complex():
        return "complex"
    return (
        "float"
        if tensor.is_floating_point() or tensor.is_quantized
        else "bool"
        if tensor.dtype is torch.bool
        else "int"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _said(got: Any, wanted: Any, count: int, of: int) -> str:
    some = f"{count} of {of} values are wrong, the worst: " if of > 1 else ""
    return f"{some}gives {_number(got)}, right is {_number(wanted)}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float | complex) else str(value)
