"""The records a signature is made of: plain, frozen, hashable data. Read them from `luxmeter.signature`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

# A described value: None, bool, int, float, complex, str, a tuple of described values, or one of the records here.
Argument: TypeAlias = Any

SHORT_DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "b8",
    "complex128": "c128", "complex64": "c64", "complex32": "c32",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu",
}  # fmt: skip
LONG_DTYPES = {short: long for long, short in SHORT_DTYPES.items()}
DTYPE_SPELLINGS = {
    **LONG_DTYPES, "double": "float64", "float": "float32", "half": "float16", "fp64": "float64", "fp32": "float32",
    "fp16": "float16", "long": "int64", "int": "int32", "short": "int16", "byte": "uint8",
}  # fmt: skip


def dtype_named(spelling: str) -> str:
    """torch's name of a dtype that is written as fp32, f32, float, torch.float32 ...; what is not known, as it is."""
    plain = spelling.strip().removeprefix("torch.")
    return DTYPE_SPELLINGS.get(plain, plain)


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

    items: tuple[Argument, ...]

    def __str__(self) -> str:
        return "[" + ", ".join(map(text, self.items)) + "]"


@dataclass(frozen=True)
class DictOf:
    """A dictionary, in its order."""

    pairs: tuple[tuple[Argument, Argument], ...]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in self.pairs) + "}"


@dataclass(frozen=True)
class SliceOf:
    """A slice."""

    start: Argument
    stop: Argument
    step: Argument

    def __str__(self) -> str:
        shown = ["" if v is None else text(v) for v in (self.start, self.stop, self.step)]
        return ":".join(shown[:2] if self.step is None else shown)


@dataclass(frozen=True)
class Word:
    """A value with a name. Kinds: dtype, device, layout, memory_format, generator, group (of ranks), ellipsis, class, function, enum."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ModuleSpec:
    """A module (or an options record of torch) described by its class, its settings, its parameters and buffers."""

    name: str  # torch.nn.Conv2d
    settings: tuple[tuple[str, Argument], ...] = ()  # what its constructor would be given
    tensors: tuple[tuple[str, TensorSpec | Opaque], ...] = ()  # Opaque: without a shape (lazy, nested)
    training: bool = True
    parts: tuple[
        tuple[str, ModuleSpec], ...
    ] = ()  # all modules inside, by path: what a rebuilt one must have
    unknown: str = ""  # why it cannot be built again from this
    wrapped: tuple[
        tuple[str, ModuleSpec], ...
    ] = ()  # the parametrizations of its tensors (weight_norm), by name

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

    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()
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

    def map_tensors(self, change: Callable[[TensorSpec], Argument]) -> Signature:
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


def text(value: Argument) -> str:
    """A described value as a person reads it: `f32[2,3]`, `torch.float16`, `[1, 2]`."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(text, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value) if isinstance(value, str) else str(value)


def tensors_in(value: Argument) -> Iterator[TensorSpec]:
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


def map_tensors(value: Argument, change: Callable[[TensorSpec], Argument]) -> Argument:
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


def utf8(words: str) -> str:
    """A name as it can be written to a file: half a surrogate pair becomes its escape."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")
