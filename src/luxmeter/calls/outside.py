"""The time outside: how long, on each thread, no recorded call was open, and where that time went. Pure.

A section is no call: what it holds besides calls is outside. What a module of the user's does in Python belongs to its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.kinds import DATA, kind_of
from luxmeter.calls.records import OWN, SECTION
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table, span

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording

Numbers = npt.NDArray[Any]
BEGIN, END = "the beginning", "the end"
_SHOWN = 4  # gaps that are named below a table
_LEAST = 0.005  # of the time outside: less is not worth a word
_WORTH = 0.05  # of all time: below, it is not told where it went
_MAIN = "MainThread"


@dataclass(frozen=True, slots=True)
class Gap:
    """The stretches without a call between the same two places: after which line, before which, in which section."""

    after: str
    before: str
    section: str
    n: int
    total_ns: int
    longest_ns: int

    def __str__(self) -> str:
        if self.after == self.before:
            where = f"around {self.after}"
        elif self.after == BEGIN:
            where = f"before {self.before}"
        elif self.before == END:
            where = f"after {self.after}"
        else:
            where = f"from {self.after} to {self.before}"
        within = f" in section {self.section}" if self.section else ""
        return f"{span(self.total_ns)} {where}{within}" + (f" ({self.n:,} times)" if self.n > 1 else "")


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """The time of one thread. Of the main one from the start of the trace to its end, of others from their first call to their last.

    `data_ns` is that part of the time in calls that waited for a DataLoader. Of the time outside, `collecting_ns` were garbage
    collections, `compiling_ns` torch.compile's preparations, `importing_ns` modules that torch imports when they are first needed,
    `recording_ns` the recorder's own work (what describing took, and what the calls cost to record).
    """

    name: str
    process: int
    thread: int
    wall_ns: int
    calls_ns: int
    data_ns: int
    collecting_ns: int
    compiling_ns: int
    importing_ns: int
    recording_ns: int
    gaps: tuple[Gap, ...]  # the longest first

    @property
    def outside_ns(self) -> int:
        """How long no recorded call was open."""
        return self.wall_ns - self.calls_ns

    @property
    def share(self) -> float:
        """The part of its time that was outside."""
        return self.outside_ns / self.wall_ns if self.wall_ns else 0.0

    def lines(self) -> list[str]:
        """Where the time outside went, in words."""
        said = [
            f"outside the calls: {span(self.outside_ns)} of {span(self.wall_ns)} ({self.share:.1%}) of {self.name}"
        ]
        named = (
            []
            if self.share < _WORTH
            else [gap for gap in self.gaps if gap.total_ns > _LEAST * self.outside_ns][:_SHOWN]
        )
        said += [f"  {gap}" for gap in named]
        left = len(self.gaps) - len(named)
        if named and left:
            rest = self.outside_ns - sum(gap.total_ns for gap in named)
            said.append(f"  {span(rest)} in {left:,} other places")
        parts = {
            "garbage collection": self.collecting_ns,
            "torch.compile": self.compiling_ns,
            "importing parts of torch": self.importing_ns,
            "recording": self.recording_ns,
        }
        worth = [f"{span(ns)} {what}" for what, ns in parts.items() if ns > _LEAST * self.outside_ns]
        if worth and named:
            said.append(f"  of it {', '.join(worth)}")
        if self.data_ns:
            said.append(f"in calls, waiting for a DataLoader: {span(self.data_ns)}")
        return said


class Outside:
    """The time of every thread, those of the main threads first. Iterable; `main` is that of the program's own thread."""

    def __init__(self, threads: Sequence[ThreadTime]) -> None:
        self.threads = tuple(threads)

    def __iter__(self) -> Iterator[ThreadTime]:
        return iter(self.threads)

    @property
    def main(self) -> ThreadTime | None:
        """The first process's main thread; None without a call."""
        return self.threads[0] if self.threads else None

    def table(self) -> Table:
        """A line for each thread."""
        columns = [
            Column("thread"),
            Column("wall", DURATION),
            Column("in calls", DURATION),
            Column("outside", DURATION),
            Column("share", SHARE, form=".1%"),
            Column("gaps", NUMBER, form=","),
            Column("DataLoader", DURATION, goes=1),
            Column("garbage collection", DURATION, goes=2),
            Column("torch.compile", DURATION, goes=3),
            Column("imports", DURATION, goes=3.5),
            Column("recording", DURATION, goes=4),
        ]
        rows = [
            [t.name, t.wall_ns, t.calls_ns, t.outside_ns, t.share, sum(gap.n for gap in t.gaps), t.data_ns, t.collecting_ns,
             t.compiling_ns, t.importing_ns, t.recording_ns]
            for t in self
        ]  # fmt: skip
        return Table(columns, rows)

    def gap_table(self, *, top: int = 20) -> Table:
        """The longest gaps of all threads."""
        columns = [
            Column("after", folds=12),
            Column("before", folds=12),
            Column("section", hidden="empty"),
            Column("n", NUMBER, form=","),
            Column("total", DURATION),
            Column("longest", DURATION),
            Column("thread", hidden="same"),
        ]
        found = sorted(((gap, t.name) for t in self for gap in t.gaps), key=lambda pair: -pair[0].total_ns)
        rows = [
            [g.after, g.before, g.section, g.n, g.total_ns, g.longest_ns, name] for g, name in found[:top]
        ]
        more = [f"... and {len(found) - top:,} more"] if len(found) > top else []
        return Table(columns, rows, notes=more)

    def text(self, *, top: int = 20, width: int | None = None) -> str:
        """Each thread, and the longest gaps."""
        if not self.threads:
            return "no call was recorded"
        return f"{self.table().text(width)}\n\n{self.gap_table(top=top).text(width)}"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table(), self.gap_table())


