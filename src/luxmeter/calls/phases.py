"""What kind of work a call is, and how a training step splits into kinds: forward, backward, optimizer, data, and outside the calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from luxmeter.calls.kinds import KINDS, OUTSIDE, WHOLE, YOURS, kind_of
from luxmeter.calls.records import SECTION
from luxmeter.calls.tree import parents
from luxmeter.calls.window import typical_step

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording
    from luxmeter.calls.result import TraceResult


@dataclass(frozen=True)
class Split:
    """Where a stretch of time went, in one thread: (number of a kind, nanoseconds); all of them are `total_ns`."""

    title: str
    total_ns: int
    parts: tuple[tuple[int, int], ...]


def split_of(result: TraceResult, *, step: bool = True) -> Split | None:
    """A training step (the one of median length), or the whole trace if there is none or `step` is false. None without calls."""
    recording = result.recording
    events = recording.events
    mine = recording.of_program()
    if recording.totals or not mine.any():
        return None
    found = typical_step(result) if step else None
    start, end = events["start_ns"], events["start_ns"] + events["duration_ns"] + events["own_ns"]
    if found is not None:
        mine = (
            mine & (start >= found.start_ns) & (start < found.end_ns) & (events["process"] == found.process)
        )
    lane = _busiest_lane(events, mine)
    first, last = (
        (found.start_ns, found.end_ns)
        if found is not None
        else (int(start[lane].min()), int(end[lane].max()))
    )
    own = {name: column[lane] for name, column in events.items()}
    sums = _by_kind(recording, own)
    sums[OUTSIDE] = max(0, last - first - int(sums.sum()))
    title = (
        "a training step (the one of median length)" if found is not None else "the whole trace, one thread"
    )
    return Split(title, int(sums.sum()), tuple((k, int(ns)) for k, ns in enumerate(sums) if ns > 0))


def _busiest_lane(events: dict[str, Any], mine: Any) -> Any:
    """Which events are of the thread that has most of the time in calls."""
    lane = events["process"].astype(np.int64) << 32 | events["thread"].astype(np.int64)
    top = mine & (events["depth"] == events["depth"][mine].min())
    lanes, codes = np.unique(lane[top], return_inverse=True)
    sums = np.bincount(codes, weights=events["duration_ns"][top])
    return np.flatnonzero(mine & (lane == lanes[int(sums.argmax())]))


def _by_kind(recording: Recording, events: dict[str, Any]) -> Any:
    """Time in calls of each kind: a call's own time is of its kind, or of the kind that it is a part of."""
    kinds = np.array(
        [YOURS if w.kind == SECTION else kind_of(w.name, w.path) for w in recording.callables],
        dtype=np.int64,
    )
    kind = kinds[events["callable"]]
    parent, depth = parents(events), events["depth"]
    is_whole = np.zeros(len(KINDS), dtype=bool)
    is_whole[list(WHOLE)] = True
    for level in range(int(depth.min(initial=0)) + 1, int(depth.max(initial=0)) + 1):
        at = np.flatnonzero((depth == level) & (parent >= 0))
        above = kind[parent[at]]
        kind[at] = np.where(is_whole[above], above, kind[at])
    self_ns = np.maximum(events["duration_ns"].astype(np.int64) - events["child_ns"].astype(np.int64), 0)
    return np.bincount(kind, weights=self_ns, minlength=len(KINDS)).astype(np.int64)
