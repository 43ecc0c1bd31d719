"""CallTable: events -> statistics of groups of calls. Pure: numbers in, numbers out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.groups import by_group, distinct, firsts
from luxmeter.calls.records import FIRST, INSIDE, OWN, RAISED, SECTION, SPANNED, CallableNames
from luxmeter.calls.spread import EXACT, Spread
from luxmeter.calls.tree import callers_to_come, descendants, parents, with_callers
from luxmeter.errors import UsageError, suggestion
from luxmeter.render import BYTES, DURATION, NUMBER, SHARE, Column, Table

if TYPE_CHECKING:
    from luxmeter.calls.outside import ThreadTime
    from luxmeter.calls.reader import Recording, TotalsRow

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """Statistics of one group of calls. Percentiles are None where only sums were kept."""

    name: str
    n: int
    total_ns: int
    self_ns: int
    mean_ns: float
    min_ns: int
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int
    first_ns: int | None
    share: float  # of the self time of all rows
    detail: str = ""  # the signature, or a module's class
    raised: int = 0
    dispatch_ns: int | None = (
        None  # part of total_ns until the calls returned; differs on an asynchronous device
    )
    framework: str = ""  # "torch" or "mindspore"; empty for sections, threads, ranks and functions of yours
    device_ns: int | None = None  # on the accelerator, of the calls that were timed there; None: none was
    memory_bytes: int | None = None  # how much more of its memory was in use after these calls than before


BY = ("api", "signature", "module", "section", "thread", "rank", "line", "function")
ADDED_UP = ("thread", "rank")  # the time of a row is that in calls, no moment counted twice
BY_SITE = ("line", "function")  # the time of a row is that of its outermost calls: no moment twice, either
NO_SITE = "(not your code)"
Named = tuple[str, str, str]  # name, detail, framework


class CallTable:
    """Rows of statistics, the most costly first. Iterable; `table["torch.add"]` is the row of a name.

    By api, signature, line, function, thread and rank the rows count all calls, each once. By thread and rank the time is
    that in calls, and by line and function that from the line until it went on: no moment of it is counted twice in a
    row. Modules are some of the calls; sections are none.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        by: str = "api",
        notes: Sequence[str] = (),
        calls: int | None = None,
        outside: Callable[[], ThreadTime | None] | None = None,
    ) -> None:
        """`calls`: how many the rows were chosen from, if not all of them are in it. `outside` tells, when the table is shown,
        of the main thread's time without a call.
        """
        self._outside = outside
        self.rows = tuple(sorted(rows, key=lambda row: (-row.self_ns, row.name)))
        self.by = by
        self.calls = sum(row.n for row in self.rows) if calls is None else calls
        self.notes = tuple(notes)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise UsageError(
            "no-such-row",
            f"The table has no row called {name!r}.",
            suggestion(name, [row.name for row in self.rows]) or "See [row.name for row in table].",
        )

    def __contains__(self, name: object) -> bool:
        return any(row.name == name for row in self.rows)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.as_table() if self.rows else self.text())

    def text(self, *, top: int = 30, title: str = "", width: int | None = None) -> str:
        """The table for a terminal; columns that do not fit into `width` are left out, the least telling first."""
        if not self.rows:
            return "\n".join([*filter(None, [title]), f"nothing by {self.by} was recorded", *self.notes])
        return self.as_table(top=top, title=title).text(width)

    def as_table(self, *, top: int = 30, title: str = "") -> Table:
        """The first `top` rows under their columns, with what a reader must know below."""
        several = any(row.framework not in ("", "torch") for row in self.rows)
        tells_apart = self.by == "signature"
        what = (
            Column("of", is_signature=True, most=60, folds=20)
            if tells_apart
            else Column("in" if self.by in BY_SITE else "of", hidden="empty", most=60, least=20, goes=7)
        )
        columns = [
            Column(self.by, folds=40 if tells_apart else None),
            Column("framework", hidden="empty", goes=6),
            what,
            Column("n", NUMBER, form=","),
            Column("total", DURATION, goes=8),
            Column("self", DURATION),
            Column("mean", DURATION, goes=4),
            Column("p50", DURATION, goes=5),
            Column("p95", DURATION, goes=2),
            Column("max", DURATION, goes=3),
            Column("first", DURATION, goes=1),
            Column("device", DURATION, hidden="empty"),
            Column("memory", BYTES, hidden="empty", goes=7),
            Column("share", SHARE, form="6.1%"),
        ]
        rows = [
            [row.name, row.framework if several else None, row.detail, row.n, row.total_ns, row.self_ns, row.mean_ns,
             row.p50_ns, row.p95_ns, row.max_ns, row.first_ns, row.device_ns, row.memory_bytes, row.share]
            for row in self.rows[:top]
        ]  # fmt: skip
        outside = self._outside() if self._outside is not None else None
        if outside is not None:
            rows.append(["outside", None, "", None, outside.outside_ns, outside.outside_ns, *[None] * 8])
        counted = sum(row.n for row in self.rows)
        which = {"module": [f"{counted:,} of the {self.calls:,} calls are calls of modules"],
                 "section": [f"{counted:,} times in a section, which is no call: there were {self.calls:,} calls"]}  # fmt: skip
        rest = [f"... and {len(self.rows) - top} more rows"] if len(self.rows) > top else []
        return Table(
            columns,
            rows,
            title=title,
            notes=[*rest, *which.get(self.by, ()), *self.notes, *(outside.lines() if outside else ())],
        )

    @classmethod
    def from_live(cls, rows: Sequence[tuple[int, ...]], callables: Sequence[CallableNames]) -> CallTable:
        """From the recorder's running totals, by API."""
        sums: dict[tuple[str, str], list[int]] = {}
        for number, n, total, child, low, high, raised in rows:
            words = callables[number]
            if words.kind == SECTION:
                continue
            known = sums.setdefault((words.shown, words.framework), [0, 0, 0, low, high, 0])
            known[0] += n
            known[1] += total
            known[2] += child
            known[3] = min(known[3], low)
            known[4] = max(known[4], high)
            known[5] += raised
        whole = sum(s[1] - s[2] for s in sums.values()) or 1
        return cls(
            [
                Row(name, n, total, total - child, total / n, low, None, None, None, high, None,
                    (total - child) / whole, raised=raised, framework=framework)
                for (name, framework), (n, total, child, low, high, raised) in sums.items()
            ]
        )  # fmt: skip


