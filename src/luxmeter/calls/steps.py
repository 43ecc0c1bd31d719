"""Training steps: where each begins and ends, and how its time splits into data, forward, backward, optimizer and outside. Pure.

A step ends where the program says so (`t.step()`), where the optimizer's step ends, or is a section of a name. It begins where
the one before it ended; so the first one, whose beginning nobody knows, is left out (a section has its own).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.kinds import (
    BACKWARD,
    COMMUNICATION,
    DATA,
    KINDS,
    MODULES,
    OPERATORS,
    OPTIMIZER,
    OUTSIDE,
    WHOLE,
    YOURS,
    kind_of,
)
from luxmeter.calls.records import INSIDE, OWN, SECTION, SPANNED, STEP
from luxmeter.calls.tree import parents
from luxmeter.errors import UsageError, suggestion
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table, span, sparkline
from luxmeter.verdict import Comparison, compare

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording

Numbers = npt.NDArray[Any]
PARTS = ("data", "forward", "backward", "optimizer", "communication", "outside")
_KINDS_OF = {
    "data": (DATA,),
    "forward": (MODULES, OPERATORS, YOURS),
    "backward": (BACKWARD,),
    "optimizer": (OPTIMIZER,),
    "communication": (COMMUNICATION,),
    "outside": (OUTSIDE,),
}
OPTIMIZERS, CALLED = "the optimizer's step", "t.step()"  # what may end a step, besides a section
_FEWEST_FOR_DRIFT = 20
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


class Steps:
    """The steps of a trace in their order; iterable, with a length, `steps[3]`."""

    def __init__(self, steps: Sequence[Step], *, by: str, zero_ns: int = 0) -> None:
        """`by`: what ends a step; `zero_ns`: when the first call began."""
        self._steps = tuple(steps)
        self.by = by
        self._zero_ns = zero_ns

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, at: int) -> Step:
        return self._steps[at]

    @property
    def median(self) -> Step | None:
        """The step of median length; None without one."""
        return sorted(self._steps, key=lambda s: s.total_ns)[len(self) // 2] if self._steps else None

    def slowest(self, n: int = _SHOWN) -> list[Step]:
        """The longest first."""
        return sorted(self._steps, key=lambda s: -s.total_ns)[:n]

    @property
    def drift(self) -> Comparison | None:
        """The last quarter of the steps against the first; None if there are too few to tell."""
        if len(self) < _FEWEST_FOR_DRIFT:
            return None
        quarter = len(self) // 4
        times = [step.total_ns for step in self]
        return compare(times[:quarter], times[-quarter:], noise=0.0, smallest=0.02)

    def table(self, steps: Sequence[Step] | None = None) -> Table:
        """A line for each step."""
        columns = [
            Column("step", NUMBER),
            Column("at s", NUMBER, form=",.3f", goes=1),
            Column("time", DURATION),
            *(Column(part, DURATION, hidden="empty" if part == "communication" else "") for part in PARTS),
            Column("outside share", SHARE, form=".0%", goes=3),
            Column("calls", NUMBER, form=",", goes=2),
        ]
        rows = [
            [s.number, (s.start_ns - self._zero_ns) / 1e9, s.total_ns,
             *(s.part_ns(part) or (None if part == "communication" else 0) for part in PARTS),
             s.outside_ns / s.total_ns if s.total_ns else None, s.calls]
            for s in (self if steps is None else steps)
        ]  # fmt: skip
        return Table(columns, rows)

    def lines(self) -> list[str]:
        """In words: how many there are, how long, what one is made of, whether they got slower."""
        if not self._steps:
            return [f"no step was found by {self.by}"]
        times = np.array([step.total_ns for step in self])
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
            said.append(f"over the run: {sparkline(times.tolist())}")
        return said

    def _split(self) -> str:
        whole = sum(s.total_ns for s in self) or 1
        shares = {part: sum(s.part_ns(part) for s in self) / whole for part in PARTS}
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
    events = recording.events
    mine = recording.of_program()
    zero = int(events["start_ns"][mine].min()) if mine.any() else 0
    at, said = _ends(recording, by)
    if not len(at):
        return Steps((), by=said, zero_ns=zero)
    process = int(np.bincount(events["process"][at]).argmax())
    at = at[events["process"][at] == process]
    end = events["start_ns"][at] + events["duration_ns"][at] + events["own_ns"][at]
    lane = _busiest_lane(events, mine & (events["process"] == process))
    here = {name: column[lane] for name, column in events.items()}
    starts_of_calls = np.sort(here["start_ns"])
    if by is not None:
        begin = events["start_ns"][at]
        order = np.argsort(begin, kind="stable")
        begin, end, first = begin[order], end[order], 1
    else:
        end, first = np.unique(end), 2
        begin, end = end[:-1], end[1:]
        if sampled and len(begin):
            next_call = np.minimum(np.searchsorted(starts_of_calls, begin), len(starts_of_calls) - 1)
            begin = np.minimum(starts_of_calls[next_call], end)
    sums, calls = _split(recording, here, begin, end)
    steps = [
        Step(number, int(b), int(e), process, int(n), tuple(int(x) for x in parts))
        for number, (b, e, n, parts) in enumerate(zip(begin, end, calls, sums, strict=True), first)
        if e > b
    ]
    if sampled:
        steps = [step for step in steps if step.calls]
    return Steps(steps, by=said, zero_ns=zero)


def _ends(recording: Recording, by: str | None) -> tuple[Numbers, str]:
    """The events whose ends are ends of steps (or that are steps, of a section), and what that is in words."""
    events, words = recording.events, recording.callables
    own = (events["flags"] & OWN) != 0
    if by is not None:
        is_it = np.array([w.kind == SECTION and w.name == by for w in words], dtype=bool)
        if not is_it.any():
            known = [w.name for w in words if w.kind == SECTION and w.name != STEP]
            raise UsageError(
                "no-such-section",
                f"The trace has no section called {by!r}.",
                suggestion(by, known)
                or (f"It has {', '.join(known)}." if known else "It has no section at all."),
            )
        return np.flatnonzero(is_it[events["callable"]] & ~own), f"section {by}"
    is_mark = np.array([w.name == STEP for w in words], dtype=bool)
    marks = np.flatnonzero(is_mark[events["callable"]] & own)
    if len(marks):
        return marks, CALLED
    is_step = np.array([w.boundary or _steps_by_name(w.name) for w in words], dtype=bool)
    steps = np.flatnonzero(is_step[events["callable"]] & ~own)
    outermost = steps[(events["flags"][steps] & INSIDE) == 0]  # a scaler's step calls an optimizer's
    return _last_of_each_turn(events, outermost if len(outermost) else steps), OPTIMIZERS


def _steps_by_name(name: str) -> bool:
    """Of a trace from before the calls that end a step were marked; and of a scaler, which steps its optimizer inside."""
    is_torchs = name.startswith("torch.optim.") and name.endswith(".step") and "lr_scheduler" not in name
    return is_torchs or name.endswith("GradScaler.step")


def _last_of_each_turn(events: dict[str, Numbers], at: Numbers) -> Numbers:
    """Several optimizers that step as often as each other, in turns, are one step: that of the last ends it."""
    who = (
        events["process"][at].astype(np.int64) << 52
        | events["callable"][at].astype(np.int64) << 26
        | events["site"][at]
    )
    kinds, first, counts = np.unique(who, return_index=True, return_counts=True)
    if len(kinds) < 2 or counts.max() - counts.min() > 1 or counts.min() < 2:
        return at
    of_the_last: Numbers = at[who == kinds[int(first.argmax())]]
    return of_the_last


def _busiest_lane(events: dict[str, Any], mine: Numbers) -> Numbers:
    """Which events are of the thread that has most of the time in calls."""
    lane = events["process"].astype(np.int64) << 32 | events["thread"].astype(np.int64)
    top = mine & (events["depth"] == events["depth"][mine].min())
    lanes, codes = np.unique(lane[top], return_inverse=True)
    sums = np.bincount(codes, weights=events["duration_ns"][top])
    return np.flatnonzero(mine & (lane == lanes[int(sums.argmax())]))


def _kinds(recording: Recording, events: dict[str, Any]) -> Numbers:
    """The kind of work of each event: a call's own, or that of the call that it is a part of. A section is no call."""
    kinds = np.array(
        [OUTSIDE if w.kind == SECTION else kind_of(w.name, w.path) for w in recording.callables],
        dtype=np.int64,
    )
    kind: Numbers = kinds[events["callable"]]
    parent, depth = parents(events), events["depth"]
    is_whole = np.zeros(len(KINDS), dtype=bool)
    is_whole[list(WHOLE)] = True
    for level in range(int(depth.min(initial=0)) + 1, int(depth.max(initial=0)) + 1):
        at = np.flatnonzero((depth == level) & (parent >= 0))
        above = kind[parent[at]]
        # The closure of an optimizer's step is no part of it: the program's own calls within torch's.
        flags = events["flags"]
        closure = (above == OPTIMIZER) & ((flags[parent[at]] & SPANNED) == 0) & ((flags[at] & INSIDE) == 0)
        kind[at] = np.where(is_whole[above] & ~closure, above, kind[at])
    return kind


