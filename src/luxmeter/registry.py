"""Name -> thing, with near-miss suggestions and what other packages offer through entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar, overload

from luxmeter.errors import UsageError, suggestion

T = TypeVar("T")


class Registry(Generic[T]):
    """The things of one kind, by name. Entry points of `group` are looked at on the first miss, not before."""

    def __init__(self, kind: str, *, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._things: dict[str, T] = {}
        self._offered: dict[str, Callable[[], T]] | None = None

    @overload
    def register(self, name: str, thing: T, *, replace: bool = False) -> T: ...
    @overload
    def register(self, name: str, thing: None = None, *, replace: bool = False) -> Callable[[T], T]: ...
    def register(self, name: str, thing: T | None = None, *, replace: bool = False) -> T | Callable[[T], T]:
        """Add `thing` as `name`; without a thing, a decorator. A taken name is an error unless `replace`."""
        if thing is None:
            return lambda decorated: self.register(name, decorated, replace=replace)
        if name in self._things and self._things[name] is not thing and not replace:
            raise UsageError(
                "name-taken",
                f"The {self.kind} name {name!r} is taken by {self._things[name]!r}.",
                "Choose another name, or pass replace=True to put yours in its place.",
            )
        self._things[name] = thing
        return thing

    def get(self, name: str) -> T:
        """The thing called `name`, loaded from its entry point if that is where it comes from."""
        if name not in self._things and name in self._entry_points():
            self._things[name] = self._entry_points()[name]()
        if name in self._things:
            return self._things[name]
        near = suggestion(name, self.names())
        raise UsageError(
            "unknown-name",
            f"There is no {self.kind} called {name!r}.",
            near or f"Known: {', '.join(self.names()) or 'none'}.",
        )

    def names(self) -> list[str]:
        """All names, entry points included, sorted."""
        return sorted({*self._things, *self._entry_points()})

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _entry_points(self) -> dict[str, Callable[[], T]]:
        if self._offered is None:
            found = entry_points(group=self._group) if self._group else ()
            self._offered = {point.name: point.load for point in found}
        return self._offered
