"""A part of a trace: the calls of a window of time, the upper levels of calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from luxmeter.calls.chunks import Columns, Numbers, joined
from luxmeter.calls.reader import Recording
from luxmeter.calls.records import OWN
from luxmeter.calls.result import TraceResult
from luxmeter.calls.tree import with_callers
from luxmeter.errors import TraceError, UsageError


@dataclass(frozen=True)
class Window:
    """Which calls are meant: those that begin in a window (seconds since the first call), and levels of calls."""

    start_s: float | None = None
    end_s: float | None = None
    depth: int | None = None

    @classmethod
    def parse(cls, window: str, depth: int | None = None) -> Window:
        """From the command line: `1.5:2.0`, `:0.1`, `3:`."""
        ends = window.split(":") if window else ["", ""]
        try:
            start, end = (float(end) if end.strip() else None for end in ends)
            if any(value is not None and not math.isfinite(value) for value in (start, end)):
                raise ValueError(window)
        except ValueError:
            raise UsageError(
                "bad-window", f"{window!r} is no window of time.", "Give two times in seconds: 1.5:2.0."
            ) from None
        if start is not None and end is not None and end <= start:
            raise UsageError(
                "bad-window", f"The window {window!r} ends before it starts.", "Give the earlier time first."
            )
        return cls(start, end, depth)

    def __str__(self) -> str:
        said = []
        if self.start_s is not None or self.end_s is not None:
            ends = (f"{value:g} s" if value is not None else "" for value in (self.start_s, self.end_s))
            said.append("calls that begin in {}:{}".format(*ends))
        if self.depth is not None:
            said.append(f"the upper {self.depth} level{'s' * (self.depth > 1)} of calls")
        return ", ".join(said)


def in_window(result: TraceResult, window: Window | None) -> TraceResult:
    """The trace as if nothing but the part had been recorded: a call at the last level has all its time as its own."""
    if window is None or window == Window():
        return result
    recording = result.recording
    if recording.totals:
        raise TraceError(
            "totals-only",
            f"A part needs the calls, and the trace in {result.folder} kept totals only.",
            "Trace again without totals=True.",
        )
    zero = recording.first_ns  # to the clock's tick: seconds may be a bit off
    low = -math.inf if window.start_s is None else zero + float(np.rint(window.start_s * 1e9))
    high = math.inf if window.end_s is None else zero + float(np.rint(window.end_s * 1e9))
    left = _part(recording, low, high, window.depth)
    if recording.calls and not len(left["flags"]):
        raise UsageError(
            "empty-window",
            f"No call begins in the window: the trace's calls begin between 0 and {(_last_start(recording) - zero) / 1e9:g} s.",
            "Give a window in there, in seconds.",
        )
    return result.with_recording(replace(recording, events=left, cut=True))


def _part(recording: Recording, low: float, high: float, depth: int | None) -> Columns:
    """The program's events that begin in a window, down to a level. They are held: a part is meant to be small."""
    kept: list[Columns] = []
    cut: list[
        tuple[Numbers, Numbers]
    ] = []  # the rows of calls whose parts are cut off, and the time of these
    chunks: Iterable[tuple[int, Columns, Numbers, int]]
    if depth is None:
        chunks = (
            (row, e, np.empty(0, np.int64), len(e["flags"]))
            for row, e in recording.chunks(between=(low, high))
        )
    else:
        chunks = with_callers(recording, row=-1)
    for row, events, parent, fresh in chunks:
        mine = (events["flags"][:fresh] & OWN) == 0
        begins = events["start_ns"][:fresh]
        keep = mine & (begins >= low) & (begins < high)
        if depth is not None:
            events["row"][:fresh] = row + np.arange(fresh)
            keep &= events["depth"][:fresh] < depth
            at = np.flatnonzero(mine & (events["depth"][:fresh] == depth) & (parent[:fresh] >= 0))
            cut.append((events["row"][parent[at]], events["duration_ns"][at]))
        kept.append({name: column[:fresh][keep] for name, column in events.items()})
    if depth is None:
        return joined(kept, recording.events)
    found = joined(kept[::-1], [*recording.events, "row"])
    rows = found.pop("row")
    for above, duration in cut:
        if len(rows):
            place = np.minimum(np.searchsorted(rows, above), len(rows) - 1)
            there = rows[place] == above
            np.subtract.at(found["child_ns"], place[there], duration[there].astype(found["child_ns"].dtype))
    return found


def _last_start(recording: Recording) -> int:
    return max(
        int(events["start_ns"][(events["flags"] & OWN) == 0].max(initial=0))
        for _, events in recording.chunks()
    )


def first_calls(
    recording: Recording,
    most: int,
    *,
    start_ns: float = -math.inf,
    end_ns: float = math.inf,
    process: int | None = None,
) -> tuple[Columns, int]:
    """The first calls that begin in a stretch of time (of one process), in the order of the trace; and how many begin there."""
    kept: Columns = {}
    n = 0
    for row, events in recording.chunks(between=(start_ns, end_ns), process=process):
        start = events["start_ns"]
        here = ((events["flags"] & OWN) == 0) & (start >= start_ns) & (start < end_ns)
        if process is not None:
            here &= events["process"] == process
        at = np.flatnonzero(here)
        n += len(at)
        at = at[np.argsort(start[at], kind="stable")][:most]
        new = {name: column[at] for name, column in events.items()} | {"row": row + at}
        kept = joined([kept, new], new) if kept else new
        first = np.lexsort((kept["row"], kept["start_ns"]))[:most]
        kept = {name: column[np.sort(first)] for name, column in kept.items()}
    return {name: column[np.argsort(kept["row"], kind="stable")] for name, column in kept.items()}, n
