"""What a call was given: every argument described, none held.

A signature is plain, frozen, hashable data (`records`). Tensors become `TensorSpec`; containers keep their
nesting; what no one could rebuild becomes `Opaque`. No framework is imported here; `json` writes it as JSON
and reads it back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

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
    contiguous_stride,
    tensors_in,
    utf8,
)

_MAX_DEPTH = 16
_MOST_ITEMS = 1 << 17  # of a call's lists and tuples: beyond, it is data and no argument (or has no end)
_MOST_BITS = 4096  # of an integer: Python refuses to print much larger ones


def describe(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    facts: Callable[[Any], Facts | None] | None = None,
    module: Callable[[Any], ModuleSpec | None] | None = None,
) -> Signature:
    """Describe a call's arguments. Never raises: what cannot be read is `Opaque`.

    `facts` looks at a tensor's values, `module` describes a module; without them neither is looked into.
    """
    try:
        maker = _Maker(facts, module)
        with plain_tensors():
            found = Signature(
                tuple([maker.one(value, 0) for value in args]),
                tuple([(utf8(str(k)), maker.one(v, 0)) for k, v in kwargs.items()]) if kwargs else (),
            )
        return _with_sharing(found, maker.places)
    except Exception:  # noqa: BLE001  (near the end of the stack, say: the call goes on, and is counted)
        named = tuple((utf8(str(k)), Opaque(_type_name(v))) for k, v in (kwargs or {}).items())
        return Signature(tuple(Opaque(_type_name(value)) for value in args), named)


def _with_sharing(found: Signature, places: list[tuple[int | None, int]]) -> Signature:
    """The signature with a number for each storage that is met twice: a lone tensor's memory says nothing."""
    times = Counter(address for address, _ in places if address)
    if all(n == 1 for n in times.values()):
        return found
    numbers = {address: i for i, address in enumerate(a for a, n in times.items() if n > 1)}
    lowest = {a: min(offset for address, offset in places if address == a) for a in numbers}
    each = iter(places)

    def numbered(t: TensorSpec) -> TensorSpec:
        address, offset = next(each)
        if address not in numbers:
            return t
        return replace(t, memory=numbers[address], offset=offset - lowest[address])

    return found.map_tensors(numbered)


def plain_tensors() -> contextlib.AbstractContextManager[Any]:
    """Reading a shape is no call of the user's: subclasses and modes must not see it."""
    torch = sys.modules.get("torch")
    made: contextlib.AbstractContextManager[Any] = getattr(
        getattr(torch, "_C", None), "DisableTorchFunction", contextlib.nullcontext
    )()
    return made


