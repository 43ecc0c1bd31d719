"""Other processes of one trace: what a spawned one is given, and how a forked one knows its end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from luxmeter.calls.options import TraceOptions, TraceSettings
from luxmeter.calls.spill import Spill

# What does not travel: the device is found again, the folder is the parent's.
_OWN = ("device", "keep", "name")


@dataclass(frozen=True)
class Token:
    """What a spawned process needs to join a trace. Can be pickled."""

    folder: str
    rank: int
    options: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, options: TraceOptions, rank: int) -> Token:
        """The token of a running trace."""
        chosen = {k: v for k, v in vars(options).items() if k not in _OWN}
        return cls(str(folder.resolve()), rank, chosen)

    def settings(self) -> TraceSettings:
        """The parent's options."""
        return cast(TraceSettings, dict(self.options))


def at_process_end(work: Callable[[], None]) -> None:
    """Run `work` when this process ends: multiprocessing's children leave by os._exit and run only its finalizers."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, work, exitpriority=5)


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