def check_grouping(by: str) -> None:
    """Refuse what calls are not grouped by."""
    if by not in BY:
        raise UsageError(
            "unknown-grouping",
            f"table() cannot group by {by!r}.",
            suggestion(by, BY) or f"It knows {', '.join(BY)}.",
        )


def make_table(
    recording: Recording,
    by: str = "api",
    *,
    warmup: bool = True,
    inside: bool = True,
    subtract: Numbers | None = None,
    notes: Sequence[str] = (),
    outside: Callable[[], ThreadTime | None] | None = None,
) -> CallTable:
    """Group the calls and compute. `subtract`: what recording a call cost in each process, and how much of that lies within
    the call's own time: two rows of nanoseconds, to be taken off.
    """
    check_grouping(by)
    need_sites(recording, by)
    if recording.totals:
        return totals_table(recording, by, warmup=warmup, inside=inside, notes=notes)
    grouping, tally = Grouping(recording, by), _Tally()
    is_module, calls, timed = _is_module(recording), 0, on_device(recording)
    for events, parent, fresh in _chunks(recording, by, subtract):
        flags, mine = events["flags"][:fresh], {name: column[:fresh] for name, column in events.items()}
        choose = functools.partial(
            chosen_events,
            flags=flags,
            kinds=recording.kinds[mine["callable"]],
            modules=is_module[mine["callable"]],
            warmup=warmup,
            inside=inside,
        )
        at = np.flatnonzero(choose(by))
        calls += len(at) if by not in ("module", "section") else int(np.count_nonzero(choose("api")))
        codes = grouping.codes(mine, at)
        duration = mine["duration_ns"][at]
        own = duration - mine["child_ns"][at]
        if subtract is not None:
            duration, own = mine["less_ns"][at], mine["own_less_ns"][at]
        elif by == "module":
            own = duration
        total, wait = duration, mine["wait_ns"][at]
        if by in ADDED_UP:
            total = own = own if inside else np.where(flags[at] & SPANNED, own, duration)
            wait = np.where(flags[at] & INSIDE, 0, wait)
        if by in BY_SITE:
            within = mine["within"][at]
            total, wait = np.where(within, 0, total), np.where(within, 0, wait)
        tally.add(
            codes, len(grouping), mine["row"][at], duration, total, own, mine["start_ns"][at], flags[at], wait
        )
        if timed:
            device = {name: mine[name][at] for name in ("device_ns", "memory_before", "memory_after")}
            if by in (*ADDED_UP, *BY_SITE):
                device["device_ns"] = np.where(mine["within_on_device"][at], -1, device["device_ns"])
            tally.add_on_device(codes, **device)
        if by == "module" and subtract is None:
            events["group"][at] = codes
            inner, above = inner_modules(events, parent, fresh, is_module)
            tally.take_off(events["group"][above], mine["duration_ns"][inner])
    exact = (
        [] if tally.is_exact else [f"p50, p95 and p99 are within 1 %: they are exact up to {EXACT:,} calls"]
    )
    return CallTable(tally.rows(grouping.named), by=by, notes=[*notes, *exact], calls=calls, outside=outside)


