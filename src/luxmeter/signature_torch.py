"""What torch's tensors and modules say about themselves: value facts at first sight, a module's settings.

Both are for `signature.describe(..., facts=facts_of, module=module_of)`. Import this only where torch is imported.
"""

from __future__ import annotations

import torch

from luxmeter.signature import Facts
from luxmeter.signature_modules import module_of as module_of

_MOST_VALUES = 1 << 16  # of a larger tensor this many are looked at: microseconds, not milliseconds
_FEW = 32


def facts_of(t: torch.Tensor) -> Facts | None:
    """Range, density, order and whether the values are probabilities; of a large tensor, of its beginning."""
    if (
        type(t) not in (torch.Tensor, torch.nn.Parameter)
        or t.layout is not torch.strided
        or t.device.type != "cpu"
    ):
        return None
    if not t.numel() or t.is_complex() or t.is_quantized:
        return None
    with torch.no_grad():
        if t.dtype is torch.bool:
            return Facts(density=float(_beginning(t).float().mean()))
        if t.is_floating_point() and t.element_size() < 2:
            return None  # eight-bit floats have no min and max
        some = _beginning(t)
        low, high = (v.item() for v in torch.aminmax(some))
        if not t.is_floating_point():
            in_order = bool((some[1:] >= some[:-1]).all()) if t.dim() == 1 else None
            few = tuple(some.tolist()) if t.numel() <= _FEW else None
            return Facts(low=int(low), high=int(high), sorted=in_order, values=few)
        return Facts(
            low=float(low),
            high=float(high),
            density=int(some.count_nonzero()) / len(some) if low <= 0 <= high else None,
            sums_to_one=_probabilities(t) if 0 <= low <= high <= 1 else None,
        )


def _beginning(t: torch.Tensor) -> torch.Tensor:
    """Up to so many values, flat, without a copy of a large tensor."""
    t = t.detach()
    while t.numel() > _MOST_VALUES and t.shape[0] == 1:
        t = t[0]
    if t.numel() > _MOST_VALUES:
        rows = max(1, _MOST_VALUES // max(1, t[0].numel()))
        t = t[:rows] if t[0].numel() <= _MOST_VALUES else _beginning(t[0])
    return t.reshape(-1)


def _probabilities(t: torch.Tensor) -> int | None:
    """The dimension along which values sum to one: the last, else the second."""
    if t.numel() > _MOST_VALUES:
        return None
    for dim in [-1, 1] if t.dim() > 2 else [-1]:
        if t.dim() and t.shape[dim] > 1 and torch.allclose(t.sum(dim).float(), torch.ones(()), atol=1e-2):
            return dim % t.dim()
    return None
