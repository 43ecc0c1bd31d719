"""Other processes of one trace: what a spawned one is given, and how a forked one knows its end.

multiprocessing sends a spawned child (also one of a fork server) what prepares it, before what it is to run: with that
travels a text that lets it join the trace. It needs nothing but Python: a child without luxmeter runs as it is. A child
says in the trace's folder that it has joined, so that those that have not can be counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from luxmeter.calls.options import TraceOptions, TraceSettings
from luxmeter.calls.writer import Spill

# What does not travel: the device is found again, the folder is the parent's.
_OWN = ("waits_for", "keep", "name")


@dataclass(frozen=True)
class Token:
    """What a spawned process needs to join a trace. Can be pickled."""

    folder: str
    rank: int
    options: dict[str, Any]
    child: str = ""  # which of the spawned ones it is given to

    @classmethod
    def of(cls, folder: Path, options: TraceOptions, rank: int) -> Token:
        """The token of a running trace."""
        chosen = {k: v for k, v in vars(options).items() if k not in _OWN}
        return cls(str(folder.resolve()), rank, chosen)

    def settings(self) -> TraceSettings:
        """The parent's options."""
        return cast(TraceSettings, dict(self.options))


_SPAWNED = "spawned"  # a file for each child that has joined, or says why not
_TEXT = """
import functools
from multiprocessing.process import BaseProcess
bootstrap = BaseProcess._bootstrap
def joining(self, *args, **kwargs):
    BaseProcess._bootstrap = bootstrap
    try:
        from luxmeter.calls.session import run_spawned
    except ImportError:
        pass
    else:
        self.run = functools.partial(run_spawned, {token!r}, self.run)
    return bootstrap(self, *args, **kwargs)
BaseProcess._bootstrap = joining
"""


class Spawned:
    """Takes the place of multiprocessing.spawn.get_preparation_data, and travels in what that gives.

    `n`: how often it did, once for each child. Where it is unpickled, the text runs.
    """

    def __init__(self, original: Callable[..., dict[str, Any]], token: Token) -> None:
        self._original, self._token = original, token
        self.n = 0

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**self._original(*args, **kwargs), "luxmeter": self}

    def __reduce__(self) -> Any:
        self.n += 1
        token = replace(self._token, child=f"{os.getpid()}-{self.n}")
        return exec, (_TEXT.format(token=json.dumps(asdict(token))), {})


def say_joined(token: Token, trouble: str = "") -> None:
    """In a spawned child: it records into the trace, or why it cannot."""
    with contextlib.suppress(OSError):
        place = Path(token.folder, _SPAWNED)
        place.mkdir(exist_ok=True)
        (place / token.child).write_text(trouble, encoding="utf-8")


def not_joined(folder: Path, started: int) -> str:
    """Of so many spawned children, how many did not join, and why where they said so. Empty: all did."""
    said = [path.read_text(encoding="utf-8") for path in sorted((folder / _SPAWNED).glob("*-*"))]
    missing = started - said.count("")
    if missing <= 0:
        return ""
    why = next(filter(None, said), "")
    return f"{missing} of {started} spawned processes could not be recorded{f': {why}' if why else ''}"


_held: dict[int, Spill] = {}  # by the thread that forks: others may fork at the same time


def hold(spill: Spill | None) -> None:
    """Before a fork: let the writer come to rest."""
    if spill is not None and spill.hold():
        _held[threading.get_ident()] = spill


def release_held() -> None:
    """After a fork, in the parent."""
    spill = _held.pop(threading.get_ident(), None)
    if spill is not None:
        spill.release()


def forget_held() -> None:
    """After a fork, in the child: the writer was the parent's."""
    _held.clear()
