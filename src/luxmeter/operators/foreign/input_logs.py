"""PyTorch's operator-input logs, read by a parser that knows their few words and evaluates nothing.

Operator: aten.add.Tensor
cnt: 3, ((T([2, 3], f32), T([2, 3], f32, stride=(1, 2))), {'alpha': 2})
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from luxmeter.operators.case import Case
from luxmeter.signature import (
    LONG_DTYPES,
    Argument,
    DictOf,
    ListOf,
    Signature,
    TensorSpec,
    Word,
    contiguous_stride,
)

OPERATOR = re.compile(r"Operator:\s*([\w.:]+)\s*$")
_COUNT = re.compile(r"cnt:\s*(\d+),\s*")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)j?)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>[-+]?[A-Za-z_][\w.]*)
    |(?P<mark>[\[\](){},:=]))""",
    re.VERBOSE,
)
# Some logs hold a device as the text of its repr.
_DEVICE = re.compile(r"(?:torch\.)?device\('(\w+(?::\d+)?)'\)")
_CONSTANTS = {
    "None": None, "True": True, "False": False,
    "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "-nan": float("nan"),
}  # fmt: skip
_LAYOUTS = {
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
    "_mkldnn",
}
_FORMATS = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
_DEEPEST = 32


class NotReadable(ValueError):
    """This text is not what the format says."""


def cases_in(lines: Iterator[str], *, source: str) -> Iterator[tuple[int, Case | NotReadable]]:
    """(line number, case or why it is none) for each input line of a log."""
    op: str | None = None
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line:
            continue
        if found := OPERATOR.match(line):
            op = found.group(1)
            continue
        if line.startswith("Operator:"):  # what follows is not the operator's before
            op = None
        try:
            yield number, _case(op, line, source)
        except NotReadable as problem:
            yield number, problem


def _case(op: str | None, line: str, source: str) -> Case:
    counted = _COUNT.match(line)
    if line.startswith("Operator:"):
        raise NotReadable(f"it names no operator: {line[:60]!r}")
    if counted is None:
        raise NotReadable(f"it does not begin with 'cnt: N,': {line[:60]!r}")
    if op is None:
        raise NotReadable("no 'Operator:' line stands before it")
    return Case(op, signature_in(line[counted.end() :]), int(counted.group(1)), source=source)