def find_outside(recording: Recording, *, most: int | None = None) -> Outside:
    """The time of each thread that made a call (`most`: of the first ones alone)."""
    events = recording.events
    kinds = np.array([w.kind for w in recording.callables], dtype=np.uint8)
    own = (events["flags"] & OWN) != 0
    lane = events["process"].astype(np.int64) << 32 | events["thread"].astype(np.int64)
    is_call = ~own & (kinds[events["callable"]] != SECTION)
    lanes = [(code >> 32, code & 0xFFFFFFFF) for code in np.unique(lane[is_call]).tolist()]
    lanes.sort(key=lambda pair: (_name(recording, *pair) != _MAIN, pair))
    is_data = np.array([kind_of(w.name, w.path) == DATA for w in recording.callables], dtype=bool)
    found = []
    for process, thread in lanes[:most]:
        here = lane == process << 32 | thread
        found.append(_thread_time(recording, process, thread, here & is_call, here & own, is_data))
    return Outside(found)


def _name(recording: Recording, process: int, thread: int) -> str:
    return recording.processes[process].threads.get(thread, f"thread {thread}")


def _thread_time(
    recording: Recording, process: int, thread: int, calls: Numbers, own: Numbers, is_data: Numbers
) -> ThreadTime:
    events = recording.events
    at = np.flatnonzero(calls)
    at = at[np.argsort(events["start_ns"][at], kind="stable")]
    start = events["start_ns"][at].astype(np.int64)
    end = start + events["duration_ns"][at] + events["own_ns"][at]
    until = np.maximum.accumulate(end)  # when the last of those that began before has ended
    last = np.maximum.accumulate(np.where(end == until, np.arange(len(at)), 0))
    first_ns, last_ns = int(start[0]), int(until[-1])
    record = recording.processes[process]
    name = _name(recording, process, thread)
    if name == _MAIN and not recording.cut:
        began = int(record.end.get("started_ns", first_ns))
        first_ns = min(first_ns, began)
        last_ns = max(last_ns, began + int(record.end.get("elapsed_ns", 0)))
    # Stretches without a call: before the first, between two, after the last.
    begin = np.concatenate([[first_ns], until])
    finish = np.concatenate([start, [last_ns]])
    gap = np.flatnonzero(finish > begin)
    length = finish[gap] - begin[gap]
    outermost = np.concatenate([[True], start[1:] >= until[:-1]])
    data = outermost & is_data[events["callable"][at]]
    overlap = _overlap(begin[gap], finish[gap])
    works = np.flatnonzero(own)
    described = overlap(events["start_ns"][works], events["start_ns"][works] + events["duration_ns"][works])
    cost = record.end.get("cost", {})
    a_call = max(0.0, cost.get("added_ns", 0.0) - cost.get("inside_ns", 0.0))
    pauses = {kind: np.array([row[2:4] for row in record.end.get("pauses", ()) if row[:2] == [kind, thread]], np.int64)
              for kind in ("gc", "compile", "import")}  # fmt: skip
    paused = {
        kind: overlap(rows[:, 0], rows[:, 0] + rows[:, 1]) if len(rows) else 0
        for kind, rows in pauses.items()
    }
    several = len(recording.processes) > 1
    whole = int(length.sum())
    return ThreadTime(
        f"{name} ({recording.process_names()[process]})" if several else name,
        process,
        thread,
        last_ns - first_ns,
        last_ns - first_ns - whole,
        int((end - start)[data].sum()),
        paused["gc"],
        paused["compile"],
        paused["import"],
        min(whole, described + int(a_call * np.count_nonzero(outermost))),
        _gaps(recording, at, last, gap, length),
    )


