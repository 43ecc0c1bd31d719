"""Where a part sits in its model: `Net.blocks.0.conv`. Found once, from the outermost part that was called."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any


class ModulePaths:
    """Part -> path. Parts are held weakly; `parts_of(part)` lists (name, part) of it and all below."""

    def __init__(self, parts_of: Callable[[Any], Iterable[tuple[str, Any]]]) -> None:
        self._parts_of = parts_of
        self._paths: dict[int, tuple[weakref.ref[Any], str]] = {}

    def path_of(self, part: Any, class_name: str) -> str:
        """Its path; a part that none was seen around begins one, with the last word of its class's name."""
        known = self._paths.get(id(part))
        if known is not None and known[0]() is part:
            return known[1]
        root = class_name.rpartition(".")[2]
        for name, below in self._parts_of(part):
            entry = self._paths.get(id(below))
            if below is part or entry is None or entry[0]() is not below:
                self._remember(below, f"{root}.{name}" if name else root)
        return root

    def _remember(self, part: Any, path: str) -> None:
        key = id(part)
        paths = self._paths

        def gone(reference: weakref.ref[Any]) -> None:
            if key in paths and paths[key][0] is reference:
                del paths[key]

        paths[key] = (weakref.ref(part, gone), path)
