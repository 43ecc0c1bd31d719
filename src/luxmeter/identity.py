"""A value -> bytes that are the same in every process and on every machine, and differ when the value differs.

The encoding is prefix-free (every part says its kind and its length), so no two different values share one.
Numbers that are equal are the same (`1` and `1.0`, `0.0` and `-0.0`), and so is not-a-number; but `True` is not `1`,
and a list is not a tuple. The order in a mapping does not count.
"""

from __future__ import annotations

import copyreg
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
from luxmeter.loaded import loaded

DIGEST_BYTES = 16
_LARGEST_BYTES = 1 << 28  # of one array: to read more would hold a program up
_LARGEST_INT_BITS = 10_000  # Python refuses to write out much longer ones
_PARTS = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<f4", "complex128": "<f8"}
_CLASS_FORMALITIES = ("__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__annotations__",
                      "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl")  # fmt: skip


class Unknown(Exception):
    """The value offers nothing to read that another process would find again."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.type_name = type(value).__name__
        self.why = why


def digest_of(value: Any, *, by_code: bool = False) -> str:
    """32 hex digits of `value`. `by_code`: a function without a name to import counts by its code and what it closes over.

    That digest holds on this version of Python only. Raises Unknown.
    """
    return hashlib.blake2b(encode(value, by_code=by_code), digest_size=DIGEST_BYTES).hexdigest()


def encode(value: Any, *, by_code: bool = False) -> bytes:
    """The bytes of `value`; see `digest_of`."""
    try:
        return _Encoder(by_code).encode(value, ())
    except RecursionError:
        raise Unknown(value, "it nests too deeply") from None


def fingerprint(value: Any) -> str:
    """32 hex digits of `value`; an object that offers nothing stable to read is refused."""
    try:
        return digest_of(value)
    except Unknown as problem:
        raise UsageError(
            "no-stable-hash",
            f"A value of type {problem.type_name!r} has no hash that another process would find again: {problem.why}.",
            "Keep a name, a number or a file path in the parameters instead, and build the object from it.",
        ) from None


def same(a: Any, b: Any) -> bool:
    """Whether the two values are equal, arrays and tensors by content; never raises."""
    if a is b:
        return True
    try:
        return encode(a, by_code=True) == encode(b, by_code=True)
    except Unknown:
        try:
            return bool(a == b)
        except Exception:  # noqa: BLE001  a foreign __eq__ may raise or answer with an array
            return False


def name_of(value: Any) -> str:
    """A class, function or module by the name it can be imported by; ours by a name that outlives a move."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    module = str(getattr(value, "__module__", None))
    if module.startswith("luxmeter."):
        module = "luxmeter"
    return f"{module}.{getattr(value, '__qualname__', None) or value.__name__}"


