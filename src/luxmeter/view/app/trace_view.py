"""A trace that is looked at part by part: read once, and of any window at most a few thousand bars, however many calls there are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from luxmeter.calls import KINDS, OUTSIDE, Lane, Lanes, TraceResult, kind_of, load_trace
from luxmeter.render import Bar, Timeline, signature_text, span

_MOST_TRACES = 4
_USUAL = 1200  # pixels
_FEW = 1500  # calls of a lane that are drawn one by one


class TraceViews:
    """The last traces that were looked at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[tuple[str, int], TraceView] = OrderedDict()

    def of(self, folder: Path) -> TraceView:
        """The view of a trace; read anew if it has grown."""
        key = (str(folder), max((p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()), default=0))
        with self._lock:
            found = self._views.get(key)
            if found is None:
                for old in [k for k in self._views if k[0] == key[0]]:
                    del self._views[old]
                found = self._views[key] = TraceView(load_trace(folder))
            self._views.move_to_end(key)
            while len(self._views) > _MOST_TRACES:
                self._views.popitem(last=False)
            return found


class TraceView:
    """One trace, and what was made of it already."""

    def __init__(self, result: TraceResult) -> None:
        self.result = result
        self._parts: dict[str, Any] = {}
        self._lock = threading.RLock()  # a part may be made of others

    def once(self, name: str, make: Any) -> Any:
        """What is made of it, made once."""
        with self._lock:
            if name not in self._parts:
                self._parts[name] = make(self.result)
            return self._parts[name]

    def timeline(self, start: int | None = None, end: int | None = None, width: int = _USUAL) -> Timeline:
        """The calls between two moments (nanoseconds after the first), for so many pixels."""
        lanes: Lanes = self.once("lanes", lambda result: Lanes(result.recording))
        if start is None and end is None and width == _USUAL:  # what every look begins with
            return self.once("whole", lambda _: self._drawn(lanes, 0, lanes.end_ns, width))  # type: ignore[no-any-return]
        a = 0 if start is None else max(0, start)
        b = lanes.end_ns if end is None else min(lanes.end_ns, end)
        return self._drawn(lanes, a, max(b, a + 1), width)

    def _drawn(self, lanes: Lanes, a: int, b: int, width: int) -> Timeline:
        width = max(100, min(width, 4000))
        pixel = max(1, (b - a) // width)
        found = lanes.of(a, b, pixel)
        drawn = {name: _bars(self.result, lane, a, b, pixel) for name, lane in found.items()}
        title = f"{self.result.recording.calls:,} calls in {span(lanes.end_ns)}"
        return Timeline(title, drawn, kinds=KINDS, ground=OUTSIDE, start_ns=0, end_ns=lanes.end_ns)


def _bars(result: TraceResult, lane: Lane, a: int, b: int, pixel: int) -> list[Bar]:
    at = lane.between(a, b)
    if len(at) <= _FEW:
        return [_bar(result, lane, k) for k in at.tolist()]
    wide = lane.length[at] >= pixel
    bars = [_bar(result, lane, k) for k in at[wide].tolist()]
    # The rest of a pixel and depth is one bar: its calls, their time, the first one's start, and the longest, which names it.
    thin = at[~wide]
    slots = (b - a) // pixel + 2
    code = lane.depth[thin].astype(np.int64) * slots + np.clip((lane.start[thin] - a) // pixel, 0, slots - 1)
    n = np.bincount(code, weights=lane.n[thin])
    sums = np.bincount(code, weights=lane.total[thin])
    first_of, longest_of = np.zeros(len(n), np.int64), np.zeros(len(n), np.int64)
    first_of[code[::-1]] = thin[::-1]  # what is written last stays
    rising = np.argsort(lane.length[thin], kind="stable")
    longest_of[code[rising]] = thin[rising]
    for k in np.flatnonzero(n).tolist():
        one = _bar(result, lane, int(longest_of[k]))
        total = min(max(int(sums[k]), 1), pixel)
        bars.append(replace(one, start_ns=int(lane.start[first_of[k]]), duration_ns=total, n=int(n[k])))
    return bars


def _bar(result: TraceResult, lane: Lane, k: int) -> Bar:
    recording = result.recording
    words = recording.callables[int(lane.callable[k])]
    signature = recording.signatures[int(lane.signature[k])]
    detail = words.path or (signature_text(str(signature), None) if signature else "")
    return Bar(
        words.shown, detail, int(lane.start[k]), int(lane.total[k]), int(lane.depth[k]), kind_of(words.name, words.path), int(lane.n[k])
    )  # fmt: skip