def _chunks(
    recording: Recording, by: str, subtract: Numbers | None
) -> Iterator[tuple[dict[str, Numbers], Numbers, int]]:
    """Events with their places in the trace (`row`), their callers where the grouping needs them, and how many are to be counted."""
    if subtract is not None:
        yield from _chunks_less(recording, by, *subtract)
        return
    if by in (*BY_SITE, "module") or (by in ADDED_UP and on_device(recording)):
        sites = _sites(recording, by)
        for row, events, parent, fresh in with_callers(recording, group=-1):
            _note_within(recording, by, sites, events, parent)
            yield events | {"row": row + np.arange(len(parent))}, parent, fresh
        return
    for row, events in recording.chunks():
        n = len(events["flags"])
        yield events | {"row": row + np.arange(n)}, np.empty(0, np.int64), n


def _chunks_less(
    recording: Recording, by: str, added: Numbers, within: Numbers
) -> Iterator[tuple[dict[str, Numbers], Numbers, int]]:
    """As _chunks, with times that recording is taken off from (`less_ns`, `own_less_ns`).

    That depends on how many events lie below one, some of them in earlier chunks, which come later: one that may have such
    is given with these.
    """
    is_module, sites = _is_module(recording), _sites(recording, by)
    # of each event: how many lie below it, how many directly, and the time of the modules in a module
    counted: dict[str, Any] = {
        "row": 0,
        "below": 0,
        "called": 0,
        "modules_ns": 0,
        "within": False,
        "within_on_device": False,
    }
    for row, events, parent, fresh in with_callers(recording, **counted):
        first = {name: column[:fresh] for name, column in events.items()}
        first["row"][:] = row + np.arange(fresh)
        new = (events["flags"] & OWN) == 0
        new[fresh:] = False
        events["below"] += descendants(events, parent, new)
        np.add.at(events["called"], parent[new & (parent >= 0)], 1)
        if by == "module":
            inner, above = inner_modules(events, parent, fresh, is_module, of="depth")
            np.add.at(events["modules_ns"], above, events["duration_ns"][inner])
        known = dict(events)
        _note_within(recording, by, sites, known, parent)
        for name in ("within", "within_on_device"):
            first[name][:] = known[name][:fresh]
        whole = np.ones(len(parent), dtype=bool)
        if row:
            whole[callers_to_come(events, parent)] = False
        found = {name: column[whole] for name, column in events.items()}
        inner_ns = found["modules_ns"] if by == "module" else found["child_ns"]
        a, w = added[found["process"]], within[found["process"]]
        of_all = (w + found["below"] * a).astype(np.int64)
        of_own = (w + found["called"] * np.maximum(a - w, 0)).astype(np.int64)
        found["less_ns"] = np.maximum(found["duration_ns"] - of_all, 0)
        found["own_less_ns"] = np.maximum(found["duration_ns"] - inner_ns - of_own, 0)
        yield found, np.empty(0, np.int64), len(found["flags"])


