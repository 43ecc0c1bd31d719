"""Being there when modules are imported: their own loaders load them, and something is done around it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

Around = Callable[[ModuleType], AbstractContextManager[None]]


def call_after_import(work: Callable[[], None], *packages: str) -> Callable[[], Any]:
    """Call `work` once, at the end of the first import of one of them; what is given back calls it off.

    Who asked last is called first: a trace, asked for when Python starts, does not see what others of ours do then.
    """

    @contextmanager
    def around(module: ModuleType) -> Iterator[None]:
        yield
        if module.__spec__ is not None:
            # All of it has run. The import system says so only when this returns, too late for the work.
            module.__spec__._initializing = False  # type: ignore[attr-defined]
        if hook.remove():  # otherwise another thread was quicker, or another of the packages
            work()

    hook = ImportHook(packages.__contains__, around)
    hook.put(behind=True)
    return hook.remove


class ImportHook:
    """On sys.meta_path between `put` and `remove`: the modules that it `wants` by their names run inside `around`."""

    def __init__(self, wants: Callable[[str], bool], around: Around) -> None:
        self._wants, self._around = wants, around

    def put(self, *, behind: bool = False) -> None:
        """Be asked first; or `behind` the other hooks, and so inside of what is around them."""
        others = [place for place, other in enumerate(sys.meta_path) if isinstance(other, ImportHook)]
        sys.meta_path.insert(others[-1] + 1 if behind and others else 0, self)

    def remove(self) -> bool:
        """Be asked no more; whether it was until now."""
        try:
            sys.meta_path.remove(self)
        except ValueError:
            return False
        return True

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders give, with a loader that does what is to be done; None for every other name."""
        if not self._wants(name) or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            # Those before it were asked, and may be asking this one.
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._around)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The real loader, except that it runs the module with something around it and then leaves it to the real one."""

    def __init__(self, loader: Any, around: Around) -> None:
        self._loader, self._around = loader, around

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        with self._around(module):
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
