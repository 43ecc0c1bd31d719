"""Do something when a package has just been imported for the first time."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def call_after_import(package: str, work: Callable[[], None]) -> Callable[[], None]:
    """Call `work` once, at the end of the first import of `package`; what is given back calls it off.

    Who asked last is called first: a trace, asked for when Python starts, does not see what others of ours do then.
    """
    finder = _Finder(package, work)
    before = [place for place, other in enumerate(sys.meta_path) if isinstance(other, _Finder)]
    sys.meta_path.insert(before[-1] + 1 if before else 0, finder)
    return finder.cancel


class _Finder:
    """On sys.meta_path until the package comes."""

    def __init__(self, package: str, work: Callable[[], None]) -> None:
        self._package, self._work = package, work

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the other finders, with a loader that calls back; None for every other name."""
        if name != self._package:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ():
            # Those before it were asked, and may be asking this one.
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._done)  # type: ignore[assignment]
                return spec
        return None

    def cancel(self) -> None:
        """Wait no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _done(self) -> None:
        if self in sys.meta_path:  # otherwise another thread was quicker
            sys.meta_path.remove(self)
            self._work()


class _Loader:
    """The package's own loader, and then the work."""

    def __init__(self, loader: Any, done: Callable[[], None]) -> None:
        self._loader, self._done = loader, done

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            # All of it has run. The import system says so only when this returns, too late for the work.
            module.__spec__._initializing = False  # type: ignore[attr-defined]
        self._done()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
