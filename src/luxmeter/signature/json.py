"""Signatures as JSON values, and back, without loss.

Form, version 1: None, booleans, integers, finite floats, strings and lists are themselves; everything else is an
object with one key that says what it is: {"tuple": [...]}, {"tensor": {...}}, {"dtype": "float16"}, {"float": "inf"}.
A tensor leaves out what is as usual (contiguous, on the CPU, alone in its memory). A module's tensors are the inner
objects of {"tensor": ...}, or {"opaque": ...} where one has no shape. Nothing is ever evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.signature.records import (
    Argument,
    DictOf,
    Facts,
    ListOf,
    ModuleSpec,
    Opaque,
    Signature,
    SliceOf,
    TensorSpec,
    Word,
    utf8,
)

VERSION = 1


def to_json(value: Argument) -> Any:
    """A described value, or a whole signature, as what `json.dumps` takes."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):  # half a surrogate pair (a file's name, say) has no UTF-8
        return value if utf8(value) == value else {"utf16": value.encode("utf-16-be", "surrogatepass").hex()}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, ListOf):
        return [to_json(item) for item in value.items]
    if isinstance(value, tuple):
        return {"tuple": [to_json(item) for item in value]}
    if isinstance(value, TensorSpec):
        return {"tensor": _tensor(value)}
    if isinstance(value, Word):
        return {"word": [value.kind, value.name]}
    if isinstance(value, Signature):
        named = {"kwargs": {k: to_json(v) for k, v in value.kwargs}} if value.kwargs else {}
        spread = (
            {"ranges": [[to_json(low), to_json(high)] for low, high in value.ranges]} if value.ranges else {}
        )
        rest = {"general": True} if value.general else {}
        return {"args": [to_json(v) for v in value.args], **named, **spread, **rest}
    if isinstance(value, DictOf):
        return {"dict": [[to_json(k), to_json(v)] for k, v in value.pairs]}
    if isinstance(value, SliceOf):
        return {"slice": [to_json(v) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, ModuleSpec):
        return {"module": _module(value)}
    # What is no described value at all came from a describer that failed: unknown, like what it stands for.
    return {"opaque": value.type if isinstance(value, Opaque) else type(value).__name__}


def value_from_json(data: Any) -> Argument:
    """What `to_json` made of a described value, read back."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return ListOf(tuple(value_from_json(item) for item in data))
    if isinstance(data, dict) and len(data) == 1:
        ((kind, inside),) = data.items()
        if kind in _READERS:
            try:
                return _READERS[kind](inside)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise _unreadable(data) from error
    raise _unreadable(data)


_DEEPEST = 100  # a call is captured 16 deep, which are three times as many of JSON's; deeper is not followed when it is shown


def signature_from_json(data: Any) -> Signature:
    """What `to_json` made of a signature, read back."""
    if not isinstance(data, dict) or not isinstance(data.get("args"), list) or _is_deep(data):
        raise _unreadable(data)
    named, spread, general = data.get("kwargs", {}), data.get("ranges", []), data.get("general", False)
    if not isinstance(named, dict) or not data.keys() <= {"args", "kwargs", "ranges", "general"}:
        raise _unreadable(data)
    try:
        ranges = tuple((float(value_from_json(low)), float(value_from_json(high))) for low, high in spread)
    except (TypeError, ValueError) as error:
        raise _unreadable(data) from error
    return Signature(
        tuple(value_from_json(v) for v in data["args"]),
        tuple((k, value_from_json(v)) for k, v in named.items()),
        ranges,
        bool(general),
    )


def _is_deep(value: Any, left: int = _DEEPEST) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(left <= 0 or _is_deep(each, left - 1) for each in inner)


_USUAL = {field.name: field.default for field in fields(TensorSpec)}


def _tensor(t: TensorSpec) -> dict[str, Any]:
    said: dict[str, Any] = {"shape": list(t.shape), "dtype": t.dtype}
    for name in ("offset", "memory", "device", "layout", "requires_grad", "kind"):
        if (value := getattr(t, name)) != _USUAL[name]:
            said[name] = value
    if t.stride is not None:
        said["stride"] = list(t.stride)
    if t.facts is not None:
        seen = ((field.name, getattr(t.facts, field.name)) for field in fields(Facts))
        said["facts"] = {name: to_json(value) for name, value in seen if value is not None}
    return said


def _read_tensor(said: dict[str, Any]) -> TensorSpec:
    said = dict(said)
    shape, dtype = tuple(_whole(n) for n in said.pop("shape")), said.pop("dtype")
    stride = said.pop("stride", None)
    facts = said.pop("facts", None)
    if not isinstance(dtype, str) or not said.keys() <= _USUAL.keys():
        raise ValueError(f"not a tensor: {said}")
    if stride is not None:
        stride = tuple(_whole(n) for n in stride)
        if len(stride) != len(shape):
            raise ValueError("a stride for each dimension")
    seen = None if facts is None else Facts(**{k: value_from_json(v) for k, v in facts.items()})
    return TensorSpec(shape=shape, dtype=dtype, stride=stride, facts=seen, **said)


def _module(m: ModuleSpec) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": m.name,
        "settings": {k: to_json(v) for k, v in m.settings},
        "tensors": {k: _tensor(v) if isinstance(v, TensorSpec) else to_json(v) for k, v in m.tensors},
        "training": m.training,
    }
    if m.parts:
        said["parts"] = {path: _module(part) for path, part in m.parts}
    if m.unknown:
        said["unknown"] = m.unknown
    if m.wrapped:
        said["wrapped"] = [[name, _module(inner)] for name, inner in m.wrapped]
    return said


def _read_module(said: dict[str, Any]) -> ModuleSpec:
    return ModuleSpec(
        name=str(said["name"]),
        settings=tuple((k, value_from_json(v)) for k, v in said["settings"].items()),
        tensors=tuple((k, _read_part(v)) for k, v in said["tensors"].items()),
        training=bool(said["training"]),
        parts=tuple((path, _read_module(part)) for path, part in said.get("parts", {}).items()),
        unknown=str(said.get("unknown", "")),
        wrapped=tuple((str(name), _read_module(inner)) for name, inner in said.get("wrapped", [])),
    )


def _read_part(said: dict[str, Any]) -> TensorSpec | Opaque:
    return Opaque(str(said["opaque"])) if "opaque" in said else _read_tensor(said)


def _whole(n: Any) -> int:
    if type(n) is not int or n < -1:
        raise ValueError(f"not a size: {n!r}")
    return n


_READERS: dict[str, Callable[[Any], Argument]] = {
    "tuple": lambda inside: tuple(value_from_json(item) for item in inside),
    "tensor": _read_tensor,
    "word": lambda inside: Word(str(inside[0]), str(inside[1])),
    "dict": lambda inside: DictOf(tuple((value_from_json(k), value_from_json(v)) for k, v in inside)),
    "slice": lambda inside: SliceOf(*(value_from_json(v) for v in inside)),
    "float": float,
    "complex": lambda inside: complex(float(inside[0]), float(inside[1])),
    "module": _read_module,
    "opaque": lambda inside: Opaque(str(inside)),
    "utf16": lambda inside: bytes.fromhex(inside).decode("utf-16-be", "surrogatepass"),
}


def _unreadable(data: Any) -> UsageError:
    shown = repr(data)
    return UsageError(
        "bad-signature",
        f"This describes no argument of a call: {shown[:200]}{'...' if len(shown) > 200 else ''}",
        "The file is damaged, or was written by another program or a newer version.",
    )