def _split(
    recording: Recording, events: dict[str, Any], begin: Numbers, end: Numbers
) -> tuple[Numbers, Numbers]:
    """For each stretch (in order, none over another) its time by kind, and how many calls began in it."""
    n, k = len(begin), len(KINDS)
    kind = _kinds(recording, events)
    own = np.maximum(events["duration_ns"].astype(np.int64) - events["child_ns"].astype(np.int64), 0)
    which = np.searchsorted(begin, events["start_ns"], side="right") - 1
    inside = (
        (which >= 0) & (events["start_ns"] < end[np.maximum(which, 0)]) if n else np.zeros(len(which), bool)
    )
    at = np.flatnonzero(inside & (kind != OUTSIDE))
    sums = np.bincount(which[at] * k + kind[at], weights=own[at], minlength=n * k)[: n * k]
    sums = sums.reshape(n, k).astype(np.int64)
    sums[:, OUTSIDE] = np.maximum(0, end - begin - sums.sum(axis=1))
    return sums, np.bincount(which[at], minlength=n)[:n]


@dataclass(frozen=True)
class Split:
    """Where a stretch of time went, in one thread: (number of a kind, nanoseconds); all of them are `total_ns`."""

    title: str
    total_ns: int
    parts: tuple[tuple[int, int], ...]


def split_of(recording: Recording, step: Step | None) -> Split | None:
    """A training step, or the whole trace without one. None without calls."""
    mine = recording.of_program()
    if recording.totals or not mine.any():
        return None
    if step is not None:
        title, sums = "a training step (the one of median length)", np.array(step.kinds_ns)
    else:
        lane = _busiest_lane(recording.events, mine)
        here = {name: column[lane] for name, column in recording.events.items()}
        first = here["start_ns"].min(keepdims=True)
        last = (here["start_ns"] + here["duration_ns"] + here["own_ns"]).max(keepdims=True)
        title, sums = "the whole trace, one thread", _split(recording, here, first, last)[0][0]
    return Split(title, int(sums.sum()), tuple((k, int(ns)) for k, ns in enumerate(sums) if ns > 0))
