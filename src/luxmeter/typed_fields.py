"""Records read from files hold what their fields say: a value of another type is refused before anybody relies on it."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def checked_fields(record: T) -> T:
    """The record; ValueError if a field holds a value of another type."""
    kind_of_record: Any = type(record)
    for name, kind in _kinds(kind_of_record).items():
        value = getattr(record, name)
        if not _fits(value, kind):
            shown = repr(value)
            raise ValueError(f"its {name} is {shown[:80]}{'...' if len(shown) > 80 else ''}")
    return record


@functools.cache
def _kinds(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is tuple and isinstance(value, tuple):
        if len(parts) == 2 and parts[1] is Ellipsis:
            return all(_fits(one, parts[0]) for one in value)
        return len(parts) == len(value) and all(map(_fits, value, parts))
    plain = origin or kind
    if plain in (list, set, frozenset) and len(parts) == 1 and isinstance(value, plain):
        return all(_fits(one, parts[0]) for one in value)
    if plain is float and isinstance(value, float):
        return True
    if plain in (int, float):  # an integer beyond 64 bits is no float of ours, and may be beyond every float
        return type(value) is int and -(2**63) <= value < 2**63
    if (
        isinstance(plain, type)
        and issubclass(plain, Mapping)
        and isinstance(value, Mapping)
        and len(parts) == 2
    ):
        return all(_fits(key, parts[0]) and _fits(held, parts[1]) for key, held in value.items())
    return not isinstance(plain, type) or isinstance(value, plain)
