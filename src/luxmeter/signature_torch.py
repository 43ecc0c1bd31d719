"""What torch's tensors and modules say about themselves: value facts at first sight, a module's settings.

Both are for `signature.describe(..., facts=facts_of, module=module_of)`. Import this only where torch is imported.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from luxmeter.signature import Described, Facts, ModuleSpec, describe

_MOST_VALUES = 1 << 16  # of a larger tensor this many are looked at: microseconds, not milliseconds
_FEW = 32

# Constructor settings that live under another name, or only as "is there a parameter".
_PRESENCE = {"bias": ("bias", "in_proj_bias"), "add_bias_kv": ("bias_k",), "elementwise_affine": ("weight",)}
# Made with *args: these are the names that count (RNNBase passes everything through).
_RECURRENT = (
    "input_size",
    "hidden_size",
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "proj_size",
)
_LEFT_OUT = {"self", "device", "dtype", "_weight", "_freeze", "args", "kwargs"}


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


def module_of(module: torch.nn.Module) -> ModuleSpec:
    """A module's class, the settings its constructor would need, its own parameters and buffers."""
    settings = []
    kind: Any = type(module)
    for name in _settings_of(kind):
        value, known = _setting(module, name)
        if known:
            settings.append((name, value))
    tensors = [(k, t) for k, t in (*module.named_parameters(), *module.named_buffers()) if t is not None]
    specs = describe(tuple(t for _, t in tensors)).args
    return ModuleSpec(
        name=_place(type(module)),
        settings=tuple(settings),
        tensors=tuple((k, spec) for (k, _), spec in zip(tensors, specs, strict=True)),
        training=module.training,
    )


@functools.lru_cache(maxsize=1024)
def _settings_of(kind: type[Any]) -> tuple[str, ...]:
    if issubclass(kind, torch.nn.RNNBase):
        return _RECURRENT
    try:
        names = inspect.signature(kind.__init__).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(name for name in names if name not in _LEFT_OUT)


def _setting(module: torch.nn.Module, name: str) -> tuple[Described, bool]:
    found = getattr(module, name, _setting)
    if name in _PRESENCE and (found is _setting or found is None or isinstance(found, torch.Tensor)):
        return any(getattr(module, other, None) is not None for other in _PRESENCE[name]), True
    if found is _setting:
        # Dropout keeps p, Softplus beta, MultiheadAttention num_heads; what is kept nowhere stays at its default.
        return None, False
    if isinstance(found, torch.nn.Module):
        return module_of(found), True
    return describe((found,)).args[0], True


def _place(kind: type) -> str:
    """The shortest public name: torch.nn.Conv2d rather than torch.nn.modules.conv.Conv2d."""
    if kind.__module__.startswith("torch.nn.modules.") and getattr(torch.nn, kind.__name__, None) is kind:
        return f"torch.nn.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"