def _sites(recording: Recording, by: str) -> Numbers:
    return site_groups(recording, by)[0] if by in BY_SITE else np.empty(0, np.int64)


def _note_within(
    recording: Recording, by: str, sites: Numbers, events: dict[str, Numbers], parent: Numbers
) -> None:
    """Which events lie `within` another one of their line, function, thread or rank; and, timed on a device, `within_on_device`."""
    group = sites[events["site"]] if by in BY_SITE else np.zeros(len(parent), np.int64)
    if by in BY_SITE:
        is_call = recording.kinds[events["callable"]] != SECTION
        events["within"] = _within_own_group(group, is_call, parent)
    if by in (*ADDED_UP, *BY_SITE) and on_device(recording):
        events["within_on_device"] = _within_own_group(group, events["device_ns"] >= 0, parent)


def site_groups(recording: Recording, by: str) -> tuple[Numbers, list[tuple[str, str]]]:
    """For each site the number of its line or function, and their names: the line and its function, or the function and its file."""
    groups: dict[tuple[str, str], int] = {}
    found = []
    for site, line in zip(recording.sites, recording.lines, strict=True):
        file = line.rpartition(":")[0]
        words = (
            (NO_SITE, "")
            if site is None
            else (line, site.function)
            if by == "line"
            else (site.function, file)
        )
        found.append(groups.setdefault(words, len(groups)))
    return np.array(found, dtype=np.int64), list(groups)


def _within_own_group(group: Numbers, counts: Numbers, parent: Numbers) -> Numbers:
    """Which events lie, at whatever remove, within another one of the same group that counts: their time is part of its."""
    group = np.where(counts, group, -1 - np.arange(len(group)))
    found = np.zeros(len(parent), dtype=bool)
    left = np.flatnonzero(parent >= 0)
    above = parent[left]
    while len(left):
        same = group[above] == group[left]
        found[left[same]] = True
        above = parent[above]
        on = ~same & (above >= 0)
        left, above = left[on], above[on]
    return found


def inner_modules(
    events: dict[str, Numbers], parent: Numbers, fresh: int, is_module: Numbers, *, of: str = "group"
) -> tuple[Numbers, Numbers]:
    """The modules that lie in another one that is counted (has a number in the column `of`), and that one: the next module above."""
    module = is_module[events["callable"]] & ((events["flags"] & OWN) == 0)
    inner = np.flatnonzero(module[:fresh] & (parent[:fresh] >= 0))
    above = parent[inner]
    left = np.flatnonzero(~module[above])
    while len(left):
        above[left] = parent[above[left]]
        left = left[above[left] >= 0]
        left = left[~module[above[left]]]
    good = above >= 0
    good[good] = events[of][above[good]] >= 0
    return inner[good], above[good]


def need_sites(recording: Recording, by: str) -> None:
    """Refuse what needs lines where the trace knows none."""
    if by in BY_SITE and len(recording.sites) < 2 and (recording.n or recording.totals):
        raise UsageError(
            "trace-without-lines",
            f"The trace does not know which lines made its calls, and a table by {by} needs them.",
            "Trace again with lines, as is usual; lines_in= (--lines-in) names packages whose lines are yours, too.",
        )


def self_times(recording: Recording, by: str) -> Numbers:
    """For each event its time without that of what it called; of modules, without that of the modules in them.

    Else a module whose work is recorded call by call (`inside=True`) would seem to cost nothing.
    """
    events = recording.events
    duration, depth = events["duration_ns"], events["depth"]
    if by != "module":
        return duration - events["child_ns"]
    module = _is_module(recording)[events["callable"]] & ((events["flags"] & OWN) == 0)
    parent = parents(events)
    above = np.full(len(parent), -1, dtype=np.int64)  # the module that an event is in
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero((depth == level) & (parent >= 0))
        above[here] = np.where(module[parent[here]], parent[here], above[parent[here]])
    left = duration.copy()
    inner = np.flatnonzero(module & (above >= 0))
    np.subtract.at(left, above[inner], duration[inner])
    return left


