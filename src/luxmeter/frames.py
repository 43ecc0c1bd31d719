"""Whose frames a traceback has: the user's own, ours, or those of installed packages."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import luxmeter

OURS = str(Path(luxmeter.__file__).parent)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def users_frames(given: TracebackType | None, own: str) -> TracebackType | None:
    """The traceback without the frames of Luxmeter and of installed packages, `own` excepted; None if nothing would be left."""
    chain: TracebackType | None = None
    for one in reversed(list(frames(given))):
        file = one.tb_frame.f_code.co_filename
        if not _is_foreign(file) or (own and file.startswith(own)):
            chain = TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain


def frames(given: TracebackType | None) -> Iterator[TracebackType]:
    """From the outermost to where it was raised."""
    while given is not None:
        yield given
        given = given.tb_next


def with_causes(error: BaseException) -> list[BaseException]:
    """An error, and those that are shown before it."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and not any(one is known for known in found):
            found.append(one)
            waiting += [one.__cause__, one.__context__]
    return found


def _is_foreign(file: str) -> bool:
    return file.startswith((OURS, "<frozen")) or any(file.startswith(folder) for folder in _INSTALLED)
