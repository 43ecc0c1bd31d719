"""The run this process is in: what a trace or a benchmark made inside it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luxmeter.store.writer import RunWriter

_context: ContextVar[RunWriter | None] = ContextVar("luxmeter_run", default=None)
# Threads start with an empty context of their own; there the innermost run of the process holds.
_entered: list[RunWriter] = []


def active_run() -> RunWriter | None:
    """The run that is active here, or None."""
    run = _context.get()
    if run is None or run.state != "running":  # ended elsewhere: by a signal, by another thread
        run = _entered[-1] if _entered else None
    return run


@contextmanager
def activate(run: RunWriter) -> Iterator[RunWriter]:
    """Make `run` the active one inside."""
    token = _context.set(run)
    _entered.append(run)
    try:
        yield run
    finally:
        _entered.remove(run)
        _context.reset(token)
