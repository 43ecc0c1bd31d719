"""Values of torch as MindSpore's, and back. Import this only where both frameworks are."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

import mindspore

_DTYPES: dict[torch.dtype, Any] = {
    torch.float64: mindspore.float64, torch.float32: mindspore.float32, torch.float16: mindspore.float16,
    torch.bfloat16: mindspore.bfloat16, torch.int64: mindspore.int64, torch.int32: mindspore.int32,
    torch.int16: mindspore.int16, torch.int8: mindspore.int8, torch.uint8: mindspore.uint8, torch.bool: mindspore.bool_,
    torch.complex64: mindspore.complex64, torch.complex128: mindspore.complex128, torch.uint16: mindspore.uint16,
    torch.uint32: mindspore.uint32, torch.uint64: mindspore.uint64,
}  # fmt: skip


class NotConvertible(Exception):
    """MindSpore has nothing like this value; the message says what it is."""


def to_mindspore(value: Any) -> Any:
    """The same value for MindSpore: tensors copied bit by bit, dtypes by name, containers kept."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, torch.dtype):
        if value not in _DTYPES:
            raise NotConvertible(f"MindSpore has no {value}")
        return _DTYPES[value]
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(to_mindspore(v) for v in value)
    if isinstance(value, list | tuple):
        return type(value)(to_mindspore(v) for v in value)
    if isinstance(value, dict):
        return {k: to_mindspore(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(to_mindspore(v) for v in (value.start, value.stop, value.step)))
    if value is None or value is Ellipsis or isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    raise NotConvertible(f"MindSpore has no {type(value).__module__}.{type(value).__qualname__}")


def _tensor(tensor: torch.Tensor) -> Any:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise NotConvertible(f"no {tensor.layout} tensors in this comparison")
    if tensor.dtype not in _DTYPES:
        raise NotConvertible(f"MindSpore has no {tensor.dtype}")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype is torch.bfloat16:  # numpy has none; every bfloat16 is a float32
        return mindspore.Tensor(plain.float().numpy(), mindspore.bfloat16)
    return mindspore.Tensor(plain.numpy().copy())


def to_torch(value: Any) -> Any:
    """What MindSpore gave, as torch's tensors in the same containers."""
    if isinstance(value, mindspore.Tensor):
        if value.dtype == mindspore.bfloat16:
            return torch.from_numpy(np.array(value.astype(mindspore.float32).asnumpy())).to(torch.bfloat16)
        return torch.from_numpy(np.array(value.asnumpy()))
    if isinstance(value, list | tuple):
        return [to_torch(v) for v in value]
    if isinstance(value, dict):
        return {k: to_torch(v) for k, v in value.items()}
    back = _back()
    try:
        return back.get(value, value)
    except TypeError:
        return value


@functools.cache
def _back() -> dict[Any, torch.dtype]:
    return {theirs: ours for ours, theirs in _DTYPES.items()}


def wait() -> None:
    """Return when everything that was started is done."""
    mindspore.common.api._pynative_executor.sync()


def settle() -> None:
    """Wait for everything that was started, and drop what failed in it.

    MindSpore tells of a failed kernel at a later call, at times at several: without this, the next operator would be
    blamed for it.
    """
    for _ in range(10):
        try:
            wait()
        except Exception:  # noqa: BLE001 - told to whoever called it
            continue
        return
