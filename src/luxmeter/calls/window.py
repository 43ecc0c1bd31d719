"""A part of a trace: the calls of a window of time, the upper levels of calls."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np

from luxmeter.calls.result import TraceResult
from luxmeter.calls.tree import parents
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
    events = recording.events
    mine = recording.of_program()
    since = events["start_ns"] - first_ns(result)
    keep = mine.copy()
    if window.start_s is not None:
        keep &= since >= np.rint(window.start_s * 1e9)  # to the clock's tick: seconds may be a bit off
    if window.end_s is not None:
        keep &= since < np.rint(window.end_s * 1e9)
    if mine.any() and not keep.any():
        raise UsageError(
            "empty-window",
            f"No call begins in the window: the trace's calls begin between 0 and {since[mine].max() / 1e9:g} s.",
            "Give a window in there, in seconds.",
        )
    child_ns = events["child_ns"]
    if window.depth is not None:
        keep &= events["depth"] < window.depth
        parent = parents(events)
        cut = np.flatnonzero(mine & (events["depth"] == window.depth) & (parent >= 0))
        child_ns = child_ns.copy()
        np.subtract.at(child_ns, parent[cut], events["duration_ns"][cut].astype(child_ns.dtype))
    left = {name: (child_ns if name == "child_ns" else column)[keep] for name, column in events.items()}
    made = copy.copy(result)
    made.__dict__.pop("main outside", None)
    made.__dict__["recording"] = replace(recording, events=left, cut=True)
    return made


def first_ns(result: TraceResult) -> int:
    """When the first call began: what seconds of a trace are counted from."""
    recording = result.recording
    starts = recording.events["start_ns"][recording.of_program()]
    return int(starts.min()) if len(starts) else 0
