"""Name -> thing, with near-miss suggestions, what other libraries have, and what packages offer through entry points."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Generic, TypeVar, overload

from luxmeter.errors import UsageError, near_names

T = TypeVar("T")
D = TypeVar("D")
_LISTED = 20  # names that a message lists where there are more


class Registry(Generic[T]):
    """The things of one kind, by name: first what was registered, then each of `sources`, then entry points of `group`.

    `sources`: where else things are -> a function that gives them by name, called when a name was not registered. Entry
    points are looked at on the first miss, not before.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str | None = None,
        sources: Mapping[str, Callable[[], Mapping[str, T]]] | None = None,
    ) -> None:
        self.kind = kind
        self._group = group
        self._sources = dict(sources or {})
        self._things: dict[str, T] = {}
        self._asked: dict[str, Mapping[str, T]] = {}
        self._offered: dict[str, Callable[[], T]] | None = None

    @overload
    def register(self, name: str, thing: T, *, replace: bool = False) -> T: ...
    @overload
    def register(self, name: str | None = None, *, replace: bool = False) -> Callable[[D], D]: ...
    @overload
    def register(self, name: D) -> D: ...
    def register(self, name: Any = None, thing: Any = None, *, replace: bool = False) -> Any:
        """Add `thing` as `name`; without a thing, a decorator; without a name, under the thing's own.

        A taken name is an error unless `replace`, or the thing is the same one defined anew: a cell or a config run again.
        """
        if thing is None and (name is None or isinstance(name, str)):
            return lambda decorated: self.register(name or _own_name(decorated), decorated, replace=replace)
        if thing is None:  # a decorator without brackets
            name, thing = _own_name(name), name
        taken = self._held(name)
        if taken is not None and taken is not thing and not replace and not _is_newer(thing, taken):
            raise UsageError(
                "name-taken",
                f"The {self.kind} name {name!r} is taken by {taken!r}.",
                "Choose another name, or pass replace=True to put yours in its place.",
            )
        self._things[name] = thing
        return thing

    def get(self, name: str) -> T:
        """The thing called `name`, loaded from its entry point if that is where it comes from."""
        found = self._held(name)
        if found is None and name in self._entry_points():
            found = self._things[name] = self._entry_points()[name]()
        if found is not None:
            return found
        known = self.names()
        looked = [f"{len(self._things)} registered", *self._sources]
        looked += [f"the entry points {self._group}"] if self._group else []
        more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
        raise UsageError(
            "unknown-name",
            f"There is no {self.kind} called {name!r} (looked at {', '.join(looked)}).",
            near_names(name, known) or f"Known: {', '.join(known[:_LISTED]) or 'none'}{more}.",
        )

    def names(self) -> list[str]:
        """All names, those of sources and entry points included, sorted."""
        asked = {name for where in self._sources for name in self._ask(where)}
        return sorted({*self._things, *asked, *self._entry_points()})

    def __contains__(self, name: object) -> bool:
        return self._held(name) is not None or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _held(self, name: Any) -> T | None:
        """What was registered, or is in a source."""
        if name in self._things:
            return self._things[name]
        return next((found[name] for where in self._sources if name in (found := self._ask(where))), None)

    def _ask(self, where: str) -> Mapping[str, T]:
        if where not in self._asked:
            self._asked[where] = self._sources[where]()
        return self._asked[where]

    def _entry_points(self) -> dict[str, Callable[[], T]]:
        if self._offered is None:
            found = entry_points_of(self._group) if self._group else ()
            self._offered = {point.name: point.load for point in found}
        return self._offered


def entry_points_of(group: str) -> EntryPoints:
    """What installed packages offer in a group. All of them are read once, in tens of milliseconds, until sys.path changes."""
    found: EntryPoints = _entry_points(tuple(sys.path)).select(group=group)
    return found


@functools.lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> Any:  # of another type on Python 3.11
    return entry_points()


def _is_newer(thing: Any, taken: Any) -> bool:
    """Whether the one is the other, defined anew by the same code."""
    names = [(getattr(one, "__module__", None), getattr(one, "__qualname__", None)) for one in (thing, taken)]
    return names[0] == names[1] and None not in names[0] and "<locals>" not in str(names[0][1])


def _own_name(thing: Any) -> str:
    name = getattr(thing, "__name__", None)
    if not isinstance(name, str):
        raise UsageError(
            "no-name", f"{thing!r} has no name of its own.", "Give one: register('name', thing)."
        )
    return name
