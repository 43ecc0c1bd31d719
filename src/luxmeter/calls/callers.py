"""The row of each event's caller, of traces of any length."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from luxmeter.calls.records import OWN
from luxmeter.calls.tree import Numbers, with_callers

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording

_ROWS = 65_536  # at a time


@contextlib.contextmanager
def callers_of(
    recording: Recording, folder: Path | None = None, *, own_work: bool = True
) -> Iterator[Numbers]:
    """Of each event the row of its caller, -1 for none; without `own_work` the row among the program's events.

    A caller comes later than what it calls, in another chunk maybe: so all are found first, and lie in a temporary file (in
    `folder`) where they are many.
    """
    with contextlib.ExitStack() as stack:
        if recording.is_held:
            found = np.empty(recording.n, np.int64)
        else:
            file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            found = np.memmap(file, np.int64, "w+", shape=(recording.n,))
        own: list[Numbers] = []
        for row, events, parent, fresh in with_callers(recording, row=-1):
            events["row"][:fresh] = row + np.arange(fresh)
            own.append(row + np.flatnonzero(events["flags"][:fresh] & OWN))
            above = parent[:fresh]
            found[row : row + fresh] = np.where(above >= 0, events["row"][above], -1)
        if not own_work and own:
            _without(np.concatenate(own[::-1]), found)
        yield found


def _without(left_out: Numbers, found: Numbers) -> None:
    """Count as if some rows were not there: the recorder's own work calls nothing."""
    for start in range(0, len(found), _ROWS) if len(left_out) else ():
        part = found[start : start + _ROWS]
        place = np.searchsorted(left_out, part)
        part[np.append(left_out, -1)[place] == part] = -1
        part -= np.where(part >= 0, place, 0)