def chosen_events(
    by: str, flags: Numbers, kinds: Numbers, modules: Numbers, *, warmup: bool = True, inside: bool = True
) -> Numbers:
    """Which events (or totals rows) a grouping is about: all calls, but of modules and sections those."""
    chosen: Numbers = (flags & OWN) == 0
    chosen &= modules if by == "module" else (kinds == SECTION) == (by == "section")
    if not warmup:
        chosen &= (flags & FIRST) == 0
    if not inside:
        chosen &= (flags & INSIDE) == 0
    return chosen


def namer(recording: Recording, by: str) -> Callable[[int, int, int, int, int], Named]:
    """(callable, signature, thread, process, site) -> name, detail and framework of the group it belongs to."""
    callables, signatures, processes = recording.callables, recording.signatures, recording.processes
    if by == "signature":
        return lambda c, s, t, p, at: (
            callables[c].shown,
            str(signatures[s]) if s else "",
            callables[c].framework,
        )
    if by == "module":
        return lambda c, s, t, p, at: (callables[c].path, callables[c].name, callables[c].framework)
    if by == "thread":
        called = recording.process_names() if len(processes) > 1 else []

        def thread(c: int, s: int, t: int, p: int, at: int) -> Named:
            name = processes[p].threads.get(t, f"thread {t}")
            return (f"{name} ({called[p]})" if called else name), "", ""

        return thread
    if by == "rank":
        return lambda c, s, t, p, at: (f"rank {processes[p].rank}", "", "")
    if by in BY_SITE:
        group, words = site_groups(recording, by)
        return lambda c, s, t, p, at: (*words[group[at]], "")
    return lambda c, s, t, p, at: (callables[c].shown, "", callables[c].framework)


def _is_module(recording: Recording) -> Numbers:
    return np.array([bool(words.path) for words in recording.callables], dtype=bool)


_COLUMNS = {
    "api": ("callable",), "module": ("callable",), "section": ("callable",),
    "signature": ("callable", "signature"), "thread": ("process", "thread"), "rank": ("process",),
    "line": ("site",), "function": ("site",),
}  # fmt: skip


class Grouping:
    """Group numbers of events, the same in all chunks; `named` has their names."""

    def __init__(self, recording: Recording, by: str) -> None:
        self._columns, self._name = _COLUMNS[by], namer(recording, by)
        self._groups: dict[Named, int] = {}
        self._known: dict[int, int] = {}  # by the columns' numbers, in one
        self._limits = [
            len(recording.signatures) if name == "signature" else 1 << 32 for name in self._columns
        ]

    def __len__(self) -> int:
        return len(self._groups)

    def in_order(self) -> list[Named]:
        """The names by their numbers."""
        return list(self._groups)

    @property
    def named(self) -> dict[Named, int]:
        """Names and numbers of the groups, by the first of their numbers in the columns: not by when they came."""
        order: dict[int, int] = {}
        for key, group in self._known.items():
            order[group] = min(key, order.get(group, key))
        return dict(sorted(self._groups.items(), key=lambda pair: order[pair[1]]))

    def codes(self, events: dict[str, Numbers], at: Numbers) -> Numbers:
        """The group of each chosen event."""
        code = np.zeros(len(at), dtype=np.int64)
        for column, limit in zip(self._columns, self._limits, strict=True):
            code = code * limit + events[column][at]
        values, inverse = distinct(code)
        new = [i for i, value in enumerate(values.tolist()) if value not in self._known]
        if new:
            first = at[firsts(inverse, len(values))[new]]
            said = np.stack(
                [events[c][first] for c in ("callable", "signature", "thread", "process", "site")], axis=1
            )
            for i, numbers in zip(new, said.tolist(), strict=True):
                self._known[int(values[i])] = self._groups.setdefault(self._name(*numbers), len(self._groups))
        found: Numbers = np.array([self._known[value] for value in values.tolist()], dtype=np.int64)[inverse]
        return found


def on_device(recording: Recording) -> bool:
    """Whether calls were timed on an accelerator."""
    return "device_ns" in recording.events


