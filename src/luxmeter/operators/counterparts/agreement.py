"""Whether two results are the same: structure, shape, dtype, then values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

# dtype -> (relative, absolute): room for another order of summation, not for another formula.
TOLERANCES = {
    torch.float64: (1e-7, 1e-7), torch.float32: (1e-4, 1e-5), torch.float16: (4e-3, 2e-3), torch.bfloat16: (3e-2, 2e-2),
    torch.complex64: (1e-4, 1e-5), torch.complex128: (1e-7, 1e-7),
}  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """How far a result is from the one it should be. `error` is relative to the largest value there."""

    kind: Literal["equal", "value", "dtype", "shape"]
    error: float = 0.0
    why: str = ""


def agreement(wanted: Any, got: Any, *, values: bool = True) -> Agreement:
    """Compare nested results; without `values`, shape and dtype alone."""
    ours, theirs = _leaves(wanted), _leaves(got)
    if len(ours) != len(theirs):
        return Agreement("shape", why=f"{len(theirs)} results, torch gives {len(ours)}")
    worst = Agreement("equal")
    for a, b in zip(ours, theirs, strict=True):
        found = _pair(a, b, values)
        if (found.kind != "equal" and worst.kind == "equal") or (
            found.kind == worst.kind and found.error > worst.error
        ):
            worst = found
    return worst


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        if all(isinstance(v, bool | int | float) for v in value):
            return [tuple(value)]
        return [leaf for item in value for leaf in _leaves(item)]
    return [] if value is None else [value]


def _pair(a: Any, b: Any, values: bool) -> Agreement:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return _plain(a, b)
    if a.shape != b.shape:
        return Agreement("shape", why=f"{list(b.shape)}, torch gives {list(a.shape)}")
    if a.dtype != b.dtype:
        return Agreement("dtype", why=f"{_short(b)}, torch gives {_short(a)}")
    if not values:
        return Agreement("equal")
    return _values(a, b)


def _values(a: torch.Tensor, b: torch.Tensor) -> Agreement:
    a, b = (t.detach().to_dense() if t.layout is not torch.strided else t.detach() for t in (a, b))
    a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
    if not a.numel():
        return Agreement("equal")
    relative, absolute = TOLERANCES.get(a.dtype, (0.0, 0.0))
    wide = torch.complex128 if a.is_complex() else torch.float64
    if not (a.is_floating_point() or a.is_complex()):
        wrong = int((a != b).sum())
        return (
            Agreement("equal")
            if not wrong
            else Agreement("value", 1.0, f"{wrong} of {a.numel()} values differ")
        )
    x, y = a.to(wide), b.to(wide)
    same = (x == y) | (x.isnan() & y.isnan())
    gap = torch.where(same, 0.0, (x - y).abs())
    if gap.isnan().any() or gap.isinf().any():
        count = int((gap.isnan() | gap.isinf()).sum())
        return Agreement("value", 1.0, f"{count} of {a.numel()} values are not finite in one alone")
    finite = torch.where(x.isfinite(), x, torch.zeros((), dtype=wide)).abs()
    error = float(gap.max() / finite.max().clamp_min(1e-30)) if float(gap.max()) else 0.0
    if bool((gap <= absolute + relative * finite).all()):
        return Agreement("equal", error)
    return Agreement(
        "value", error, f"off by {float(gap.max()):.2g} where values reach {float(finite.max()):.2g}"
    )


def _plain(a: Any, b: Any) -> Agreement:
    """Numbers, words and tuples of them; a tensor of one value may stand for a number, not the reverse."""
    if isinstance(a, torch.Tensor):
        return Agreement("dtype", why=f"a {type(b).__name__}, torch gives a tensor")
    if isinstance(b, torch.Tensor):
        if b.numel() != 1 or not isinstance(a, bool | int | float):
            return Agreement("shape", why=f"a tensor, torch gives a {type(a).__name__}")
        b = b.item()
    if isinstance(a, torch.Size | tuple) and isinstance(b, tuple | list):
        return (
            Agreement("equal") if tuple(a) == tuple(b) else Agreement("value", 1.0, f"{b}, torch gives {a}")
        )
    if isinstance(a, int | float) and isinstance(b, int | float):
        near = a == b or abs(a - b) <= 1e-5 + 1e-4 * abs(a) or (a != a and b != b)
        return Agreement("equal") if near else Agreement("value", 1.0, f"{b}, torch gives {a}")
    return Agreement("equal") if a == b else Agreement("value", 1.0, f"{b!r}, torch gives {a!r}"[:120])


def _short(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
