"""The run this process is in: what a trace or a benchmark made inside it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luxmeter.store.rank_writer import RankWriter
    from luxmeter.store.writer import RunWriter

_context: ContextVar[RunWriter | None] = ContextVar("luxmeter_run", default=None)
# Threads start with an empty context of their own; there the innermost run of the process holds.
_entered: list[RunWriter] = []
_of_main: list[RunWriter] = []  # those of them that the main thread is in
_beside: list[RankWriter] = []
_begun: dict[Path, None] = {}  # the outermost runs that this process was in, also those that have ended


def active_run() -> RunWriter | None:
    """The run that is active here, or None."""
    run = _context.get()
    if run is None or run.state != "running":  # ended elsewhere: by a signal, by another thread
        run = _entered[-1] if _entered else None
    return run


def run_around() -> RunWriter | None:
    """The run that what begins here is begun in: not one that another thread than the main one is in."""
    run = _context.get()
    if run is None or run.state != "running":
        run = _of_main[-1] if _of_main else None
    return run


def active_folder(patience_s: float | None = None) -> Path | None:
    """The folder of the run that is active here: on a rank that makes none, that of rank 0, if it comes soon (`patience_s`)."""
    run = active_run()
    if run is not None:
        return run.folder
    return _beside[-1].found(patience_s) if _beside else None


@contextmanager
def beside(writer: RankWriter) -> Iterator[None]:
    """Inside, what is made belongs to the run that this rank logs into."""
    _beside.append(writer)
    try:
        yield
    finally:
        _beside.remove(writer)


def runs_begun_here() -> list[Path]:
    """The folders of the outermost runs that this process was in until now."""
    return [folder for folder in _begun if folder.is_dir()]


@contextmanager
def activate(run: RunWriter) -> Iterator[RunWriter]:
    """Make `run` the active one inside."""
    token = _context.set(run)
    if not _entered:
        _begun[run.folder] = None
    _entered.append(run)
    by_main = threading.current_thread() is threading.main_thread()
    if by_main:
        _of_main.append(run)
    try:
        yield run
    finally:
        _entered.remove(run)
        if by_main:
            _of_main.remove(run)
        _context.reset(token)
