"""What a call was given: every argument described, none held.

A signature is plain, frozen, hashable data. Tensors become `TensorSpec`; containers keep their nesting; what no one
could rebuild becomes `Opaque`. No framework is imported here; `signature_json` writes it as JSON and reads it back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeAlias

# A described value: None, bool, int, float, complex, str, a tuple of described values, or one of the records here.
Described: TypeAlias = Any

SHORT_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "b8",
    "complex128": "c128", "complex64": "c64", "complex32": "c32",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu",
}  # fmt: skip
LONG_DTYPES = {short: long for long, short in SHORT_DTYPES.items()}
_MAX_DEPTH = 16
_MOST_ITEMS = 1 << 17  # of a call's lists and tuples: beyond, it is data and no argument (or has no end)
_MOST_BITS = 4096  # of an integer: Python refuses to print much larger ones


@dataclass(frozen=True)
class Facts:
    """What was seen in a tensor's values, cheaply, the first time. None: not looked at."""

    low: float | int | None = None
    high: float | int | None = None
    density: float | None = None  # share of values that are not zero
    sorted: bool | None = None  # along the last dimension
    sums_to_one: int | None = None  # the dimension along which values are probabilities
    values: tuple[int, ...] | None = None  # of a few integers (lengths, offsets, repeats) all of them


@dataclass(frozen=True)
class TensorSpec:
    """A tensor described. `stride` is None where it is that of a fresh, contiguous tensor."""

    shape: tuple[int, ...]  # -1 where a size was not known when it was seen (symbolic shapes)
    dtype: str
    stride: tuple[int, ...] | None = None
    offset: int = 0  # in the storage, in values; kept for shared storages only
    memory: int | None = None  # arguments of one call with the same number share their storage
    device: str = "cpu"
    layout: str = "strided"
    requires_grad: bool = False
    kind: str = ""  # "Parameter", or the name of a subclass
    facts: Facts | None = None

    @property
    def numel(self) -> int:
        """How many values it shows."""
        return math.prod([max(n, 0) for n in self.shape])

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return dtype_bytes(self.dtype)

    @property
    def span(self) -> int:
        """How many values of its storage lie between its first and its last (an expanded tensor spans few)."""
        if not self.numel:
            return 0
        stride = contiguous_stride(self.shape) if self.stride is None else self.stride
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, stride, strict=True))

    @property
    def size_bytes(self) -> int:
        """Bytes of the storage it spans."""
        return self.span * self.itemsize

    def __str__(self) -> str:
        return f"{SHORT_DTYPES.get(self.dtype, self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ListOf:
    """A list; tuples stay tuples."""

    items: tuple[Described, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(map(text, self.items)) + "]"


@dataclass(frozen=True)
class DictOf:
    """A dictionary, in its order."""

    pairs: tuple[tuple[Described, Described], ...]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in self.pairs) + "}"


@dataclass(frozen=True)
class SliceOf:
    """A slice."""

    start: Described
    stop: Described
    step: Described

    def __str__(self) -> str:
        shown = ["" if v is None else text(v) for v in (self.start, self.stop, self.step)]
        return ":".join(shown[:2] if self.step is None else shown)


@dataclass(frozen=True)
class Word:
    """A value with a name. Kinds: dtype, device, layout, memory_format, generator, ellipsis, class, function, enum."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ModuleSpec:
    """A module (or an options record of torch) described by its class, its settings, its parameters and buffers."""

    name: str  # torch.nn.Conv2d
    settings: tuple[tuple[str, Described], ...] = ()  # what its constructor would be given
    tensors: tuple[tuple[str, TensorSpec | Opaque], ...] = ()  # Opaque: without a shape (lazy, nested)
    training: bool = True
    parts: tuple[
        tuple[str, ModuleSpec], ...
    ] = ()  # all modules inside, by path: what a rebuilt one must have
    unknown: str = ""  # why it cannot be built again from this

    def __str__(self) -> str:
        inside = ", ".join(f"{k}={text(v)}" for k, v in self.settings)
        return f"{self.name.rpartition('.')[2]}({inside})"


@dataclass(frozen=True)
class Opaque:
    """Something only its type is known of: it cannot be rebuilt."""

    type: str

    def __str__(self) -> str:
        return f"<{self.type}>"


@dataclass(frozen=True)
class Signature:
    """All a call was given."""

    args: tuple[Described, ...] = ()
    kwargs: tuple[tuple[str, Described], ...] = ()
    ranges: tuple[
        tuple[float, float], ...
    ] = ()  # of each float, in order: calls that differ only in them are one
    general: bool = False  # stands for all calls beyond the number of signatures that are kept apart

    def text(self) -> str:
        """`f32[2,3], f32[3], dim=1`."""
        return str(self)

    def with_ranges(self, ranges: Iterable[tuple[float, float]]) -> Signature:
        """The same with the smallest and largest value seen of each float argument."""
        return replace(self, ranges=tuple((float(low), float(high)) for low, high in ranges))

    def tensors(self) -> Iterator[TensorSpec]:
        """All tensors, depth first, arguments before keyword arguments."""
        yield from tensors_in((self.args, tuple(v for _, v in self.kwargs)))

    def map_tensors(self, change: Callable[[TensorSpec], Described]) -> Signature:
        """The same with each tensor replaced, in the order of `tensors`."""
        return replace(
            self,
            args=tuple(map_tensors(v, change) for v in self.args),
            kwargs=tuple((k, map_tensors(v, change)) for k, v in self.kwargs),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all inputs, shared storage counted once."""
        alone, shared = 0, dict[int, int]()
        for t in self.tensors():
            if t.memory is None:
                alone += t.size_bytes
            else:
                shared[t.memory] = max(shared.get(t.memory, 0), t.offset * t.itemsize + t.size_bytes)
        return alone + sum(shared.values())

    def __str__(self) -> str:
        if self.general:
            return "(others)"
        return ", ".join([*map(text, self.args), *(f"{k}={text(v)}" for k, v in self.kwargs)])


