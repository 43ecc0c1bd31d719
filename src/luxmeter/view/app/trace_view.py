"""A trace that is looked at part by part: read once, and of any window at most a few thousand bars, however many calls there are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from luxmeter.calls import KINDS, OUTSIDE, TraceResult, kind_of, load_trace, on_device
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
    """One trace, its calls in lanes by their start."""

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

    @property
    def zero_ns(self) -> int:
        """When its first call began."""
        zero: int = self.once("lanes", _lanes)[1]
        return zero

    def timeline(self, start: int | None = None, end: int | None = None, width: int = _USUAL) -> Timeline:
        """The calls between two moments (nanoseconds after the first), for so many pixels."""
        lanes, zero, last = self.once("lanes", _lanes)
        if start is None and end is None and width == _USUAL:  # what every look begins with
            return self.once("whole", lambda _: self._drawn(lanes, zero, last, 0, last, width))  # type: ignore[no-any-return]
        a, b = (0 if start is None else max(0, start)), (last if end is None else min(last, end))
        return self._drawn(lanes, zero, last, a, max(b, a + 1), width)

    def _drawn(self, lanes: Any, zero: int, last: int, a: int, b: int, width: int) -> Timeline:
        drawn = {name: _bars(self.result, lane, zero, a, b, max(100, min(width, 4000))) for name, lane in lanes.items()}  # fmt: skip
        calls = self.once("calls", lambda result: int(result.recording.of_program().sum()))
        title = f"{calls:,} calls in {span(last)}"
        return Timeline(title, drawn, kinds=KINDS, ground=OUTSIDE, start_ns=0, end_ns=last)


def _lanes(result: TraceResult) -> tuple[dict[str, dict[str, Any]], int, int]:
    recording = result.recording
    events = recording.events
    mine = np.flatnonzero(recording.of_program())
    if not len(mine):
        return {}, 0, 1
    start = events["start_ns"][mine]
    zero = int(start.min())
    length = (events["duration_ns"] + events["own_ns"])[mine]
    codes = events["process"][mine].astype(np.int64) << 32 | events["thread"][mine].astype(np.int64)
    called = recording.process_names() if len(recording.processes) > 1 else []
    lanes = {}

    def add(name: str, process: int, at: Any, start: Any, length: Any) -> None:
        """A lane of the calls at these places of `mine`."""
        order = np.argsort(start, kind="stable")
        at = mine[at[order]]
        columns = {
            "start": start[order] - zero,
            "length": length[order],
            "depth": events["depth"][at].astype(np.int64),
            "callable": events["callable"][at],
            "signature": events["signature"][at],
        }
        columns["longest"] = columns["length"].max(initial=0)
        lanes[name + (f" ({called[process]})" if called else "")] = columns

    for code in np.unique(codes).tolist():
        at = np.flatnonzero(codes == code)
        process = code >> 32
        add(
            recording.processes[process].threads.get(code & 0xFFFFFFFF, "?"),
            process,
            at,
            start[at],
            length[at],
        )
    last = int((start + length).max())
    if on_device(recording):  # the same calls as accelerators worked on them
        begun, took, device = (events[name][mine] for name in ("device_start_ns", "device_ns", "device"))
        worked = np.where(took > 0, events["process"][mine].astype(np.int64) << 32 | device, -1)
        for code in np.unique(worked[worked >= 0]).tolist():
            at = np.flatnonzero(worked == code)
            add(recording.device_name(code >> 32, code & 0xFFFFFFFF), code >> 32, at, begun[at], took[at])
            last = max(last, int((begun[at] + took[at]).max()))
    return lanes, zero, last - zero


def _bars(result: TraceResult, lane: dict[str, Any], zero: int, a: int, b: int, width: int) -> list[Bar]:
    start = lane["start"]
    # A call that began before the window may still be going on: none is longer than the longest.
    first, last = np.searchsorted(start, a - lane["longest"]), np.searchsorted(start, b, side="right")
    at = np.arange(first, last)
    at = at[start[at] + lane["length"][at] >= a]
    depth = lane["depth"]
    if len(at) <= _FEW:
        return [_bar(result, lane, k) for k in at.tolist()]
    pixel = max(1, (b - a) // width)
    wide = lane["length"][at] >= pixel
    bars = [_bar(result, lane, k) for k in at[wide].tolist()]
    # The rest of a pixel and depth is one bar: its calls, their time, the first one's start, and the longest, which names it.
    thin = at[~wide]
    code = depth[thin] * (width + 2) + np.clip((start[thin] - a) // pixel, 0, width + 1)
    length = lane["length"][thin]
    n = np.bincount(code)
    sums = np.bincount(code, weights=length)
    first_of, longest_of = np.zeros(len(n), np.int64), np.zeros(len(n), np.int64)
    first_of[code[::-1]] = thin[::-1]  # what is written last stays
    rising = np.argsort(length, kind="stable")
    longest_of[code[rising]] = thin[rising]
    for k in np.flatnonzero(n).tolist():
        one = _bar(result, lane, int(longest_of[k]))
        total = min(max(int(sums[k]), 1), pixel)
        bars.append(Bar(one.name, one.detail, int(start[first_of[k]]), total, one.depth, one.kind, int(n[k])))
    return bars


def _bar(result: TraceResult, lane: dict[str, Any], k: int) -> Bar:
    recording = result.recording
    words = recording.callables[int(lane["callable"][k])]
    signature = recording.signatures[int(lane["signature"][k])]
    detail = words.path or (signature_text(str(signature), None) if signature else "")
    return Bar(
        words.shown, detail, int(lane["start"][k]), int(lane["length"][k]), int(lane["depth"][k]), kind_of(words.name, words.path)
    )  # fmt: skip
