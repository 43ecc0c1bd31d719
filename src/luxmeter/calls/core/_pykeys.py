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
        self._kinds: dict[type, int | tuple[str, ...]] = {}

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
        # By the type, and as it really is: an object may lie about its class, its length and its items.
        if issubclass(kind, (tuple, list)):
            return self._many(value, floats, depth)
        if issubclass(kind, dict):
            if depth >= _MAX_DEPTH:
                return kind, dict.__len__(value)
            return kind, tuple(
                [
                    (k if isinstance(k, (str, int)) else type(k), self._one(v, floats, depth + 1))
                    for k, v in dict.items(value)
                ]
            )
        if kind is slice:
            return kind, tuple([self._one(v, floats, depth) for v in (value.start, value.stop, value.step)])
        if kind is types.FunctionType:
            return kind, value.__qualname__
        if issubclass(kind, type):
            return kind, id(value)
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = self._classify(kind) if self._classify is not None else OPAQUE
        if isinstance(known, tuple):
            return kind, tuple([self._one(getattr(value, name), floats, depth + 1) for name in known])
        if known in (EXCHANGE, KEY) and self._key is not None:
            return kind, self._key(value)
        if known == IDENTITY:
            return kind, id(value)
        if known == HASH:
            return kind, hash(value)
        return self._plain(value, kind, floats)

    def _plain(self, value: Any, kind: type, floats: list[float]) -> object:
        if issubclass(kind, int):
            return kind, int.__index__(value)
        if issubclass(kind, float):
            if len(floats) < _MAX_FLOATS:
                floats.append(float.__float__(value))
            return kind
        if issubclass(kind, str):
            return kind, str.__str__(value)
        return kind

    def _many(self, values: Any, floats: list[float], depth: int) -> object:
        kind = type(values)
        own: Any = tuple if issubclass(kind, tuple) else list
        length = own.__len__(values)
        if depth >= _MAX_DEPTH:
            return kind, length
        long = length > _MAX_NUMBERS
        made = [
            self._one(value, floats, depth + 1)
            for i, value in enumerate(own.__iter__(values))
            if not long or i < _MAX_NUMBERS or not isinstance(value, (int, float, str))
        ]
        return kind, length, tuple(made)
