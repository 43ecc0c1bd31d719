"""Training steps: where each begins and ends, and how its time splits into data, forward, backward, optimizer, outside. Pure.

A step ends where the program says so (`t.step()`), where the optimizer's step ends, or is a section of a name. It begins where
the one before it ended; so the first one, whose beginning nobody knows, is left out (a section has its own).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from luxmeter.calls.chunks import lanes_of
from luxmeter.calls.groups import distinct, sums_of
from luxmeter.calls.kinds import (
    BACKWARD,
    COMMUNICATION,
    DATA,
    KINDS,
    MODULES,
    OPERATORS,
    OPTIMIZER,
    OUTSIDE,
    RECORDING,
    WHOLE,
    YOURS,
    kind_of,
)
from luxmeter.calls.records import INSIDE, OWN, SECTION, SPANNED, STEP
from luxmeter.calls.tree import with_callers
from luxmeter.errors import UsageError, suggestion
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table, span, sparkline
from luxmeter.verdict import Comparison, compare

if TYPE_CHECKING:
    from luxmeter.calls.outside import ThreadTime
    from luxmeter.calls.reader import Recording

Numbers = npt.NDArray[Any]
PARTS = ("data", "forward", "backward", "optimizer", "communication", "recording", "outside")
_RARE = ("communication", "recording")  # no column where no step has any
_KINDS_OF = {
    "data": (DATA,),
    "forward": (MODULES, OPERATORS, YOURS),
    "backward": (BACKWARD,),
    "optimizer": (OPTIMIZER,),
    "communication": (COMMUNICATION,),
    "recording": (RECORDING,),
    "outside": (OUTSIDE,),
}
OPTIMIZERS, CALLED = "the optimizer's step", "t.step()"  # what may end a step, besides a section
_FEWEST_FOR_DRIFT = 20
_MOST_FOR_DRIFT = 2000  # of a quarter: the test looks at all pairs
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One training step of one process. `kinds_ns`: its time by `KINDS`, all of them together `total_ns`.

    The time is that of the thread that trains. `forward_ns` is that of all calls that are nothing else.
    """

    number: int
    start_ns: int
    end_ns: int
    process: int
    calls: int
    kinds_ns: tuple[int, ...]

    @property
    def total_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns

    def part_ns(self, name: str) -> int:
        """The time of one of `PARTS`."""
        return sum(self.kinds_ns[kind] for kind in _KINDS_OF[name])

    @property
    def data_ns(self) -> int:
        """Waiting for a DataLoader."""
        return self.part_ns("data")

    @property
    def forward_ns(self) -> int:
        """In modules, functions and the loss."""
        return self.part_ns("forward")

    @property
    def backward_ns(self) -> int:
        """In backward."""
        return self.part_ns("backward")

    @property
    def optimizer_ns(self) -> int:
        """In the optimizer: its step, zero_grad, the clipping of gradients."""
        return self.part_ns("optimizer")

    @property
    def communication_ns(self) -> int:
        """In collectives that the program calls."""
        return self.part_ns("communication")

    @property
    def recording_ns(self) -> int:
        """The recorder's own work while a call was open: what describes calls that are new to it."""
        return self.part_ns("recording")

    @property
    def outside_ns(self) -> int:
        """In no call."""
        return self.part_ns("outside")

    def to_dict(self) -> dict[str, int]:
        """For machines."""
        named = {f"{part}_ns": self.part_ns(part) for part in PARTS}
        return {
            "step": self.number,
            "start_ns": self.start_ns,
            "total_ns": self.total_ns,
            **named,
            "calls": self.calls,
        }


class _Many(Sequence[Step]):
    """Steps as columns: there may be millions, of which few are looked at."""

    def __init__(
        self, number: Numbers, begin: Numbers, end: Numbers, process: int, calls: Numbers, kinds: Numbers
    ) -> None:
        self._columns, self._process = (number, begin, end, calls), process
        self.total_ns, self.kinds_ns = end - begin, kinds

    def __len__(self) -> int:
        return len(self.total_ns)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | Sequence[Step]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number, begin, end, calls = (int(column[at]) for column in self._columns)
        return Step(number, begin, end, self._process, calls, tuple(self.kinds_ns[at].tolist()))