class _Tally:
    """Statistics of groups of calls that come chunk by chunk."""

    _SUMS = ("n", "total", "own", "dispatch", "raised")
    _ON_DEVICE = ("device", "timed", "memory", "told")

    def __init__(self) -> None:
        self._sums = {name: np.zeros(0, np.int64) for name in (*self._SUMS, *self._ON_DEVICE)}
        self._least = self._most = self._first_ns = self._begin = self._row = np.zeros(0, np.int64)
        self._times = Spread()

    @property
    def is_exact(self) -> bool:
        """Whether the percentiles are."""
        return self._times.is_exact

    def add(
        self,
        codes: Numbers,
        groups: int,
        row: Numbers,
        duration: Numbers,
        total_time: Numbers,
        own: Numbers,
        start: Numbers,
        flags: Numbers,
        wait: Numbers,
    ) -> None:
        """Calls of some of `groups` groups; `row` tells them from each other in the order of the trace."""
        self._room_for(groups)
        if not len(codes):
            return
        here, local = distinct(codes)
        order = by_group(local, len(here))
        n = np.bincount(local)
        begin = np.cumsum(n) - n
        values = {"total": total_time, "own": own, "dispatch": total_time - wait, "raised": flags & RAISED}
        self._sums["n"][here] += n
        for name, column in values.items():
            self._sums[name][here] += np.add.reduceat(column[order].astype(np.int64, copy=False), begin)
        grouped, starts = duration[order], start[order]
        self._least[here] = np.minimum(self._least[here], np.minimum.reduceat(grouped, begin))
        self._most[here] = np.maximum(self._most[here], np.maximum.reduceat(grouped, begin))
        self._note_first(
            here,
            order,
            np.repeat(np.arange(len(here)), n),
            starts,
            np.minimum.reduceat(starts, begin),
            row,
            grouped,
        )
        self._times.add(codes[order], grouped)

    def add_on_device(
        self, codes: Numbers, device_ns: Numbers, memory_before: Numbers, memory_after: Numbers
    ) -> None:
        """Of the calls that were added last the time on the accelerator, and how much more of its memory was in use after them."""
        timed = device_ns >= 0
        told = timed & (memory_before >= 0) & (memory_after >= 0)
        values = (np.where(timed, device_ns, 0), timed, np.where(told, memory_after - memory_before, 0), told)
        for name, column in zip(self._ON_DEVICE, values, strict=True):
            np.add.at(self._sums[name], codes, column)

    def _note_first(
        self,
        here: Numbers,
        order: Numbers,
        local: Numbers,
        starts: Numbers,
        earliest: Numbers,
        row: Numbers,
        grouped: Numbers,
    ) -> None:
        """The call that began first, of several at one time the one that comes first in the trace."""
        at = np.flatnonzero(starts == earliest[local])
        at = at[firsts(local[at], len(here))]
        rows = row[order[at]]
        known, said = self._begin[here], self._row[here]
        better = (earliest < known) | ((earliest == known) & (rows < said))
        to = here[better]
        self._begin[to], self._row[to], self._first_ns[to] = (
            earliest[better],
            rows[better],
            grouped[at][better],
        )

    def _room_for(self, groups: int) -> None:
        more = groups - len(self._least)
        if more > 0:
            top = np.full(more, np.iinfo(np.int64).max)
            self._sums = {
                name: np.concatenate([s, np.zeros(more, np.int64)]) for name, s in self._sums.items()
            }
            self._least, self._begin, self._row = (
                np.concatenate([a, top]) for a in (self._least, self._begin, self._row)
            )
            self._most = np.concatenate([self._most, np.full(more, np.iinfo(np.int64).min)])
            self._first_ns = np.concatenate([self._first_ns, np.zeros(more, np.int64)])

    def take_off(self, codes: Numbers, own: Numbers) -> None:
        """Of the groups' own time."""
        np.subtract.at(self._sums["own"], codes, own)

    def rows(self, named: dict[Named, int]) -> list[Row]:
        """A row for each group."""
        whole = int(self._sums["own"].sum()) or 1
        percentiles = self._times.percentiles(len(named), self._least, self._most)
        rows = []
        for (name, detail, framework), i in named.items():
            n, total, self_ns, dispatch, raised = (int(self._sums[key][i]) for key in self._SUMS)
            device, timed, memory, told = (int(self._sums[key][i]) for key in self._ON_DEVICE)
            p50, p95, p99 = percentiles[i]
            rows.append(
                Row(name, n, total, self_ns, total / n, int(self._least[i]), p50, p95, p99, int(self._most[i]),
                    int(self._first_ns[i]), self_ns / whole, detail, raised, dispatch, framework,
                    device if timed else None, memory if told else None)
            )  # fmt: skip
        return rows