def _part(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack(">Q", len(payload)) + payload


class _Encoder:
    """`above` are the ids of what holds the value, the outermost first."""

    def __init__(self, by_code: bool) -> None:
        self._by_code = by_code

    def encode(self, value: Any, above: tuple[int, ...]) -> bytes:
        if value is None:
            return _part(b"N", b"")
        if isinstance(value, enum.Enum):
            return self._enum(value, above)
        if isinstance(value, bool):
            return _part(b"B", b"1" if value else b"0")
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            return _float(value)
        if isinstance(value, complex):
            return _part(b"C", _float(value.real) + _float(value.imag))
        if isinstance(value, str):
            return _part(b"S", value.encode("utf-8", "surrogatepass"))
        if isinstance(value, bytes | bytearray):
            return _part(b"Y", bytes(value))
        if id(value) in above:
            if isinstance(
                value, type | types.FunctionType
            ):  # a method knows its class, a function may call itself
                return _part(b"U", b"%d" % above.index(id(value)))
            raise Unknown(value, "it holds itself")
        inner = (*above, id(value))
        if isinstance(value, Mapping):
            return _part(b"D", b"".join(sorted(self._all(pair, inner) for pair in value.items())))
        if isinstance(value, list):
            return _part(b"L", self._all(value, inner))
        if isinstance(value, tuple):
            return _part(b"T", self._all(value, inner))
        if isinstance(value, set | frozenset):
            return _part(b"F", b"".join(sorted(self.encode(item, inner) for item in value)))
        return self._object(value, inner)

    def _all(self, values: Iterable[Any], above: tuple[int, ...]) -> bytes:
        return b"".join(self.encode(value, above) for value in values)

    def _enum(self, value: enum.Enum, above: tuple[int, ...]) -> bytes:
        kind = type(value)
        named = _part(b"E", f"{name_of(kind)}.{value.name}".encode())
        if value.name is not None and not _needs_body(kind):
            return named
        return named + self.encode(value.value, (*above, id(value)))

    def _object(self, value: Any, above: tuple[int, ...]) -> bytes:
        if isinstance(value, PurePath):
            return _part(b"P", value.as_posix().encode("utf-8", "surrogatepass"))
        if isinstance(value, range | slice):
            return _part(b"V", repr(value).encode())
        if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
            return _part(b"W", f"{type(value).__name__} {value}".encode())
        numpy, torch = loaded("numpy"), loaded("torch")
        if numpy is not None:
            if isinstance(value, numpy.generic) and value.dtype.kind in "biufc" and value.itemsize <= 8:
                return self.encode(value.item(), above)
            if isinstance(value, numpy.complex128):
                return self.encode(complex(value), above)
            if isinstance(value, numpy.ndarray | numpy.generic):
                return self._array(value, above)
            if isinstance(value, numpy.dtype):
                return _part(b"V", f"dtype {value}".encode())
        if torch is not None:
            if isinstance(value, torch.Tensor):
                return self._tensor(value, above)
            if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
                return _part(b"V", f"torch {value}".encode())
        if isinstance(value, functools.partial):
            return _part(b"K", self._all((value.func, value.args, value.keywords), above))
        if isinstance(value, types.BuiltinMethodType) and not isinstance(
            value.__self__, types.ModuleType | type(None)
        ):
            return _part(b"M", self._named(value, above) + self.encode(value.__self__, above))
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            return self._named(value, above)
        if isinstance(value, types.MethodType):
            return _part(b"M", self._named(value.__func__, above) + self.encode(value.__self__, above))
        if isinstance(value, types.CodeType):
            return self._code(value, above)
        if (
            callable(value)
            and isinstance(getattr(value, "__qualname__", None), str)
            and _is_importable(value)
        ):
            return _part(
                b"Q", name_of(value).encode()
            )  # a function of another kind: compiled, cached, traced
        return self._by_state(value, above)

    def _array(self, value: Any, above: tuple[int, ...]) -> bytes:
        import numpy as np

        array = np.asarray(value)
        if array.dtype.hasobject:
            return _part(b"A", self.encode(array.shape, above) + self._all(array.ravel().tolist(), above))
        if array.nbytes > _LARGEST_BYTES:
            raise Unknown(value, f"it has {array.nbytes} bytes")
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        if (
            little.dtype.kind in "fc" and str(little.dtype) not in _PARTS
        ):  # long doubles: some of their bytes hold anything
            return _part(
                b"A",
                self.encode((str(little.dtype.descr), array.shape), above) + repr(little.tolist()).encode(),
            )
        raw = _plain_bits(little.tobytes(), str(little.dtype))
        return _part(b"A", self.encode((str(little.dtype.descr), array.shape, raw), above))

    def _tensor(self, value: Any, above: tuple[int, ...]) -> bytes:
        import torch

        plain = value.detach()
        if plain.device.type == "meta":
            raise Unknown(value, "a tensor on the meta device has no values")
        if plain.numel() * plain.element_size() > _LARGEST_BYTES:
            raise Unknown(value, f"it has {plain.numel() * plain.element_size()} bytes")
        if plain.layout is not torch.strided:
            try:
                dense = plain.to_dense()
            except RuntimeError as error:
                raise Unknown(value, str(error).partition("\n")[0]) from None
            about = self.encode((str(plain.layout), str(plain.dtype)), above)
            return _part(b"X", about + self._tensor(dense, above))
        if plain.is_nested or plain.is_quantized:
            raise Unknown(value, "its elements cannot be read one by one")
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
        kind = str(plain.dtype)
        raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        raw = _plain_bits(raw, kind if kind == "torch.bfloat16" else kind.removeprefix("torch."))
        return _part(b"X", self.encode((kind, tuple(plain.shape), raw), above))

    def _named(self, value: Any, above: tuple[int, ...]) -> bytes:
        """A function, class or module by its name, where that leads to it; otherwise by what it is made of."""
        name = name_of(value)
        part = _part(b"Q", name.encode())
        if not isinstance(value, types.FunctionType | type) or not _needs_body(value):
            return part
        if isinstance(value, type):
            return part + self._class_body(value, above)
        if not self._by_code and ("<" in name or not _is_importable(value)):
            raise Unknown(value, "a function made inside another one, or a lambda, has no name of its own")
        return part + self._function_body(value, above)

    def _function_body(self, value: types.FunctionType, above: tuple[int, ...]) -> bytes:
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # not set yet
                cells.append(Ellipsis)
        made = (value.__defaults__, value.__kwdefaults__, cells)
        return self._code(value.__code__, above) + self._all(made, above)

    def _code(self, code: types.CodeType, above: tuple[int, ...]) -> bytes:
        """What the code does, wherever it stands."""
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return _part(b"G", self._all((code.co_code, names, counts, code.co_consts), above))

    def _class_body(self, kind: type, above: tuple[int, ...]) -> bytes:
        inner = above if id(kind) in above else (*above, id(kind))
        members = []
        for name, member in sorted(vars(kind).items()):
            if name in _CLASS_FORMALITIES:
                continue
            for plain in _functions_in(member):
                try:
                    members.append(_part(b"S", name.encode()) + _Encoder(True).encode(plain, inner))
                except Unknown:  # a part of the class that only Python knows of, such as a slot
                    members.append(_part(b"S", name.encode()) + _part(b"S", name_of(type(plain)).encode()))
        bases = b"".join(_part(b"Q", name_of(base).encode()) for base in kind.__bases__)
        return _part(b"H", bases + b"".join(members))

    def _by_state(self, value: Any, above: tuple[int, ...]) -> bytes:
        kind = type(value)
        if kind is object:
            raise Unknown(value, "it has no attributes to read")
        about = _part(b"S", name_of(kind).encode())
        if _needs_body(kind):
            about += self._class_body(kind, above)
        return _part(b"O", about + self.encode(_state(value), above))


def _integer(value: int) -> bytes:
    if value.bit_length() > _LARGEST_INT_BITS:
        return _part(b"J", b"%x" % value)
    return _part(b"I", b"%d" % value)


def _float(value: float) -> bytes:
    if math.isfinite(value) and value.is_integer():
        return _integer(int(value))
    return _part(b"R", b"nan" if math.isnan(value) else struct.pack(">d", value))


def _plain_bits(raw: bytes, kind: str) -> bytes:
    """Of equal numbers one pattern of bits: no negative zero, one not-a-number. `kind` as NumPy or torch says it."""
    import numpy as np

    if kind == "torch.bfloat16":
        bits = np.frombuffer(raw, "<u2").copy()
        bits[bits & 0x7FFF == 0] = 0
        bits[bits & 0x7FFF > 0x7F80] = 0x7FC0
        return bits.tobytes()
    number = _PARTS.get(kind)
    if number is None:
        return raw
    array = np.frombuffer(raw, number).copy()
    array[array == 0] = 0
    array[np.isnan(array)] = np.nan
    return array.tobytes()


def _needs_body(value: Any) -> bool:
    """Whether a name alone does not tell: it leads elsewhere, or to what a notebook may define anew."""
    if isinstance(value, type) and _is_from_c(value):
        return False
    return value.__module__ == "__main__" or not _is_importable(value)


def _is_from_c(kind: type) -> bool:
    return not kind.__flags__ & (1 << 9)  # Py_TPFLAGS_HEAPTYPE


def _is_importable(value: Any) -> bool:
    """Whether its module has it under its name, or something that stands in for it there: a decorator's, a trace's."""
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value or (callable(found) and not isinstance(found, types.FunctionType | type))


def _functions_in(member: Any) -> Iterable[Any]:
    if isinstance(member, property):
        return [part for part in (member.fget, member.fset, member.fdel) if part is not None]
    if isinstance(member, staticmethod | classmethod):
        return [member.__func__]
    if isinstance(member, functools.cached_property):
        return [member.func]
    return [member]


def _state(value: Any) -> Any:
    """What an object is made of: its fields, its attributes, or what `copy` would make it anew from."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    kind = type(value)
    state = getattr(value, "__dict__", None)
    own_way = any("__reduce__" in vars(part) or "__reduce_ex__" in vars(part) for part in kind.__mro__[:-1])
    if isinstance(state, dict) and not own_way and not any(_keeps_elsewhere(part) for part in kind.__mro__):
        return state
    try:
        way = copyreg.dispatch_table.get(kind)
        made = way(value) if way is not None else value.__reduce_ex__(2)
    except Exception as error:  # noqa: BLE001  a foreign object may refuse in any way
        raise Unknown(value, f"it has no attributes to read ({error})") from None
    if isinstance(made, str):
        return made
    listed, mapped = (tuple(part) if part is not None else () for part in (*made, None, None, None)[3:5])
    return (*made[:3], listed, mapped)


def _keeps_elsewhere(kind: type) -> bool:
    """Whether objects of this class keep something outside of `__dict__`: in slots, or in C."""
    if "__slots__" in vars(kind):
        slots = vars(kind)["__slots__"]
        return any(
            name not in ("__dict__", "__weakref__") for name in ([slots] if isinstance(slots, str) else slots)
        )
    return _is_from_c(kind) and kind is not object