class _Maker:
    def __init__(
        self, facts: Callable[[Any], Facts | None] | None, module: Callable[[Any], ModuleSpec | None] | None
    ) -> None:
        self._facts, self._module = facts, module
        self.places: list[tuple[int | None, int]] = []  # (address, offset) of each tensor, in order
        torch = sys.modules.get("torch")
        self._tensor: Any = getattr(torch, "Tensor", ())
        self._nn: Any = getattr(getattr(torch, "nn", None), "Module", ())
        words = ("dtype", "device", "layout", "memory_format")
        self._words = [(kind, getattr(torch, kind)) for kind in words if hasattr(torch, kind)]
        mine = import_module("luxmeter.signature.mindspore") if "mindspore" in sys.modules else None
        self._mindspore: Any = mine.described if mine is not None else None
        self._generator: Any = getattr(torch, "Generator", ())
        self._group: Any = getattr(getattr(torch, "distributed", None), "ProcessGroup", ())
        self._left = _MOST_ITEMS
        self._open: set[int] = set()  # what is being described: a list may hold itself

    def one(self, value: Any, depth: int) -> Argument:
        kind = type(value)  # compared by `is`: a class of the user's may have a say in `==`
        if value is None or kind is float or kind is str or kind is bool or kind is complex:
            return value
        if kind is int and value.bit_length() <= _MOST_BITS:
            return value
        before = len(self.places)
        if depth <= _MAX_DEPTH and id(value) not in self._open:
            self._open.add(id(value))
            try:
                return self._other(value, depth)
            except Exception:  # noqa: BLE001  (the user's objects: whatever they do, the call goes on)
                del self.places[before:]
            finally:
                self._open.discard(id(value))
        return Opaque(_type_name(value))

    def _all(self, values: Iterable[Any], depth: int) -> tuple[Argument, ...]:
        found = []
        for value in values:
            self._left -= 1
            if self._left < 0:
                raise ValueError("too many to be arguments")
            found.append(self.one(value, depth + 1))
        return tuple(found)

    def _other(self, value: Any, depth: int) -> Argument:
        of = type(value)  # an object may lie about its class
        if issubclass(of, self._tensor):
            return self._a_tensor(value)
        if issubclass(of, tuple):
            return self._all(value, depth)
        if issubclass(of, list):
            return ListOf(self._all(value, depth))
        if issubclass(of, Mapping):
            flat = self._all((part for pair in value.items() for part in pair), depth)
            return DictOf(tuple(zip(flat[::2], flat[1::2], strict=True)))
        if issubclass(of, slice):
            return SliceOf(*self._all((value.start, value.stop, value.step), depth))
        if value is Ellipsis:
            return Word("ellipsis", "...")
        for kind, known in self._words:
            if issubclass(of, known):
                return Word(kind, str(value).removeprefix("torch."))
        if issubclass(of, self._nn):
            spec = self._module(value) if self._module else None
            if spec is None:
                return Opaque(_type_name(value))
            self.places += [(None, 0) for _ in tensors_in(spec)]
            return spec
        if issubclass(of, self._generator):
            return Word("generator", str(value.device))
        if issubclass(of, self._group):
            ranks = sys.modules["torch.distributed"].get_process_group_ranks(value)
            return Word("group", ",".join(map(str, ranks)))
        return self._rare(value, depth)

    def _rare(self, value: Any, depth: int) -> Argument:
        of = type(value)
        if self._mindspore is not None and (found := self._mindspore(value)) is not None:
            self.places += [(None, 0)] if isinstance(found, TensorSpec) else []
            return found
        if issubclass(of, enum.Enum):
            return Word("enum", utf8(f"{of.__module__}:{of.__qualname__}.{value.name}"))
        plain: Any
        for plain in (int, float, complex):  # subclasses, numpy's float64 among them
            if issubclass(of, plain) and of is not plain:
                return self.one(plain(value), depth + 1)
        if issubclass(of, str):
            return str.__str__(value)
        if of.__module__ == "numpy" and getattr(value, "shape", None) == ():
            return self.one(value.item(), depth + 1)
        if callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
            kind = "class" if issubclass(of, type) else "function"
            return Word(kind, utf8(public_name(value)))
        if dataclasses.is_dataclass(value) and of.__module__.startswith("torch."):
            before = len(self.places)
            names = [f.name for f in dataclasses.fields(value)]
            settings = self._all((getattr(value, name) for name in names), depth)
            del self.places[before:]  # settings are no tensors of the call
            return ModuleSpec(_type_name(value), tuple(zip(names, settings, strict=True)), training=False)
        return Opaque(_type_name(value))

    def _a_tensor(self, t: Any) -> TensorSpec:
        kind = type(t).__name__
        layout = str(t.layout)[6:]
        shape = tuple([n if type(n) is int else -1 for n in t.shape])
        stride: tuple[int, ...] | None = None
        place: tuple[int | None, int] = (None, 0)
        if layout == "strided":
            with_stride = tuple([n if type(n) is int else -1 for n in t.stride()])
            stride = None if with_stride == contiguous_stride(shape) else with_stride
            # Fake and wrapped tensors have no memory, and say so with a warning.
            if kind in ("Tensor", "Parameter"):
                place = (_address(t), t.storage_offset())
        found = TensorSpec(
            shape, str(t.dtype)[6:], stride, 0, None, str(t.device), layout, bool(t.requires_grad),
            "" if kind == "Tensor" else kind, self._seen(t),
        )  # fmt: skip
        self.places.append(place)
        return found

    def _seen(self, t: Any) -> Facts | None:
        try:
            return self._facts(t) if self._facts else None
        except Exception:  # noqa: BLE001  (its values cannot be looked at: its shape still counts)
            return None


def _address(t: Any) -> int | None:
    try:
        return int(t.untyped_storage().data_ptr()) or None
    except Exception:  # noqa: BLE001  (fake, functional and wrapped tensors have none)
        return None


# Where functions that C++ defines are public.
_HOMES = {
    "torch._C._nn": ("torch.nn.functional", ""),
    "torch._C._special": ("torch.special", "special_"),
    "torch._C._linalg": ("torch.linalg", "linalg_"),
    "torch._C._fft": ("torch.fft", "fft_"),
}


def public_name(value: Any) -> str:
    """A function or class as `module:path`, where users find it: `torch:relu`, `torch.nn.functional:gelu`."""
    module, path = getattr(value, "__module__", None), value.__qualname__
    if module is None and getattr(value, "__objclass__", None) in _tensor_types():
        return f"torch:Tensor.{value.__name__}"
    if module == "torch" or module is None:
        return f"{module}:{path.removeprefix('_VariableFunctionsClass.')}"
    home, prefix = _HOMES.get(module, (module, ""))
    public = path.removeprefix(prefix)
    return f"{home}:{public}" if hasattr(sys.modules.get(home), public) else f"{module}:{path}"


def _tensor_types() -> tuple[type, ...]:
    found = getattr(sys.modules.get("torch"), "Tensor", None)
    return () if found is None else found.__mro__


def _type_name(value: Any) -> str:
    kind = type(value)
    try:
        return utf8(f"{kind.__module__}.{kind.__qualname__}")
    except Exception:  # noqa: BLE001  (a metaclass may raise even here)
        return "unknown"