def bucket_edges(n: int) -> Numbers:
    """Lower edges in ns of the first `n` buckets and the end of the last: 0 1 2 3 4 5 6 7 8 10 12 14 16 20 ..."""
    at = np.arange(n + 1, dtype=np.float64)
    octave = np.floor(at / 4) + 1
    edges: Numbers = np.where(at < 4, at, (4 + at % 4) * 2.0 ** (octave - 2))
    return edges


def totals_table(
    recording: Recording, by: str, *, warmup: bool = True, inside: bool = True, notes: Sequence[str] = ()
) -> CallTable:
    """As make_table, from rows that stand for many calls, with a histogram of four buckets a doubling: percentiles are right to about a tenth."""
    kinds = np.array([recording.callables[t.callable].kind for t in recording.totals])
    modules = np.array([bool(recording.callables[t.callable].path) for t in recording.totals])
    flags = np.array([t.flags for t in recording.totals])
    choose = functools.partial(
        chosen_events, flags=flags, kinds=kinds, modules=modules, warmup=warmup, inside=inside
    )
    name = namer(recording, by)
    groups: dict[Named, list[TotalsRow]] = {}
    for t, wanted in zip(recording.totals, choose(by), strict=True):
        if wanted:
            groups.setdefault(name(t.callable, t.signature, t.thread, t.process, t.site), []).append(t)
    calls = sum(t.n for t, wanted in zip(recording.totals, choose("api"), strict=True) if wanted)
    own = {
        named: sum(t.total_ns - t.child_ns if _without_inner(t, by, inside) else t.total_ns for t in rows)
        for named, rows in groups.items()
    }
    whole = sum(own.values()) or 1
    made = [_totals_row(named, rows, by, own[named], whole) for named, rows in groups.items()]
    return CallTable(made, by=by, notes=notes, calls=calls)


def _without_inner(t: TotalsRow, by: str, inside: bool) -> bool:
    """Whether what a row's calls called is counted elsewhere."""
    return by not in ADDED_UP or inside or bool(t.flags & SPANNED)


def _totals_row(named: Named, rows: list[TotalsRow], by: str, own: int, whole: int) -> Row:
    n = sum(t.n for t in rows)
    total = own if by in (*ADDED_UP, *BY_SITE) else sum(t.total_ns for t in rows)
    low, high = min(t.min_ns for t in rows), max(t.max_ns for t in rows)
    histogram = np.sum([t.histogram for t in rows], axis=0)
    first = [t.min_ns for t in rows if t.flags & FIRST]
    p50, p95, p99 = (int(min(max(_percentile(histogram, p), low), high)) for p in (50, 95, 99))
    raised = sum(t.n for t in rows if t.flags & RAISED)
    waited = sum(t.wait_ns for t in rows if by not in ADDED_UP or not t.flags & INSIDE)
    return Row(
        named[0], n, total, own, total / n, low, p50, p95, p99, high, first[0] if first else None, own / whole,
        named[1], raised, total - waited, named[2],
    )  # fmt: skip


def _percentile(histogram: Numbers, percent: float) -> float:
    edges = bucket_edges(len(histogram))
    reached = np.cumsum(histogram)
    wanted = percent / 100 * reached[-1]
    at = int(np.searchsorted(reached, wanted))
    before = reached[at - 1] if at else 0
    within = (wanted - before) / histogram[at] if histogram[at] else 0.0
    return float(edges[at] + within * (edges[at + 1] - edges[at]))
