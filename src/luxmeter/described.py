"""Values as a file can keep them: what JSON has no word for becomes a description that tells it from all others.

A description reads as a short text. What it is compared by is the digest of the whole value (luxmeter.identity), so two
arrays that print alike are two values, and a set that prints in another order is the same one. What nothing can be
read of is described as unknown, and is the same as nothing else.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import re
import secrets
import types
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar

from luxmeter.identity import DIGEST_BYTES, Unknown, digest_of, name_of
from luxmeter.literal import show
from luxmeter.loaded import loaded

TYPE = "$type"  # the name that the type has among the fields
_ESCAPED = re.compile(r"\$+type")
_LONGEST = 200  # characters of a description
_LARGEST_INT_BITS = 10_000  # longer ones are not written out
_SEPARATOR = " #"  # before the beginning of the digest, where the text alone does not tell


class Described(str):
    """A value that is only described: a text to read, equal to the description of the same value and nothing else."""

    type: str
    digest: str

    def __new__(cls, text: str, type: str = "", digest: str = "") -> Described:
        made = super().__new__(cls, text)
        made.type, made.digest = type, digest
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and self.digest == other.digest

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{self.type} {str(self)!r}>"

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]  # for copy and pickle
        return str(self), self.type, self.digest


class DescribedMapping(dict[str, Any]):
    """A mapping that `described` made: its keys are written out already.

    One that holds the fields of an object knows the object's type. That counts where two such are compared, not beside a
    plain dict.
    """

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self, other) and (
            not isinstance(other, DescribedMapping) or type_of(self) == type_of(other)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as a dict


K = TypeVar("K", bound=DescribedMapping)


def type_of(kept: Any) -> str:
    """The type of the object whose fields these are; empty for a mapping that was one."""
    return str(vars(kept).get(TYPE, "")) if isinstance(kept, DescribedMapping) else ""


def with_type(kept: K, name: str) -> K:
    """`kept` as the fields of an object of that type."""
    vars(kept)[TYPE] = name  # not an attribute: every name may be a parameter's
    return kept


def described(value: Any) -> Any:
    """`value` in terms of None, bool, int, float, str, list, tuple, DescribedMapping and Described. Never raises; twice is once."""
    try:
        return _described(value, ())
    except RecursionError:
        return _unknown(value)


def canonical(value: Any) -> str:
    """One text for all that is the same: numbers that are equal (`1`, `1.0`), not-a-number, mappings in any order.

    `value` is JSON with its marks, as luxmeter.files.to_json gives it.
    """
    return json.dumps(_canonical(value), sort_keys=True)


def told_apart(a: Any, b: Any, words: Callable[[Any], str] = str) -> tuple[str, str]:
    """Two values that differ in words that differ: `a -> a` would be a path and a text of that name."""
    one, two = words(a), words(b)
    if one != two:
        return one, two
    kinds = [v.type if isinstance(v, Described) else type(v).__name__ for v in (a, b)]
    if kinds[0] != kinds[1]:
        return f"{one} ({kinds[0]})", f"{two} ({kinds[1]})"
    one, two = repr(a), repr(b)
    at = next((i for i, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
    start = max(0, at - 12)  # a long text: where they part
    return tuple(f"{'...' if start else ''}{text[start : start + 60]}" for text in (one, two))  # type: ignore[return-value]


def leaf(value: Any) -> Described:
    """The description of one value."""
    try:
        digest = digest_of(value, by_code=True)
    except Unknown:
        return _unknown(value)
    except Exception:  # noqa: BLE001  a foreign object may raise whatever it likes when it is looked at
        return _unknown(value)
    return Described(_text(value, digest), name_of(type(value)), digest)


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, an attrs or pydantic object or a namespace; None for everything else."""
    if isinstance(value, type):
        return None
    kind = type(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif isinstance(getattr(kind, "__attrs_attrs__", None), tuple):
        names = [field.name for field in kind.__attrs_attrs__]
    elif isinstance(getattr(kind, "model_fields", None), Mapping) and hasattr(value, "model_dump"):
        names = [*kind.model_fields, *(getattr(value, "model_extra", None) or {})]
    elif (
        isinstance(value, types.SimpleNamespace) or kind.__name__ == "Namespace"
    ):  # argparse, and its imitators
        return dict(vars(value))
    else:
        return None
    return {name: getattr(value, name, None) for name in names}


def _described(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | Described | DescribedMapping):
        return value
    if isinstance(value, enum.Enum):
        return leaf(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _LARGEST_INT_BITS else leaf(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    numpy = loaded("numpy")
    if numpy is not None and isinstance(value, numpy.number | numpy.bool_):
        item = value.item()
        return item if isinstance(item, bool | int | float) else leaf(value)
    if id(value) in above:
        return _unknown(value)
    inner = (*above, id(value))
    if isinstance(value, Mapping):
        return DescribedMapping((_key(key, value), _described(held, inner)) for key, held in value.items())
    if isinstance(value, list):
        return [_described(held, inner) for held in value]
    if isinstance(value, tuple):
        return tuple(_described(held, inner) for held in value)
    fields = fields_of(value)
    if fields is None:
        return leaf(value)
    kept: DescribedMapping = _described(fields, inner)
    return with_type(kept, _type_name(type(value)))


def _key(key: Any, mapping: Mapping[Any, Any]) -> str:
    """A key as text. What is not text stands in brackets; a text that looks so gets quotes.

    A dot divides levels, unless that would meet a level which is there.
    """
    if not isinstance(key, str) or isinstance(key, enum.Enum):
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        held = _described(key, ())
        if held is None or isinstance(held, bool | int | float):
            return f"[{show(held)}]"
        told = leaf(key)
        return f"[{str(told).partition(_SEPARATOR)[0]}{_SEPARATOR}{told.digest[:8]}]"
    text = f"${key}" if _ESCAPED.fullmatch(key) else str(key)
    parts = text.split(".")
    meets = any(".".join(parts[:end]) in mapping for end in range(1, len(parts)))
    looks_so = text.startswith('"') or (text.startswith("[") and text.endswith("]"))
    return json.dumps(text, ensure_ascii=False) if meets or looks_so else text


def _type_name(kind: type) -> str:
    """Ours by its bare name, which a file of parameters reads again; a class that has no other name tells by its digest."""
    name = name_of(kind)
    if name.startswith("luxmeter."):
        return kind.__qualname__
    if "<locals>" not in name and kind.__module__ != "__main__":
        return name
    try:
        return f"{name}{_SEPARATOR}{digest_of(kind, by_code=True)[:8]}"
    except Unknown:
        return name


def _text(value: Any, digest: str) -> str:
    """A text for people; with the beginning of the digest where it leaves something out."""
    torch, numpy = loaded("torch"), loaded("numpy")
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.value if value.name is None else value.name}"
    if torch is not None and isinstance(
        value, torch.dtype | torch.device | torch.layout | torch.memory_format
    ):
        return str(value)
    if isinstance(value, set | frozenset):
        return _whole("{" + ", ".join(sorted(_shown(item) for item in value)) + "}", digest)
    if isinstance(value, int):
        return f"an integer of {value.bit_length()} bits{_SEPARATOR}{digest[:8]}"
    if isinstance(value, bytes | bytearray | complex | range | slice):
        return _whole(repr(value), digest)
    shape = getattr(value, "shape", None)
    is_array = (torch is not None and isinstance(value, torch.Tensor)) or (
        numpy is not None and isinstance(value, numpy.ndarray)
    )
    if is_array and shape is not None:
        return f"{type(value).__name__} {value.dtype} {list(shape)}{_SEPARATOR}{digest[:8]}"
    if isinstance(value, functools.partial):
        told = [_shown(value.func), *map(_shown, value.args)]
        told += [f"{name}={_shown(held)}" for name, held in value.keywords.items()]
        return _whole(f"partial({', '.join(told)})", digest)
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
        name = name_of(value)
        return (
            name
            if "<" not in name and getattr(value, "__module__", "") != "__main__"
            else f"{name}{_SEPARATOR}{digest[:8]}"
        )
    return f"{_as_it_says(value)}{_SEPARATOR}{digest[:8]}"


def _as_it_says(value: Any) -> str:
    """What an object says of itself, if that does not change from process to process."""
    name = name_of(type(value))
    if "__repr__" not in {name for part in type(value).__mro__[:-1] for name in vars(part)}:
        return name
    try:
        words = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001  a foreign __repr__ may raise
        return name
    return name if " at 0x" in words or "{" in words else words[: _LONGEST - 12]


def _shown(value: Any) -> str:
    held = described(value)
    return str(held) if isinstance(held, Described) else show(held)


def _whole(text: str, digest: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 12]}...{_SEPARATOR}{digest[:8]}"


def _unknown(value: Any) -> Described:
    """A description that no other is equal to: that two are the same could not be said."""
    digest = secrets.token_hex(DIGEST_BYTES)
    name = name_of(type(value))
    return Described(f"{name}, unknown{_SEPARATOR}{digest[:8]}", name, digest)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical(held) for held in value]
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(held := value.get("$value"), dict):
            return {"$value": held.get("digest")}
        return {name: _canonical(held) for name, held in value.items()}
    return value
