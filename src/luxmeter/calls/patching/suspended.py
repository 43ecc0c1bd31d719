"""The stand-ins out of the way for a while, on all threads, until the last of those who asked for it is done.

So it is while a framework imports its own modules: they must not bind the stand-ins for good.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType

from luxmeter.import_hook import ImportHook


class Suspended:
    """Who has the stand-ins out of the way. Called, it gives a with statement that keeps them so."""

    def __init__(self, take: Callable[[], None], put: Callable[[bool], None]) -> None:
        """`take()` for the first who asks, `put(imported)` after the last: whether modules came in between."""
        self._take, self._put = take, put
        # What is freed or signalled while it is held may import, which suspends them as well.
        self._lock = threading.RLock()
        self._who: list[int] = []  # threads, each as often as it asked

    def __bool__(self) -> bool:
        return bool(self._who)

    def __call__(self) -> Stretch:
        return Stretch(self)

    def begin(self) -> int:
        """One more asks; what to give to `end`."""
        who = threading.get_ident()
        with self._lock:
            self._who.append(who)
            if len(self._who) == 1:
                self._take()
        return who

    def end(self, who: int, *, imported: bool) -> None:
        """One is done."""
        with self._lock:
            if who not in self._who:
                return  # a thread of the process that this one was forked from
            self._who.remove(who)
            if not self._who:
                self._put(imported)

    def after_fork(self) -> None:
        """In a forked child, where this thread is the only one: the others will never be done."""
        self._lock = threading.RLock()
        here = threading.get_ident()
        self._who = [who for who in self._who if who == here]


class Stretch:
    """One stretch of time. No generator: one that is dropped in a forked child would end it for others."""

    __slots__ = ("_modules", "_suspended", "_who")

    def __init__(self, suspended: Suspended) -> None:
        self._suspended = suspended
        self._who = self._modules = 0

    def __enter__(self) -> None:
        self._modules = len(sys.modules)
        self._who = self._suspended.begin()

    def __exit__(self, *_: object) -> None:
        self._suspended.end(self._who, imported=len(sys.modules) != self._modules)


def suspended_imports(
    packages: Sequence[str],
    suspended: Callable[[], AbstractContextManager[None]],
    awaited: Sequence[str],
    arrived: Callable[[str], None],
    during: Callable[[str], AbstractContextManager[None]],
) -> ImportHook:
    """A hook: the modules of some packages run their import with the stand-ins out of the way.

    torch imports Dynamo at the first optimizer and Inductor at the first compilation: they take functions into tables and
    wrap some (torch.manual_seed) for good. What users import is left alone: their names are to be timed.
    `awaited` are packages that are not imported yet: `arrived(name)` is called when one is.
    """
    prefixes = tuple(f"{package}." for package in packages)

    @contextmanager
    def around(module: ModuleType) -> Iterator[None]:
        with suspended(), during("import"):
            yield
        if module.__name__ in awaited:
            arrived(module.__name__)

    return ImportHook(lambda name: name.startswith(prefixes) or name in awaited, around)