def _overlap(begin: Numbers, finish: Numbers) -> Any:
    """Of stretches (their starts and ends): how much of them lies in the gaps, in all."""
    if not len(begin):
        return lambda start, end: 0
    edges = np.stack([begin, finish], axis=1).ravel()
    within = np.stack([np.zeros(len(begin), np.int64), finish - begin], axis=1).ravel().cumsum()
    zero = edges[0]

    def overlap(start: Numbers, end: Numbers) -> int:
        first, last = (np.interp(t - zero, edges - zero, within) for t in (start, end))
        return int((last - first).sum())

    return overlap


def _gaps(recording: Recording, at: Numbers, last: Numbers, gap: Numbers, length: Numbers) -> tuple[Gap, ...]:
    events = recording.events
    lines, names = recording.lines, [w.shown for w in recording.callables]
    site = np.concatenate([events["site"][at], [0]]).astype(np.int64)
    call = np.concatenate([events["callable"][at], [0]]).astype(np.int64)
    section = np.concatenate([events["section"][at], [0]]).astype(np.int64)
    n = len(at)
    before = gap  # the call after the gap; n: none
    after = np.where(gap > 0, last[np.maximum(gap - 1, 0)], n)  # the call before it
    same = np.where(section[before] == section[after], section[before], 0)
    # A place is a line, or the call's name where no line is known.
    place = np.where(site > 0, site, -call)
    place[n] = np.iinfo(np.int64).min  # no call at all
    keys = np.stack([place[after], place[before], same])
    groups, which, counted = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    which = which.ravel()
    total = np.zeros(len(counted), np.int64)
    np.add.at(total, which, length)
    longest = np.zeros(len(counted), np.int64)
    np.maximum.at(longest, which, length)

    def called(code: int, none: str) -> str:
        if code == np.iinfo(np.int64).min:
            return none
        return lines[code] if code > 0 else names[-code]

    together: dict[tuple[str, str, str], list[int]] = {}
    for (a, b, s), count, ns, most in zip(
        groups.T.tolist(), counted.tolist(), total.tolist(), longest.tolist(), strict=True
    ):
        key = called(a, BEGIN), called(b, END), recording.callables[s].name if s else ""
        known = together.setdefault(key, [0, 0, 0])
        known[0] += count
        known[1] += ns
        known[2] = max(known[2], most)
    made = [Gap(*key, *numbers) for key, numbers in together.items()]
    return tuple(sorted(made, key=lambda g: (-g.total_ns, g.after, g.before)))
