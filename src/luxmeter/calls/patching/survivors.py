"""Stand-ins that the program put away while a trace ran: in objects, lists, closures. At its end they get the originals back.

Tuples, sets, keys, bound methods and what is frozen keep theirs, which passes calls straight on. No code of the user's
runs here: places are read and written through the built-in types' own methods only.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CellType, FunctionType, MemberDescriptorType
from typing import Any

from luxmeter.calls.core import load
from luxmeter.calls.patching.aliases import attributes_of

# Keys that can be hashed and compared without running anybody's code.
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None), FunctionType, BuiltinFunctionType)

Restore = Callable[[Any], Any]  # a stand-in -> its original; anything else -> itself


def put_back(pairs: dict[int, tuple[Any, Any]]) -> None:
    """`pairs`: (original, stand-in) by the id of the stand-in, held by nothing else of ours than these tuples."""
    left = {
        key: pair for key, pair in pairs.items() if sys.getrefcount(pair[1]) > 2
    }  # the pair, and the argument
    if not left:
        return
    skipped = {id(pair) for pair in pairs.values()}

    def restore(value: Any) -> Any:
        found = left.get(id(value))
        return found[0] if found is not None and found[1] is value else value

    held = [
        holder
        for holder in _holders({key: pair[1] for key, pair in left.items()})
        if id(holder) not in skipped
    ]
    # A class's dictionary is not to be written to behind its back, and a tuple can only be exchanged where it is used.
    inner = {id(holder): holder for holder in held if issubclass(type(holder), (dict, tuple))}
    outer = _holders(inner) if inner else []
    classes = [holder for holder in outer if issubclass(type(holder), type)]
    of_classes = {id(part) for kind in classes for part in gc.get_referents(kind) if id(part) in inner}
    for kind in classes:
        _in_class(kind, restore)
    for holder in (*held, *outer):
        if id(holder) not in of_classes:
            _in_place(holder, restore)


def _holders(wanted: dict[int, Any]) -> list[Any]:
    core, _ = load()
    mine = sys._getframe(1).f_locals.values()
    return [
        holder
        for holder in core.holders(wanted)
        if holder is not wanted and not any(holder is m for m in mine)
    ]


def _in_place(holder: Any, restore: Restore) -> None:
    kind = type(holder)
    if issubclass(kind, dict):
        _in_dict(holder, restore)
    elif issubclass(kind, list):
        for at in range(list.__len__(holder)):
            value = list.__getitem__(holder, at)
            if restore(value) is not value:
                list.__setitem__(holder, at, restore(value))
    elif kind is CellType:
        try:
            value = holder.cell_contents
        except ValueError:  # empty by now
            return
        if restore(value) is not value:
            holder.cell_contents = restore(value)
    elif kind is FunctionType:
        defaults = holder.__defaults__
        if defaults and _changed(defaults, restore):
            holder.__defaults__ = tuple(map(restore, defaults))
    elif issubclass(kind, functools.partial):
        _in_partial(holder, restore)
    else:
        _in_instance(holder, restore)


def _in_dict(holder: Any, restore: Restore) -> None:
    for key, value in list(dict.items(holder)):
        if restore(value) is not value and type(key) in _PLAIN_KEYS:
            dict.__setitem__(holder, key, restore(value))


def _in_partial(holder: Any, restore: Restore) -> None:
    state: Any = functools.partial.__reduce__(holder)[2]
    function, args, keywords, own = state
    if restore(function) is not function or _changed(args, restore):
        restored = (restore(function), tuple(map(restore, args)), keywords, own)
        functools.partial.__setstate__(holder, restored)  # type: ignore[attr-defined]


def _in_class(kind: Any, restore: Restore) -> None:
    for name, value in list(type.__dict__["__dict__"].__get__(kind).items()):
        if restore(value) is not value:
            try:
                type.__setattr__(kind, name, restore(value))
            except TypeError:  # a class that cannot be changed
                return


def _in_instance(holder: Any, restore: Restore) -> None:
    """Attributes, in its dictionary or in slots."""
    own = attributes_of(holder)
    if own is not None:
        _in_dict(own, restore)
    for place in _slots(type(holder)):
        try:
            value = place.__get__(holder)
            if restore(value) is not value:
                place.__set__(holder, restore(value))
        except (AttributeError, TypeError):  # empty, or a member that only C may set
            continue


def _slots(kind: type) -> Iterator[Any]:
    for base in type.__dict__["__mro__"].__get__(kind):
        for place in list(type.__dict__["__dict__"].__get__(base).values()):
            if type(place) is MemberDescriptorType:
                yield place


def _changed(values: Iterable[Any], restore: Restore) -> bool:
    return any(restore(value) is not value for value in values)
