"""The time outside: how long, on each thread, no recorded call was open, and where that time went. Pure.

A section is no call: what it holds besides calls is outside. What a module of the user's does in Python belongs to its call, and
so does the recorder's own work while a call is open. Every view means this: steps.py finds the same for stretches of a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.chunks import lanes_of
from luxmeter.calls.groups import by_group, distinct
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

    `data_ns` is that part of the time in calls that waited for a DataLoader, `describing_ns` that in which the recorder itself
    worked (it is no part of a call's own time). Of the time outside, `collecting_ns` were garbage collections, `compiling_ns`
    torch.compile's preparations, `importing_ns` modules that torch imports when they are first needed, `recording_ns` the
    recorder's own work (what describing took, and what the calls cost to record); `sections_ns` lay in sections, besides that work.
    """

    name: str
    process: int
    thread: int
    start_ns: int
    wall_ns: int
    calls_ns: int
    data_ns: int
    describing_ns: int
    collecting_ns: int
    compiling_ns: int
    importing_ns: int
    recording_ns: int
    sections_ns: int
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
    """The time of each thread that made a call (`most`: of the first ones alone).

    Read from the end: calls come in the order of their ends, so no call was open between a call and the earliest start of
    all that come after it, if that is later.
    """
    wanted = None if most != 1 else _main_lane(recording)
    found: dict[tuple[int, int], _Lane] = {}
    for _, events in recording.chunks(backwards=True, process=None if wanted is None else wanted[0]):
        is_mine = (events["flags"] & OWN) == 0
        is_call = is_mine & (recording.kinds[events["callable"]] != SECTION)
        lane = lanes_of(events)
        for code in np.unique(lane[is_mine]).tolist():
            pair = code >> 32, code & 0xFFFFFFFF
            if wanted is None or pair == wanted:
                at = np.flatnonzero(is_mine & (lane == code))
                found.setdefault(pair, _Lane(recording, *pair)).add(
                    {name: events[name][at] for name in _NEEDED}, is_call[at]
                )
    found = {pair: lane for pair, lane in found.items() if lane.called}
    lanes = sorted(found, key=lambda pair: (_name(recording, *pair) != _MAIN, pair))
    return Outside([found[pair].time() for pair in lanes[:most]])


_NEEDED = ("start_ns", "duration_ns", "child_ns", "own_ns", "site", "callable", "section")


def _main_lane(recording: Recording) -> tuple[int, int] | None:
    """The first main thread with a call; None if there is none."""
    for _, events in recording.chunks():
        is_call = ((events["flags"] & OWN) == 0) & (recording.kinds[events["callable"]] != SECTION)
        for code in np.unique(lanes_of(events)[is_call]).tolist():
            pair = code >> 32, code & 0xFFFFFFFF
            if _name(recording, *pair) == _MAIN:
                return pair
    return None


def _name(recording: Recording, process: int, thread: int) -> str:
    return recording.processes[process].threads.get(thread, f"thread {thread}")