class Steps:
    """The steps of a trace in their order; iterable, with a length, `steps[3]`, `steps[-5:]`."""

    def __init__(self, steps: _Many, *, by: str, zero_ns: int = 0) -> None:
        """`by`: what ends a step; `zero_ns`: when the first call began."""
        self._steps = steps
        self.by = by
        self._zero_ns = zero_ns

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | Sequence[Step]:
        return self._steps[at]

    @property
    def _times(self) -> Numbers:
        return self._steps.total_ns

    @property
    def median(self) -> Step | None:
        """The step of median length; None without one."""
        return self._steps[int(np.argsort(self._times, kind="stable")[len(self) // 2])] if len(self) else None

    def slowest(self, n: int = _SHOWN) -> list[Step]:
        """The longest first."""
        return [self._steps[at] for at in np.argsort(-self._times, kind="stable")[:n].tolist()]

    @property
    def drift(self) -> Comparison | None:
        """The last quarter of the steps against the first; None if there are too few to tell."""
        if len(self) < _FEWEST_FOR_DRIFT:
            return None
        quarter = len(self) // 4
        first, last = (
            evenly(part, _MOST_FOR_DRIFT) for part in (self._times[:quarter], self._times[-quarter:])
        )
        return compare(first, last, noise=0.0, smallest=0.02)

    def table(self, steps: Sequence[Step] | None = None) -> Table:
        """A line for each step."""
        columns = [
            Column("step", NUMBER),
            Column("at s", NUMBER, form=",.3f", goes=1),
            Column("time", DURATION),
            *(Column(part, DURATION, hidden="empty" if part in _RARE else "") for part in PARTS),
            Column("outside share", SHARE, form=".0%", goes=3),
            Column("calls", NUMBER, form=",", goes=2),
        ]
        rows = [
            [s.number, (s.start_ns - self._zero_ns) / 1e9, s.total_ns,
             *(s.part_ns(part) or (None if part in _RARE else 0) for part in PARTS),
             s.outside_ns / s.total_ns if s.total_ns else None, s.calls]
            for s in (self if steps is None else steps)
        ]  # fmt: skip
        return Table(columns, rows)

    def lines(self) -> list[str]:
        """In words: how many there are, how long, what one is made of, whether they got slower."""
        if not len(self):
            return [f"no step was found by {self.by}"]
        times = self._times
        low, middle, high = (float(np.quantile(times, q)) for q in (0.05, 0.5, 0.95))
        worst = self.slowest(1)[0]
        said = [
            f"{len(self):,} step{'s' * (len(self) != 1)} by {self.by}: median {span(middle)} "
            f"(5 to 95 %: {span(low)} to {span(high)}), slowest {span(worst.total_ns)} (step {worst.number})",
            f"of all their time: {self._split()}",
        ]
        drift = self.drift
        if drift is not None:
            words = {"higher": "slower", "lower": "faster", "same": "the same", "unclear": "no clear change"}
            said.append(f"the last quarter against the first: {words[drift.call]} ({drift.why})")
            said.append(f"over the run: {sparkline(_averaged(times))}")
        return said

    def _split(self) -> str:
        kinds = self._steps.kinds_ns.sum(axis=0)
        whole = int(self._times.sum()) or 1
        shares = {part: int(kinds[list(_KINDS_OF[part])].sum()) / whole for part in PARTS}
        return ", ".join(f"{part} {share:.1%}" for part, share in shares.items() if share > 0)

    def text(self, *, top: int = _SHOWN, width: int | None = None) -> str:
        """The lines, the step of median length, and the slowest ones."""
        if self.median is None:
            return self.lines()[0]
        middle, slow = self.table([self.median]), self.table(self.slowest(top))
        return "\n".join(
            [*self.lines(), "", "the median step", middle.text(width), "the slowest", slow.text(width)]
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(*self.lines(), self.table())


def find_steps(recording: Recording, *, by: str | None = None, sampled: bool = False) -> Steps:
    """The steps of the process that took most. `by`: the name of a section; None: `t.step()` if it was called, or else the optimizer's step.

    `sampled`: only some steps were recorded, so that one begins with its first call.
    """
    zero = recording.first_ns
    at, lanes, said = _ends(recording, by)
    if not len(at["end"]):
        none = np.empty(0, np.int64)
        return Steps(
            _Many(none, none, none, 0, none, np.empty((0, len(KINDS)), np.int64)), by=said, zero_ns=zero
        )
    process = int(np.bincount(at["process"]).argmax())
    at = {name: column[at["process"] == process] for name, column in at.items()}
    thread = _busiest_lane(lanes, process)[1]
    begin, end = at["start_ns"], at["end"]
    if by is not None:
        order = np.argsort(begin, kind="stable")
        begin, end, first = begin[order], end[order], 1
    else:
        end, first = np.unique(end), 2
        begin, end = end[:-1], end[1:]
        if sampled and len(begin):
            begin = np.minimum(_next_calls(recording, process, thread, begin), end)
    del at  # there may be millions
    sums, calls = _split(recording, process, thread, begin, end)
    keep = (end > begin) & ((calls > 0) | (not sampled))
    numbers = first + np.flatnonzero(keep)
    if not keep.all():
        begin, end, calls, sums = (column[keep] for column in (begin, end, calls, sums))
    return Steps(_Many(numbers, begin, end, process, calls, sums), by=said, zero_ns=zero)


_OF_ENDS = ("process", "callable", "site", "flags", "start_ns")


def _ends(recording: Recording, by: str | None) -> tuple[dict[str, Numbers], dict[_Level, int], str]:
    """The events whose ends are ends of steps (or that are steps, of a section); the time of each thread's levels; and what
    ends a step in words.
    """
    words = recording.callables
    wanted = [
        np.array([w.name == STEP for w in words]),
        np.array([w.boundary or _steps_by_name(w.name) for w in words]),
    ]
    if by is not None:
        wanted = [np.array([w.kind == SECTION and w.name == by for w in words], dtype=bool)]
        if not wanted[0].any():
            known = [w.name for w in words if w.kind == SECTION and w.name != STEP]
            raise UsageError(
                "no-such-section",
                f"The trace has no section called {by!r}.",
                suggestion(by, known)
                or (f"It has {', '.join(known)}." if known else "It has no section at all."),
            )
    found: list[list[dict[str, Numbers]]] = [[] for _ in wanted]
    lanes: dict[_Level, int] = {}
    for _, events in recording.chunks():
        own = (events["flags"] & OWN) != 0
        _add_levels(lanes, events, ~own)
        for i, is_it in enumerate(wanted):  # marks are the recorder's own
            at = np.flatnonzero(is_it[events["callable"]] & (own if by is None and i == 0 else ~own))
            ends = events["start_ns"][at] + events["duration_ns"][at] + events["own_ns"][at]
            found[i].append({name: events[name][at] for name in _OF_ENDS} | {"end": ends})
    joined = [
        {
            name: np.concatenate([one[name] for one in parts] or [np.empty(0, np.int64)])
            for name in (*_OF_ENDS, "end")
        }
        for parts in found
    ]
    if by is not None:
        return joined[0], lanes, f"section {by}"
    if len(joined[0]["end"]):
        return joined[0], lanes, CALLED
    steps = joined[1]
    outermost = (steps["flags"] & INSIDE) == 0  # a scaler's step calls an optimizer's
    if outermost.any():
        steps = {name: column[outermost] for name, column in steps.items()}
    return _last_of_each_turn(steps), lanes, OPTIMIZERS


_Level = tuple[int, int, int]  # process, thread, depth


def _add_levels(sums: dict[_Level, int], events: dict[str, Numbers], mine: Numbers) -> None:
    """The time of the calls of each level of each thread."""
    at = np.flatnonzero(mine)
    keys, which = distinct(
        (lanes_of(events)[at] & 0xFFFFFFFFFFFF) << 15 | np.minimum(events["depth"][at], 0x7FFF)
    )
    for key, ns in zip(
        keys.tolist(), sums_of(which, events["duration_ns"][at], len(keys)).tolist(), strict=True
    ):
        level = key >> 47, key >> 15 & 0xFFFFFFFF, key & 0x7FFF
        sums[level] = sums.get(level, 0) + ns


def _steps_by_name(name: str) -> bool:
    """Of a trace from before the calls that end a step were marked; and of a scaler, which steps its optimizer inside."""
    is_torchs = name.startswith("torch.optim.") and name.endswith(".step") and "lr_scheduler" not in name
    return is_torchs or name.endswith("GradScaler.step")


def _last_of_each_turn(steps: dict[str, Numbers]) -> dict[str, Numbers]:
    """Several optimizers that step as often as each other, in turns, are one step: that of the last ends it."""
    who = steps["process"].astype(np.int64) << 52 | steps["callable"].astype(np.int64) << 26 | steps["site"]
    kinds, first, counts = np.unique(who, return_index=True, return_counts=True)
    if len(kinds) < 2 or counts.max() - counts.min() > 1 or counts.min() < 2:
        return steps
    of_the_last = who == kinds[int(first.argmax())]
    return {name: column[of_the_last] for name, column in steps.items()}


def _busiest_lane(levels: dict[_Level, int], process: int | None = None) -> tuple[int, int]:
    """The thread that has most of the time in calls, of one process or all; by the outermost level that is recorded."""
    of = {level: ns for level, ns in levels.items() if process in (None, level[0])}
    top = min(depth for _, _, depth in of)
    return max((lane for lane in sorted(of) if lane[2] == top), key=lambda lane: of[lane])[:2]


def _next_calls(recording: Recording, process: int, thread: int, moments: Numbers) -> Numbers:
    """When the next call of a thread began, at each of some moments; behind the last one, when that did."""
    none = np.iinfo(np.int64).max
    found, last = np.full(len(moments), none), 0
    for _, events in recording.chunks(process=process):
        here = (events["process"] == process) & (events["thread"] == thread) & ((events["flags"] & OWN) == 0)
        starts = np.append(np.sort(events["start_ns"][here]), none)
        found = np.minimum(found, starts[np.searchsorted(starts, moments)])
        last = max(last, int(starts[-2])) if len(starts) > 1 else last
    return np.where(found == none, last, found)


def _kinds(
    events: dict[str, Any], parent: Numbers, fresh: int, kinds: Numbers, is_section: Numbers
) -> Numbers:
    """The kind of work around each event, once its own is known: a call's own, or that of the call that it is a part of. A section
    is no call: it is what is around it. The recorder's own work is what it is within a call, and outside elsewhere.
    """
    kind, spanned, flags = events["work"], events["spanned"], events["flags"][:fresh]
    own, section = (flags & OWN) != 0, is_section[events["callable"][:fresh]]
    kind[:fresh], spanned[:fresh] = kinds[events["callable"][:fresh]], (flags & SPANNED) != 0
    is_whole = np.zeros(len(KINDS), dtype=bool)
    is_whole[list(WHOLE)] = True
    depth, around = events["depth"][:fresh], np.full(fresh, OUTSIDE)
    for level in range(int(depth.max(initial=0)) + 1):
        at = np.flatnonzero(depth == level)
        up = parent[at]
        above, in_span = np.where(up >= 0, kind[up], OUTSIDE), (up < 0) | (spanned[up] != 0)
        around[at] = above
        # The closure of an optimizer's step is no part of it: the program's own calls within torch's.
        closure = (above == OPTIMIZER) & ~in_span & ((flags[at] & INSIDE) == 0)
        kind[at] = np.where(section[at] | (is_whole[above] & ~closure), above, kind[at])
        kind[at] = np.where(own[at], np.where(above == OUTSIDE, OUTSIDE, RECORDING), kind[at])
        spanned[at] = np.where(section[at], in_span, spanned[at])
    return around


def _split(
    recording: Recording, process: int, thread: int, begin: Numbers, end: Numbers
) -> tuple[Numbers, Numbers]:
    """For each stretch (in order of their begins) its time in a thread by kind, and how many calls began in it."""
    n, k = len(begin), len(KINDS)
    sums, calls = np.zeros((n, k), np.int64), np.zeros(n, np.int64)
    layers = _side_by_side(begin, end)
    is_section = recording.kinds == SECTION
    kinds = np.array([kind_of(w.name, w.path) for w in recording.callables], dtype=np.int64)
    for _, events, parent, fresh in with_callers(recording, process=process, work=0, spanned=0):
        parent = _nearest(events, parent, fresh)
        around = _kinds(events, parent, fresh, kinds, is_section)
        of_lane = (events["process"][:fresh] == process) & (events["thread"][:fresh] == thread)
        start, flags = events["start_ns"][:fresh], events["flags"][:fresh]
        is_call = of_lane & ((flags & OWN) == 0) & ~is_section[events["callable"][:fresh]]
        # What an event takes is taken from what is around it: so all of a stretch is of one kind or another, each moment once.
        at = np.flatnonzero(of_lane & (events["work"][:fresh] != around))
        stop = start[at] + events["duration_ns"][at] + events["own_ns"][at]
        for layer in layers:
            began, ended = begin[layer], end[layer]
            which = np.searchsorted(began, start[is_call], side="right") - 1
            which = which[(which >= 0) & (start[is_call] < ended[np.maximum(which, 0)])]
            calls[layer] += np.bincount(which, minlength=len(layer))
            first = np.searchsorted(ended, start[at], side="right")
            several = np.maximum(np.searchsorted(began, stop, side="left") - first, 0)
            call = np.repeat(np.arange(len(at)), several)
            which = first[call] + np.arange(len(call)) - np.repeat(np.cumsum(several) - several, several)
            if not len(which):
                continue
            took = np.minimum(stop[call], ended[which]) - np.maximum(start[at][call], began[which])
            low, high = int(which.min()), int(which.max()) + 1  # a chunk is about few of the stretches
            for of, sign in ((events["work"][:fresh], 1), (around, -1)):
                code = (which - low) * k + of[at][call]
                sums[layer[low:high]] += sign * sums_of(code, took, (high - low) * k).reshape(-1, k)
    sums[:, OUTSIDE] += end - begin
    return np.maximum(sums, 0), calls  # below 0 only where a forged file's calls overlap


def _nearest(events: dict[str, Numbers], parent: Numbers, fresh: int) -> Numbers:
    """Each event's caller or, where that was lost, the nearest call around it."""
    lost = np.flatnonzero((parent[:fresh] < 0) & (events["depth"][:fresh] > 0))
    if not len(lost):
        return parent
    lane, depth, start = lanes_of(events), events["depth"].astype(np.int64), events["start_ns"]
    order = np.lexsort((np.arange(len(lane)), lane))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    found, until = parent.copy(), start + events["duration_ns"] + events["own_ns"]
    for level in range(int(depth[lost].max()) - 1, -1, -1):
        above = place[order[depth[order] == level]]
        here = lost[(found[lost] < 0) & (depth[lost] > level + 1)]
        if len(above) and len(here):
            next_ = np.searchsorted(above, place[here])
            candidate = order[above[np.minimum(next_, len(above) - 1)]]
            good = (next_ < len(above)) & (lane[candidate] == lane[here])
            good &= (start[candidate] <= start[here]) & (until[candidate] >= until[here])
            found[here[good]] = candidate[good]
    return found


def _side_by_side(begin: Numbers, end: Numbers) -> list[Numbers]:
    """Stretches (in order of their begins) in groups in which none lies over another: one group, but for sections in each other."""
    if not len(begin):
        return []
    if (begin[1:] >= end[:-1]).all():
        return [np.arange(len(begin))]
    layers: list[list[int]] = []
    ends: list[int] = []
    for i, (start, stop) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        at = next((j for j, ended in enumerate(ends) if ended <= start), len(ends))
        if at == len(ends):
            ends.append(stop)
            layers.append([])
        ends[at] = stop
        layers[at].append(i)
    return [np.array(layer) for layer in layers]


def _averaged(times: Numbers) -> list[float]:
    """As many means as a line of text has room for."""
    edges = len(times) * np.arange(40) // 40
    few = len(times) <= _MOST_FOR_DRIFT
    found: list[float] = (
        times if few else np.add.reduceat(times, edges) / np.diff([*edges, len(times)])
    ).tolist()
    return found


def evenly(values: Numbers, most: int) -> Numbers:
    """At most so many of them, evenly over the run."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


@dataclass(frozen=True)
class Split:
    """Where a stretch of time went, in one thread: (number of a kind, nanoseconds); all of them are `total_ns`."""

    title: str
    total_ns: int
    parts: tuple[tuple[int, int], ...]


def split_of(recording: Recording, step: Step | None, main: ThreadTime | None = None) -> Split | None:
    """A training step, or without one all the time of a thread (`main`). None without either."""
    if step is not None:
        title, sums = "a training step (the one of median length)", np.array(step.kinds_ns)
    elif main is not None:
        begin = np.array([main.start_ns])
        title = f"the whole trace, {main.name}"
        sums = _split(recording, main.process, main.thread, begin, begin + main.wall_ns)[0][0]
    else:
        return None
    return Split(title, int(sums.sum()), tuple((k, int(ns)) for k, ns in enumerate(sums) if ns > 0))
