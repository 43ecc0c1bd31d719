"""A value -> bytes that are the same in every process and on every machine, and differ when the value differs.

The encoding is prefix-free (every part says its kind and its length), so no two different values share one.
Numbers that are equal are the same (`1` and `1.0`), but `True` is not `1`, and a list is not a tuple.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
import math
import struct
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from luxmeter.errors import UsageError

DIGEST_BYTES = 16


def fingerprint(value: Any) -> str:
    """32 hex digits of `value`; an object that offers nothing stable to read is refused."""
    return hashlib.blake2b(_encode(value, ()), digest_size=DIGEST_BYTES).hexdigest()


def same(a: Any, b: Any) -> bool:
    """Whether the two values are equal, arrays and tensors by content; never raises."""
    if a is b:
        return True
    try:
        return _encode(a, ()) == _encode(b, ())
    except UsageError:
        try:
            return bool(a == b)
        except Exception:  # noqa: BLE001  a foreign __eq__ may raise or answer with an array
            return False


def _part(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack(">Q", len(payload)) + payload


def _encode(value: Any, above: tuple[int, ...]) -> bytes:
    if value is None:
        return _part(b"N", b"")
    if isinstance(value, enum.Enum):
        return _part(b"E", f"{_name(type(value))}.{value.name}".encode())
    if isinstance(value, bool):
        return _part(b"B", b"1" if value else b"0")
    if isinstance(value, int):
        return _part(b"I", b"%d" % value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, complex):
        return _part(b"C", _float(value.real) + _float(value.imag))
    if isinstance(value, str):
        return _part(b"S", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray):
        return _part(b"Y", bytes(value))
    if id(value) in above:
        raise _refused(value, "it holds itself")
    inner = (*above, id(value))
    if isinstance(value, Mapping):
        return _part(b"D", b"".join(sorted(_all(pair, inner) for pair in value.items())))
    if isinstance(value, list):
        return _part(b"L", _all(value, inner))
    if isinstance(value, tuple):
        return _part(b"T", _all(value, inner))
    if isinstance(value, set | frozenset):
        return _part(b"F", b"".join(sorted(_encode(item, inner) for item in value)))
    return _encode_object(value, inner)


def _all(values: Iterable[Any], above: tuple[int, ...]) -> bytes:
    return b"".join(_encode(value, above) for value in values)


def _float(value: float) -> bytes:
    if math.isfinite(value) and value.is_integer():
        return _part(b"I", b"%d" % int(value))
    return _part(b"R", b"nan" if math.isnan(value) else struct.pack(">d", value))


def _encode_object(value: Any, above: tuple[int, ...]) -> bytes:
    if isinstance(value, PurePath):
        return _part(b"P", value.as_posix().encode("utf-8", "surrogatepass"))
    if isinstance(value, range | slice):
        return _part(b"V", repr(value).encode())
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return _part(b"W", f"{type(value).__name__} {value}".encode())
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        if isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            return _encode(value.item(), above)
        if isinstance(value, numpy.ndarray | numpy.generic):
            return _array(value, above)
        if isinstance(value, numpy.dtype):
            return _part(b"V", f"dtype {value}".encode())
    if torch is not None:
        if isinstance(value, torch.Tensor):
            return _tensor(value, above)
        if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
            return _part(b"V", f"torch {value}".encode())
    if isinstance(value, functools.partial):
        return _part(b"K", _all((value.func, value.args, value.keywords), above))
    if isinstance(value, types.BuiltinMethodType) and not isinstance(
        value.__self__, types.ModuleType | type(None)
    ):
        return _part(b"M", _named(value) + _encode(value.__self__, above))
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        return _named(value)
    if isinstance(value, types.MethodType):
        return _part(b"M", _named(value.__func__) + _encode(value.__self__, above))
    fields = _state(value)
    return _part(b"O", _part(b"S", _name(type(value)).encode()) + _encode(fields, above))


def _array(value: Any, above: tuple[int, ...]) -> bytes:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject:
        return _part(b"A", _encode(array.shape, above) + _all(array.ravel().tolist(), above))
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return _part(b"A", _encode((str(little.dtype.descr), array.shape, little.tobytes()), above))


def _tensor(value: Any, above: tuple[int, ...]) -> bytes:
    import torch

    plain = value.detach()
    if plain.device.type == "meta":
        raise _refused(value, "a tensor on the meta device has no values")
    if plain.layout is not torch.strided:
        dense = plain.to_dense()
        return _part(b"X", _encode((str(plain.layout), str(plain.dtype)), above) + _tensor(dense, above))
    plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return _part(b"X", _encode((str(plain.dtype), tuple(plain.shape), raw), above))


def _named(value: Any) -> bytes:
    """A function, class or module by the name it can be imported by."""
    name = _name(value)
    if "<" in name:
        raise _refused(value, "a function made inside another one, or a lambda, has no name of its own")
    return _part(b"Q", name.encode())


def _name(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    module = value.__module__
    if str(module).startswith("luxmeter."):  # whichever file it lies in: the hash must outlive a move
        module = "luxmeter"
    return f"{module}.{value.__qualname__}"


def _state(value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    state = getattr(value, "__dict__", None)
    if not isinstance(state, dict):
        raise _refused(value, "it has no attributes to read")
    return state


def _refused(value: Any, why: str) -> UsageError:
    return UsageError(
        "no-stable-hash",
        f"A value of type {type(value).__name__!r} has no hash that another process would find again: {why}.",
        "Keep a name, a number or a file path in the parameters instead, and build the object from it.",
    )
