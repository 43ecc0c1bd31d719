"""What of a call's arguments makes its signature, for the Python core: a hashable key."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

OPAQUE, EXCHANGE, KEY, IDENTITY, HASH, ATTRIBUTES = 0, 1, 2, 3, 4, 5
_MAX_DEPTH = 6
_MAX_NUMBERS = 32  # of a longer list of numbers only these take part, with the length
_MAX_FLOATS = 16


class KeyMaker:
    """Turns arguments into keys. Floats are left out of the key and collected apart."""

    def __init__(
        self,
        classify: Callable[[type], int | tuple[str, ...]] | None,
        key: Callable[[Any], object] | None,
        strides: bool,
    ) -> None:
        self._classify, self._key, self._strides = classify, key, strides
        self._kinds: dict[
            int, tuple[type, int | tuple[str, ...]]
        ] = {}  # by id: a class may have its own hash
        self._met: dict[int, type] = {}  # in keys by their id, and so kept

    def make(self, args: tuple[Any, ...], kwargs: dict[str, Any], floats: list[float]) -> object:
        """The key of one call."""
        positional = tuple([self._one(value, floats, 0) for value in args])
        if not kwargs:
            return positional
        return positional, tuple([(name, self._one(value, floats, 0)) for name, value in kwargs.items()])

    def _one(self, value: Any, floats: list[float], depth: int) -> object:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str or value is Ellipsis:
            return kind, value
        if kind is float:
            if len(floats) < _MAX_FLOATS:
                floats.append(value)
            return kind
        named = self._named(kind)
        # By the type, and as it really is: an object may lie about its class, its length and its items.
        if issubclass(kind, (tuple, list)):
            return self._many(value, named, floats, depth)
        if issubclass(kind, dict):
            if depth >= _MAX_DEPTH:
                return named, dict.__len__(value)
            return named, tuple(
                [(self._name_of(k), self._one(v, floats, depth + 1)) for k, v in dict.items(value)]
            )
        if kind is slice:
            if depth >= _MAX_DEPTH:
                return named
            return named, tuple(
                [self._one(v, floats, depth + 1) for v in (value.start, value.stop, value.step)]
            )
        if kind is types.FunctionType:
            return named, str.__str__(value.__qualname__)
        if issubclass(kind, type):
            return named, id(value)
        met = self._kinds.get(id(kind))
        if met is None:
            met = kind, self._classify(kind) if self._classify is not None else OPAQUE
            self._kinds[id(kind)] = met
        known = met[1]
        if isinstance(known, tuple):
            return named, tuple([self._one(getattr(value, name), floats, depth + 1) for name in known])
        if known in (EXCHANGE, KEY) and self._key is not None:
            return named, self._key(value)
        if known == IDENTITY:
            return named, id(value)
        if known == HASH:
            return named, hash(value)
        return self._plain(value, kind, named, floats)

    def _named(self, kind: type) -> object:
        """A class in a key: itself, or where its metaclass may have a say in hash and equality its id."""
        if type(kind) is type:
            return kind
        self._met[id(kind)] = kind
        return id(kind)

    def _name_of(self, key: Any) -> object:
        """A key of a dictionary, as far as it is a plain one."""
        if issubclass(type(key), str):
            return str.__str__(key)
        return int.__index__(key) if issubclass(type(key), int) else self._named(type(key))

    def _plain(self, value: Any, kind: type, named: object, floats: list[float]) -> object:
        if issubclass(kind, int):
            return named, int.__index__(value)
        if issubclass(kind, float):
            if len(floats) < _MAX_FLOATS:
                floats.append(float.__float__(value))
            return named
        if issubclass(kind, str):
            return named, str.__str__(value)
        return named

    def _many(self, values: Any, named: object, floats: list[float], depth: int) -> object:
        own: Any = tuple if issubclass(type(values), tuple) else list
        length = own.__len__(values)
        if depth >= _MAX_DEPTH:
            return named, length
        long = length > _MAX_NUMBERS
        made = [
            self._one(value, floats, depth + 1)
            for i, value in enumerate(own.__iter__(values))
            if not long or i < _MAX_NUMBERS or not issubclass(type(value), (int, float, str))
        ]
        return named, length, tuple(made)
