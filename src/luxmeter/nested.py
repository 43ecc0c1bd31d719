"""Nested values: one walk for all who look for tensors in them, and one that counts what aliases stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_VALUES = 1_000_000  # a few lines of YAML aliases can stand for billions of values
_DEEPEST_OBJECT = 6  # objects lead on to others, and may lead anywhere


def tensors_of(value: Any, *, in_objects: bool = False) -> list[Any]:
    """The tensors of torch in nested tuples, lists, sets and dicts, in order; on request in plain objects' attributes, too."""
    from torch import Tensor

    return found_in(value, lambda one: isinstance(one, Tensor), in_objects=in_objects)


def found_in(value: Any, is_wanted: Callable[[Any], bool], *, in_objects: bool = False) -> list[Any]:
    """The same for whatever is wanted: what is inside of it is not looked at."""
    found: list[Any] = []
    _walk(value, is_wanted, in_objects, set(), found)
    return found


def _walk(  # no function inside the other: it would hold on to itself, and so to the tensors
    value: Any, is_wanted: Callable[[Any], bool], in_objects: bool, above: set[int], found: list[Any]
) -> None:
    if is_wanted(value):
        found.append(value)
        return
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, list | tuple | set):
        inside = value
    elif in_objects and hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        inside = vars(value).values()
    if id(value) in above or (in_objects and len(above) == _DEEPEST_OBJECT):
        return  # a value may contain itself
    above.add(id(value))
    for item in inside:
        _walk(item, is_wanted, in_objects, above, found)
    above.discard(id(value))


def check_written_out(value: Any) -> None:
    """ValueError if there are too many values when every alias is written out; RecursionError if one holds itself."""
    _count(value, 0)


def _count(value: Any, seen: int) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    seen += 1
    if seen > MOST_VALUES:
        raise ValueError(f"it stands for more than {MOST_VALUES} values")
    for item in inner:
        seen = _count(item, seen)
    return seen
