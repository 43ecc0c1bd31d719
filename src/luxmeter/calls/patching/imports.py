"""Modules that a framework imports while its names are replaced must not bind the stand-ins for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType

from luxmeter.import_hook import ImportHook


def suspended_imports(
    packages: Sequence[str],
    suspended: Callable[[], AbstractContextManager[None]],
    awaited: Sequence[str],
    arrived: Callable[[str], None],
) -> ImportHook:
    """A hook: the modules of some packages run their import with the stand-ins out of the way.

    torch imports Dynamo at the first optimizer and Inductor at the first compilation: they take functions into tables and
    wrap some (torch.manual_seed) for good. What users import is left alone: their names are to be timed.
    `awaited` are packages that are not imported yet: `arrived(name)` is called when one is.
    """
    prefixes = tuple(f"{package}." for package in packages)

    @contextmanager
    def around(module: ModuleType) -> Iterator[None]:
        with suspended():
            yield
        if module.__name__ in awaited:
            arrived(module.__name__)

    return ImportHook(lambda name: name.startswith(prefixes) or name in awaited, around)
