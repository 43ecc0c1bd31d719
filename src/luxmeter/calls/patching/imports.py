"""Modules that a framework imports while its names are replaced must not bind the stand-ins for good."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any


def after(finder: Any) -> list[Any]:
    """The finders that come after this one. Those before it were asked, and may be asking it."""
    finders = list(sys.meta_path)
    return finders[next((i + 1 for i, other in enumerate(finders) if other is finder), 0) :]


class SuspendedImports:
    """On sys.meta_path: the modules of some packages run their import with the stand-ins out of the way.

    torch imports Dynamo at the first optimizer and Inductor at the first compilation: they take functions into tables and
    wrap some (torch.manual_seed) for good. What users import is left alone: their names are to be timed.
    `awaited` are packages that are not imported yet: `arrived(name)` is called when one is.
    """

    def __init__(
        self,
        packages: Sequence[str],
        aside: Callable[[], AbstractContextManager[None]],
        awaited: Sequence[str] = (),
        arrived: Callable[[str], None] | None = None,
    ) -> None:
        self._prefixes = tuple(f"{package}." for package in packages)
        self._aside = aside
        self._awaited = tuple(awaited)
        self._arrived = arrived

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders give, with a loader that steps aside."""
        if not name.startswith(self._prefixes) and name not in self._awaited:
            return None
        for finder in after(self):
            if not hasattr(finder, "find_spec"):
                continue
            spec: importlib.machinery.ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    arrived = self._arrived if name in self._awaited else None
                    spec.loader = _Loader(spec.loader, self._aside, arrived)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The real loader, except that it runs the module aside and then hands over to the real one for good."""

    def __init__(
        self,
        loader: Any,
        aside: Callable[[], AbstractContextManager[None]],
        after: Callable[[str], None] | None = None,
    ) -> None:
        self._loader = loader
        self._aside = aside
        self._after = after

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        with self._aside():
            self._loader.exec_module(module)
        if self._after is not None:
            self._after(module.__name__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
