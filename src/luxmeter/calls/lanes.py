"""The calls of a trace in lanes, one for each thread and each accelerator, as a timeline draws them: in bounded memory.

A timeline has so many pixels, and what is shorter than one cannot be told apart there. So of a trace that is not held a lane has
rows: a call each, or all calls of a depth that begin in one slot of time and are shorter than it. The slots of the whole
trace are made once; for a window whose pixels are shorter than those, its calls are read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from luxmeter.calls.chunks import Columns, Numbers, joined, lanes_of
from luxmeter.calls.groups import by_group, distinct
from luxmeter.calls.reader import Recording
from luxmeter.calls.records import OWN
from luxmeter.calls.table import on_device

_SLOTS = 1 << 17  # of all lanes together, if they have calls everywhere, at each depth
_FEWEST_SLOTS = 1 << 12  # of a lane: a screen has no more pixels
_ROWS = 1 << 14  # of a lane: up to here calls stay rows of their own
_NAMES = ("start", "length", "depth", "callable", "signature", "n", "total")
_DEVICE = 1 << 63  # beyond the numbers of threads


@dataclass(frozen=True)
class Lane:
    """Rows in the order of their starts (ns since the first call). `length` and what was called are those of the longest of a row's
    `n` calls, `total` is the time of them all.
    """

    start: Numbers
    length: Numbers
    depth: Numbers
    callable: Numbers
    signature: Numbers
    n: Numbers
    total: Numbers

    def between(self, start_ns: int, end_ns: int) -> Numbers:
        """The rows that are in a window: one that began before it may still go on. None is longer than the longest."""
        longest = int(self.length.max(initial=0))
        first = np.searchsorted(self.start, start_ns - longest)
        last = np.searchsorted(self.start, end_ns, side="right")
        at = np.arange(first, last)
        found: Numbers = at[self.start[at] + self.length[at] >= start_ns]
        return found


class Lanes:
    """All of them: `end_ns` is when the last call ended, counted from the first one's start."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._lag_ns, self.end_ns = recording, 0, 1
        self._slot_ns = 0 if recording.is_held else self._slot_of_all()
        self._whole = self._read(self._slot_ns)

    def of(self, start_ns: int, end_ns: int, pixel_ns: int) -> dict[str, Lane]:
        """Of a window: calls that are not shorter than a pixel are rows of their own."""
        if self._slot_ns <= pixel_ns:
            return self._whole
        return self._read(pixel_ns, between=(start_ns, end_ns))

    def _slot_of_all(self) -> int:
        recording = self._recording
        lanes = sum(max(1, len(process.threads)) for process in recording.processes)
        slots = max(_FEWEST_SLOTS, _SLOTS // lanes)
        return max(1, (recording.last_ns - recording.first_ns) // slots + 1)

    def _read(self, slot_ns: int, between: tuple[int, int] | None = None) -> dict[str, Lane]:
        zero = self._recording.first_ns
        window = None if between is None else (between[0] + zero - self._lag_ns, between[1] + zero + 1)
        found: dict[int, _Rows] = {}
        for _, events in self._recording.chunks(between=window):
            at = np.flatnonzero((events["flags"] & OWN) == 0)
            start, length = events["start_ns"][at] - zero, (events["duration_ns"] + events["own_ns"])[at]
            lane = lanes_of(events)[at]
            self._add(found, events, at, lane.astype(np.uint64), start, length, slot_ns, between)
            if not len(at):
                continue
            end = int((start + length).max())
            if on_device(self._recording):
                begun, took = events["device_start_ns"][at] - zero, events["device_ns"][at]
                worked = np.flatnonzero(took > 0)
                number = events["process"][at].astype(np.uint64) << np.uint64(32) | events["device"][
                    at
                ].astype(np.uint64)
                self._add(
                    found, events, at[worked], number[worked] | np.uint64(_DEVICE), begun[worked], took[worked], slot_ns, between
                )  # fmt: skip
                late = (begun + took - start - length)[worked]
                self._lag_ns = max(self._lag_ns, int(late.max(initial=0)))
                end = max(end, int((begun + took)[worked].max(initial=0)))
            self.end_ns = max(self.end_ns, end)
        return {self._name(code): found[code].lane() for code in sorted(found)}

    @staticmethod
    def _add(
        found: dict[int, _Rows],
        events: Columns,
        at: Numbers,
        lane: Numbers,
        start: Numbers,
        length: Numbers,
        slot_ns: int,
        between: tuple[int, int] | None,
    ) -> None:
        if between is not None:
            seen = (start <= between[1]) & (start + length >= between[0])
            at, lane, start, length = at[seen], lane[seen], start[seen], length[seen]
        for code in np.unique(lane).tolist():
            here = np.flatnonzero(lane == code)
            row = at[here]
            rows = {
                "start": start[here],
                "length": length[here],
                "depth": events["depth"][row],
                "callable": events["callable"][row],
                "signature": events["signature"][row],
                "n": np.ones(len(here), np.int64),
                "total": length[here],
            }
            found.setdefault(code, _Rows(slot_ns)).add(rows)

    def _name(self, code: int) -> str:
        recording, number = self._recording, code & 0xFFFFFFFF
        process = (code & ~_DEVICE) >> 32
        name = (
            recording.device_name(process, number)
            if code & _DEVICE
            else recording.processes[process].threads.get(number, "?")
        )
        return f"{name} ({recording.process_names()[process]})" if len(recording.processes) > 1 else name


class _Rows:
    """Those of one lane, that come chunk by chunk; where they become many, short ones of a slot are put together. 0: never."""

    def __init__(self, slot_ns: int) -> None:
        self._slot_ns, self._parts, self._n, self._most = slot_ns, list[Columns](), 0, _ROWS

    def add(self, rows: Columns) -> None:
        self._parts.append(rows)
        self._n += len(rows["n"])
        if self._slot_ns and self._n > self._most:
            few = _put_together(joined(self._parts, _NAMES), self._slot_ns)
            self._parts, self._n = [few], len(few["n"])
            self._most = max(_ROWS, 2 * self._n)

    def lane(self) -> Lane:
        """All of them."""
        rows = joined(self._parts, _NAMES)
        order = np.argsort(rows["start"], kind="stable")
        return Lane(**{name: column[order] for name, column in rows.items()})


def _put_together(rows: Columns, slot_ns: int) -> Columns:
    """One row for those of a depth and slot of time that are shorter than the slot; the others as they are."""
    short = np.flatnonzero(rows["length"] < slot_ns)
    thin = {name: column[short] for name, column in rows.items()}
    slot = thin["start"] // slot_ns
    slot -= slot.min(initial=0)
    depth = thin["depth"].astype(np.int64)
    codes, which = distinct(depth * (int(slot.max(initial=0)) + 1) + slot)
    rising = np.argsort(thin["length"], kind="stable")
    longest = np.zeros(len(codes), np.int64)
    longest[which[rising]] = rising  # what is written last stays
    order = by_group(which, len(codes))
    n = np.bincount(which, minlength=len(codes))
    begin = np.cumsum(n) - n
    made = {name: column[longest] for name, column in thin.items()}
    for name, reduce in _REDUCED:
        made[name] = reduce.reduceat(thin[name][order], begin) if len(codes) else made[name]
    long = np.flatnonzero(rows["length"] >= slot_ns)
    return joined([{name: column[long] for name, column in rows.items()}, made], _NAMES)


_REDUCED: Iterable[tuple[str, np.ufunc]] = (("start", np.minimum), ("n", np.add), ("total", np.add))