def signature_in(text: str) -> Signature:
    """The signature written as `((args), {kwargs})`."""
    reader = _Reader(text)
    value = reader.value(0)
    reader.end()
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not isinstance(value[0], tuple)
        or not isinstance(value[1], DictOf)
    ):
        raise NotReadable("it is not ((arguments), {keyword arguments})")
    if not all(isinstance(k, str) for k, _ in value[1].pairs):
        raise NotReadable("a keyword is no string")
    return Signature(value[0], value[1].pairs)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def value(self, depth: int) -> Argument:
        if depth > _DEEPEST:
            raise NotReadable("it is nested too deep")
        kind, word = self._next()
        if kind == "number":
            return _number(word)
        if kind == "string":
            inside = re.sub(r"\\(.)", r"\1", word[1:-1])
            device = _DEVICE.fullmatch(inside)
            return Word("device", device.group(1)) if device else inside
        if kind == "name":
            return self._named(word, depth)
        if word == "(":
            items, comma = self._items(")", depth)
            return tuple(items) if comma or len(items) != 1 else items[0]
        if word == "[":
            return ListOf(tuple(self._items("]", depth)[0]))
        if word == "{":
            return self._dict(depth)
        raise NotReadable(f"{word!r} at {self._at} begins no value")

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise NotReadable(f"something follows its end: {self._text[self._at :][:40]!r}")

    def _named(self, word: str, depth: int) -> Argument:
        if self._peek() == "(":
            self._next()
            args, named = self._call(depth)
            if word in ("T", "ST"):
                return _tensor(word, args, named)
            if word in ("torch.device", "device") and (args or "type" in named):
                return Word("device", str(named.get("type", args[0] if args else "")))
            if word in ("torch.Size", "Size") and len(args) == 1 and isinstance(args[0], ListOf):
                return args[0].items
            raise NotReadable(f"{word}(...) is nothing that such logs hold")
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        short = word.removeprefix("torch.")
        if short in LONG_DTYPES or short in LONG_DTYPES.values():
            return Word("dtype", LONG_DTYPES.get(short, short))
        if short in _LAYOUTS:
            return Word("layout", short)
        if short in _FORMATS:
            return Word("memory_format", short)
        raise NotReadable(f"unknown word {word!r}")

    def _call(self, depth: int) -> tuple[list[Argument], dict[str, Argument]]:
        args: list[Argument] = []
        named: dict[str, Argument] = {}
        while self._peek() != ")":
            before = self._at
            kind, word = self._next()
            if kind == "name" and self._peek() == "=":
                self._next()
                named[word] = self.value(depth + 1)
            else:
                self._at = before
                args.append(self.value(depth + 1))
            if self._peek() == ",":
                self._next()
            elif self._peek() != ")":
                raise NotReadable(f"a comma or ')' is missing at {self._at}")
        self._next()
        return args, named

    def _items(self, closing: str, depth: int) -> tuple[list[Argument], bool]:
        items: list[Argument] = []
        comma = False
        while self._peek() != closing:
            items.append(self.value(depth + 1))
            if comma := self._peek() == ",":
                self._next()
            elif self._peek() != closing:
                raise NotReadable(f"a comma or {closing!r} is missing at {self._at}")
        self._next()
        return items, comma

    def _dict(self, depth: int) -> DictOf:
        pairs = []
        while self._peek() != "}":
            key = self.value(depth + 1)
            if self._next()[1] != ":":
                raise NotReadable(f"a colon is missing at {self._at}")
            pairs.append((key, self.value(depth + 1)))
            if self._peek() == ",":
                self._next()
        self._next()
        return DictOf(tuple(pairs))

    def _peek(self) -> str:
        before = self._at
        kind, word = self._next()
        self._at = before
        return word if kind == "mark" else ""

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            rest = self._text[self._at :].strip()
            raise NotReadable(f"{rest[:20]!r} at {self._at} is no word" if rest else "it ends too early")
        self._at = found.end()
        return found.lastgroup, found.group(found.lastgroup)


def _number(word: str) -> Argument:
    if word.endswith("j"):
        return complex(word)
    return int(word) if re.fullmatch(r"[-+]?\d+", word) else float(word)


def _tensor(word: str, args: list[Argument], named: dict[str, Argument]) -> TensorSpec:
    if (
        len(args) < 2
        or not isinstance(args[0], ListOf)
        or not isinstance(args[1], Word)
        or args[1].kind != "dtype"
    ):
        raise NotReadable(f"{word}(...) needs a list of sizes and a dtype")
    shape = _sizes(args[0].items)
    stride = named.pop("stride", None)
    device = named.pop("device", "cpu")
    layout = "strided"
    if word == "ST":  # T for sparse tensors: layout, is_coalesced, number of entries
        found = next(
            (a for a in args[2:] if isinstance(a, Word) and a.kind == "layout"), Word("layout", "sparse_coo")
        )
        layout = found.name
    if stride is not None:
        stride = _sizes(stride.items if isinstance(stride, ListOf) else stride)
        if len(stride) != len(shape):
            raise NotReadable(f"{len(stride)} strides for {len(shape)} sizes")
        stride = None if stride == contiguous_stride(shape) else stride
    return TensorSpec(shape, args[1].name, stride, device=str(device), layout=layout)


def _sizes(items: Any) -> tuple[int, ...]:
    if not isinstance(items, tuple) or not all(type(n) is int and n >= 0 for n in items):
        raise NotReadable(f"{items!r} are no sizes")
    return items