class _Lane:
    """The calls of one thread, that come chunk by chunk from the last one on."""

    def __init__(self, recording: Recording, process: int, thread: int) -> None:
        self._recording, self._process, self._thread = recording, process, thread
        self._record, self._name = recording.processes[process], _name(recording, process, thread)
        self._is_data = np.array([kind_of(w.name, w.path) == DATA for w in recording.callables], dtype=bool)
        self._ended_ns: int | None = None  # the end of the last call, or of the trace
        self._behind: list[dict[str, Numbers]] = []  # sections that ended after the last call
        self._starts = self._place = self._section = 0  # the earliest start until now, and where
        self._gaps: dict[int, list[int]] = {}  # by place before, place after and section
        self._nowhere = len(recording.sites) + len(
            recording.callables
        )  # places are sites, or calls where no line is known
        self._outside_ns = self._data_ns = self._describing_ns = self._sections_ns = self._outermost = 0
        pauses = self._record.end.get("pauses", ())
        self._intervals = {
            kind: np.array([row[2:4] for row in pauses if row[:2] == [kind, thread]], np.int64).reshape(-1, 2)
            for kind in ("gc", "compile", "import")
        } | {"work": recording.own_work.of_lane(process, thread)}
        self._within = dict.fromkeys(self._intervals, 0)

    @property
    def called(self) -> bool:
        """Whether a call came."""
        return self._ended_ns is not None

    def add(self, events: dict[str, Numbers], is_call: Numbers) -> None:
        """Calls and sections that ended before all that came until now."""
        calls = {name: column[is_call] for name, column in events.items()}
        start = calls["start_ns"].astype(np.int64)
        if self._ended_ns is None and not len(
            start
        ):  # whether it lies behind the end the last call will tell
            self._behind.append(events)
            return
        if self._ended_ns is None:  # behind the last call lies the end
            self._ended_ns = self._last_ns(int(start[-1] + calls["duration_ns"][-1] + calls["own_ns"][-1]))
            self._starts, self._place, self._section = self._ended_ns, self._nowhere, 0
            for sections in self._behind:
                own_ns = (sections["duration_ns"] - sections["child_ns"])[
                    sections["start_ns"] < self._ended_ns
                ]
                self._sections_ns += int(own_ns.sum())
            self._behind.clear()
        # Behind each call the earliest start of all after it, and whose that is: of several at one time the outermost.
        later = np.append(start, self._starts)
        earliest = np.minimum.accumulate(later[::-1])[::-1]
        between = np.flatnonzero(~is_call)
        between = between[events["start_ns"][between] < earliest[np.cumsum(is_call)[between]]]  # in no call
        self._sections_ns += int((events["duration_ns"][between] - events["child_ns"][between]).sum())
        if len(start):
            self._add_calls(calls, start, earliest)

    def _add_calls(self, calls: dict[str, Numbers], start: Numbers, earliest: Numbers) -> None:
        sites, sections = len(self._recording.sites), len(self._recording.callables)
        end = start + calls["duration_ns"] + calls["own_ns"]
        place = np.where(calls["site"] > 0, calls["site"], calls["callable"].astype(np.int64) + sites)
        section = calls["section"].astype(np.int64)
        outermost = start < earliest[1:]
        whose = np.append(np.where(outermost, np.arange(len(start)), len(start)), len(start))
        whose = np.minimum.accumulate(whose[::-1])[::-1]
        places, in_sections = np.append(place, self._place), np.append(section, self._section)
        gap = np.flatnonzero(end < earliest[1:])
        after = whose[gap + 1]
        same = np.where(section[gap] == in_sections[after], section[gap], 0)
        self._note(end[gap], earliest[gap + 1], place[gap], places[after], same, sections)
        self._data_ns += int((end - start)[outermost & self._is_data[calls["callable"]]].sum())
        self._describing_ns += int(calls["own_ns"][outermost].sum())
        self._outermost += int(np.count_nonzero(outermost))
        self._starts, self._place = int(earliest[0]), int(places[whose[0]])
        self._section = int(in_sections[whose[0]])

    def _last_ns(self, ended: int) -> int:
        if self._name != _MAIN or self._recording.cut:
            return ended
        end = self._record.end
        return max(ended, int(end.get("started_ns", 0)) + int(end.get("elapsed_ns", 0))) if end else ended

    def _note(
        self,
        begin: Numbers,
        finish: Numbers,
        after: Numbers,
        before: Numbers,
        section: Numbers,
        sections: int,
    ) -> None:
        """Stretches without a call, in their order."""
        if not len(begin):
            return
        length = finish - begin
        self._outside_ns += int(length.sum())
        for kind, intervals in self._intervals.items():
            self._within[kind] += _overlap(begin, finish, intervals)
        keys, which = distinct((after * (self._nowhere + 1) + before) * sections + section)
        order = by_group(which, len(keys))
        n = np.bincount(which)
        first = np.cumsum(n) - n
        sums, most = np.add.reduceat(length[order], first), np.maximum.reduceat(length[order], first)
        for key, count, ns, longest in zip(
            keys.tolist(), n.tolist(), sums.tolist(), most.tolist(), strict=True
        ):
            known = self._gaps.setdefault(key, [0, 0, 0])
            known[0] += count
            known[1] += ns
            known[2] = max(known[2], longest)

    def time(self) -> ThreadTime:
        """Of all calls."""
        assert self._ended_ns is not None
        first_ns = self._starts
        if self._name == _MAIN and not self._recording.cut:
            first_ns = min(first_ns, int(self._record.end.get("started_ns", first_ns)))
        if first_ns < self._starts:
            begin, finish, after, before, section = (
                np.array([value]) for value in (first_ns, self._starts, self._nowhere, self._place, 0)
            )
            self._note(begin, finish, after, before, section, len(self._recording.callables))
        cost = self._record.end.get("cost", {})
        a_call = max(0.0, cost.get("added_ns", 0.0) - cost.get("inside_ns", 0.0))
        several = len(self._recording.processes) > 1
        wall_ns = self._ended_ns - first_ns
        return ThreadTime(
            f"{self._name} ({self._recording.process_names()[self._process]})" if several else self._name,
            self._process,
            self._thread,
            first_ns,
            wall_ns,
            wall_ns - self._outside_ns,
            self._data_ns,
            self._describing_ns,
            self._within["gc"],
            self._within["compile"],
            self._within["import"],
            min(self._outside_ns, self._within["work"] + int(a_call * self._outermost)),
            min(self._outside_ns, self._sections_ns),
            self._named_gaps(),
        )

    def _named_gaps(self) -> tuple[Gap, ...]:
        recording, sites, sections = (
            self._recording,
            len(self._recording.sites),
            len(self._recording.callables),
        )
        lines, names = recording.lines, [w.shown for w in recording.callables]

        def called(place: int, none: str) -> str:
            if place == self._nowhere:
                return none
            return lines[place] if place < sites else names[place - sites]

        together: dict[tuple[str, str, str], list[int]] = {}
        for code, (count, ns, most) in self._gaps.items():
            places, s = divmod(code, sections)
            a, b = divmod(places, self._nowhere + 1)
            key = called(a, BEGIN), called(b, END), recording.callables[s].name if s else ""
            known = together.setdefault(key, [0, 0, 0])
            known[0] += count
            known[1] += ns
            known[2] = max(known[2], most)
        made = [Gap(*key, *numbers) for key, numbers in together.items()]
        return tuple(sorted(made, key=lambda g: (-g.total_ns, g.after, g.before)))


def _overlap(begin: Numbers, finish: Numbers, intervals: Numbers) -> int:
    """How much of some intervals (start, duration) lies in the gaps, in all."""
    start, end = intervals[:, 0], intervals[:, 0] + intervals[:, 1]
    near = (end > begin[0]) & (start < finish[-1])
    if not near.any():
        return 0
    edges = np.stack([begin, finish], axis=1).ravel()
    within = np.stack([np.zeros(len(begin), np.int64), finish - begin], axis=1).ravel().cumsum()
    first, last = (np.interp(t[near] - edges[0], edges - edges[0], within) for t in (start, end))
    return int((last - first).sum())