def text(value: Described) -> str:
    """A described value as a person reads it: `f32[2,3]`, `torch.float16`, `[1, 2]`."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(text, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value) if isinstance(value, str) else str(value)


def tensors_in(value: Described) -> Iterator[TensorSpec]:
    """All tensors of a described value, depth first."""
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, ListOf):
        yield from tensors_in(value.items)
    elif isinstance(value, DictOf):
        yield from tensors_in(value.pairs)
    elif isinstance(value, SliceOf):
        yield from tensors_in((value.start, value.stop, value.step))
    elif isinstance(value, ModuleSpec):
        yield from tensors_in(tuple(tensor for _, tensor in value.tensors))


def map_tensors(value: Described, change: Callable[[TensorSpec], Described]) -> Described:
    """A described value with each of its tensors replaced."""
    if isinstance(value, TensorSpec):
        return change(value)
    if isinstance(value, tuple):
        return tuple(map_tensors(item, change) for item in value)
    if isinstance(value, ListOf):
        return ListOf(tuple(map_tensors(item, change) for item in value.items))
    if isinstance(value, DictOf):
        return DictOf(tuple((map_tensors(k, change), map_tensors(v, change)) for k, v in value.pairs))
    if isinstance(value, SliceOf):
        return SliceOf(*(map_tensors(v, change) for v in (value.start, value.stop, value.step)))
    if isinstance(value, ModuleSpec):
        return replace(value, tensors=tuple((k, map_tensors(v, change)) for k, v in value.tensors))
    return value


def dtype_bytes(dtype: str) -> int:
    """Bytes of one value of this dtype; 1 where the name does not tell (bool)."""
    digits = "".join(c if c.isdigit() else " " for c in dtype.split("_")[0]).split()
    return max(1, int(digits[0]) // 8) if digits else 1


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The stride of a fresh tensor of this shape."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


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
        with _plain_tensors():
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


def _plain_tensors() -> Any:
    """Reading a shape is no call of the user's: subclasses and modes must not see it."""
    torch = sys.modules.get("torch")
    ready = torch is not None and hasattr(torch, "_C")
    return torch._C.DisableTorchFunction() if torch is not None and ready else contextlib.nullcontext()


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
        mine = import_module("luxmeter.signature_mindspore") if "mindspore" in sys.modules else None
        self._mindspore: Any = mine.described if mine is not None else None
        self._generator: Any = getattr(torch, "Generator", ())
        self._left = _MOST_ITEMS
        self._open: set[int] = set()  # what is being described: a list may hold itself

    def one(self, value: Any, depth: int) -> Described:
        if value is None or type(value) in (bool, float, complex, str):
            return value
        if type(value) is int and value.bit_length() <= _MOST_BITS:
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

    def _all(self, values: Iterable[Any], depth: int) -> tuple[Described, ...]:
        found = []
        for value in values:
            self._left -= 1
            if self._left < 0:
                raise ValueError("too many to be arguments")
            found.append(self.one(value, depth + 1))
        return tuple(found)

    def _other(self, value: Any, depth: int) -> Described:
        if isinstance(value, self._tensor):
            return self._a_tensor(value)
        if isinstance(value, tuple):
            return self._all(value, depth)
        if isinstance(value, list):
            return ListOf(self._all(value, depth))
        if isinstance(value, Mapping):
            flat = self._all((part for pair in value.items() for part in pair), depth)
            return DictOf(tuple(zip(flat[::2], flat[1::2], strict=True)))
        if isinstance(value, slice):
            return SliceOf(*self._all((value.start, value.stop, value.step), depth))
        if value is Ellipsis:
            return Word("ellipsis", "...")
        for kind, known in self._words:
            if isinstance(value, known):
                return Word(kind, str(value).removeprefix("torch."))
        if isinstance(value, self._nn):
            spec = self._module(value) if self._module else None
            if spec is None:
                return Opaque(_type_name(value))
            self.places += [(None, 0) for _ in tensors_in(spec)]
            return spec
        if isinstance(value, self._generator):
            return Word("generator", str(value.device))
        return self._rare(value, depth)

    def _rare(self, value: Any, depth: int) -> Described:
        if self._mindspore is not None and (found := self._mindspore(value)) is not None:
            self.places += [(None, 0)] if isinstance(found, TensorSpec) else []
            return found
        if isinstance(value, enum.Enum):
            return Word("enum", utf8(f"{type(value).__module__}:{type(value).__qualname__}.{value.name}"))
        plain: Any
        for plain in (int, float, complex):  # subclasses, numpy's float64 among them
            if isinstance(value, plain) and type(value) is not plain:
                return self.one(plain(value), depth + 1)
        if isinstance(value, str):
            return str.__str__(value)
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            return self.one(value.item(), depth + 1)
        if callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
            kind = "class" if isinstance(value, type) else "function"
            return Word(kind, utf8(public_name(value)))
        if dataclasses.is_dataclass(value) and type(value).__module__.startswith("torch."):
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


def utf8(words: str) -> str:
    """A name as it can be written to a file: half a surrogate pair becomes its escape."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def _type_name(value: Any) -> str:
    kind = type(value)
    try:
        return utf8(f"{kind.__module__}.{kind.__qualname__}")
    except Exception:  # noqa: BLE001  (a metaclass may raise even here)
        return "unknown"
