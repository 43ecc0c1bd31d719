"""Named parts of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Section:
    """A named part of the program: a context manager that can be used again, and inside itself."""

    def __init__(self, name: str, enter: Callable[[str], Any], leave: Callable[[Any], None]) -> None:
        self.name = name
        self._enter, self._leave = enter, leave
        self._open: list[Any] = []

    def __enter__(self) -> Section:
        self._open.append(self._enter(self.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(self._open.pop())
