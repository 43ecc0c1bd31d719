"""Two traces of the same program: what got slower, what is new, what is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from luxmeter import environment
from luxmeter.calls.groups import by_group, distinct, sums_of
from luxmeter.calls.options import TraceOptions
from luxmeter.calls.reader import Numbers, Recording
from luxmeter.calls.records import FIRST
from luxmeter.calls.result import TraceResult
from luxmeter.calls.source import same_lines
from luxmeter.calls.spread import Spread
from luxmeter.calls.steps import evenly
from luxmeter.calls.table import (
    BY_SITE,
    Grouping,
    chosen_events,
    inner_modules,
    namer,
    need_sites,
    self_times,
)
from luxmeter.calls.tree import with_callers
from luxmeter.environment import Difference
from luxmeter.errors import TraceError, UsageError, suggestion
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table
from luxmeter.verdict import Comparison, Regression, compare_many

ChangeKind = Literal["slower", "faster", "more", "fewer", "same", "unclear", "new", "gone"]
BY = ("api", "signature", "module", "line", "function")
MOST_VALUES = 800  # of one name: the test looks at all pairs
FEWEST_SHARED = 10  # names, below which nothing is said about what they have in common
FEWEST_CALLS = 20  # of a name that takes part in that


@dataclass(frozen=True, slots=True)
class CallChange:
    """One name in two traces. Times are self times of a call; shares are of all self time."""

    name: str
    kind: ChangeKind  # more, fewer: calls, for the length of the trace
    n_a: int
    n_b: int
    share_a: float
    share_b: float
    median_a_ns: float | None
    median_b_ns: float | None
    relative: float | None  # of the median of a call; None for new and gone
    weight: float  # of the whole, what the change moves: share times change, or the share of new and gone
    why: str


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option that the two traces were made with differently, and what of their numbers that touches."""

    name: str
    a: Any
    b: Any
    touches: str


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """B against A, the weightiest change first. Where `options` differ, the numbers may not compare."""

    options: tuple[OptionChange, ...]
    changes: tuple[CallChange, ...]
    total_a_ns: int
    total_b_ns: int
    common: float  # how much the calls of both changed together (median of all): the machine, not a call
    threshold: float  # the smallest relative change that is called one
    longer: float  # how many times as many calls B has as A (of the median share): the length of the run
    differences: tuple[Difference, ...] = ()  # of the machines and versions; none is known of older traces

    def of(self, kind: ChangeKind) -> list[CallChange]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind == kind]

    def regressions(self, threshold: float) -> list[Regression]:
        """What a call costs more, or is called more often, by more than `threshold`, beyond chance and noise."""
        found = []
        for c in self.changes:
            change = c.relative if c.kind == "slower" else None
            if c.kind == "more":
                change = c.n_b / c.n_a / self.longer - 1
            if change is not None and change > threshold:
                found.append(Regression(c.name, c.kind, change, c.why))
        return found

    def table(self, by: str = "name", *, top: int = 30, everything: bool = False) -> Table:
        """What changed; with `everything`, what did not, too."""
        kept = [c for c in self.changes if everything or c.kind not in ("same", "unclear")]
        signatures = [Column("of", is_signature=True, most=60, folds=20)] if by == "signature" else []
        columns = [
            Column(""),
            Column(by, folds=40 if signatures else None),
            *signatures,
            Column("of all", SHARE, form="+.1%"),
            Column("a call", SHARE, form="+.1%", goes=5),
            Column("median A", DURATION, goes=4),
            Column("median B", DURATION, goes=4),
            Column("n A", NUMBER, form=",", goes=3),
            Column("n B", NUMBER, form=",", goes=3),
            Column("share A", SHARE, goes=2),
            Column("share B", SHARE, goes=2),
            Column("why", goes=1),
        ]
        rows = [
            [c.kind, *(_name_and_signature(c.name) if signatures else [c.name]), c.weight, c.relative, c.median_a_ns, c.median_b_ns, c.n_a, c.n_b, c.share_a, c.share_b, c.why]
            for c in kept[:top]
        ]  # fmt: skip
        return Table(columns, rows, notes=[f"... and {len(kept) - top} more"] if len(kept) > top else [])

    def option_table(self) -> Table:
        """The options that differ."""
        rows = [
            [f"  {c.name}", *(", ".join(v) if isinstance(v, list) else v for v in (c.a, c.b)), c.touches]
            for c in self.options
        ]
        return Table([Column("  option"), Column("A"), Column("B"), Column("touches")], rows)

    def warnings(self) -> list[str]:
        """The lines above the table: why the numbers may not compare."""
        said = []
        if self.differences:
            said.append(f"not the same environment: {'; '.join(map(str, self.differences))}")
        if self.options:
            said.append("A and B were traced with different options: their numbers may not compare.")
        return said

    def summary(self) -> list[str]:
        """The lines below the table: how many changes there are of each kind."""
        counted = [f"{n} {words}" for kind, words in _KINDS.items() if (n := len(self.of(kind)))]
        quiet = len(self.of("same")) + len(self.of("unclear"))
        said = ", ".join(counted) or "no difference beyond noise"
        if quiet:
            together = (
                f" (all calls together: {self.common:+.1%})" if self.common else ""
            )  # too few tell nothing
            said += f"; of {quiet}{' others' if counted else ''} none differs by more than {self.threshold:.1%} beyond chance{together}"
        longer = [f"B has {self.longer:.3g} times as many calls as A."] if abs(self.longer - 1) > 0.05 else []
        return [said, *longer]

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(*self.warnings(), self.option_table(), self.table(), *self.summary())


_KINDS: dict[ChangeKind, str] = {
    "slower": "slower",
    "faster": "faster",
    "more": "called more often",
    "fewer": "called less often",
    "new": "new",
    "gone": "gone",
}


def diff_traces(a: TraceResult, b: TraceResult, *, by: str = "api", smallest: float = 0.05) -> TraceDiff:
    """Compare two traces, name by name, on the self times of their calls without each API's first.

    By line, a line that other lines moved is the same line, by the texts that both traces keep; its number is that in B.

    A change counts only if it is beyond chance, beyond the wandering inside each trace, larger than `smallest`, and
    stands out from the changes of all names: two runs of the same program differ by the machine's state, which moves
    every name a little and by different amounts. With fewer than ten names that cannot be told.

    A name that is called more or less often counts too, against how often all names are: numbers of calls are exact,
    and neither are twice as many steps a difference, nor what is called as often as before in them: the setting up.
    """
    if by not in BY:
        raise UsageError(
            "unknown-grouping",
            f"Traces cannot be compared by {by!r}.",
            suggestion(by, BY) or f"They can by {', '.join(BY)}.",
        )
    if not smallest > 0:
        raise UsageError(
            "bad-smallest", f"The smallest difference is {smallest!r}.", "Give a share above 0, such as 0.05."
        )
    for trace in (a, b):
        need_sites(trace.recording, by)
    moved = same_lines(a, b) if by == "line" else {}
    (values_a, numbers_a), (values_b, numbers_b) = _times(a, by, moved), _times(b, by, {})
    values, numbers = (values_a, values_b), (numbers_a, numbers_b)
    totals = [sum(int(v.total_ns) for v in side.values()) for side in values]
    shares = [
        {name: v.total_ns / (total or 1) for name, v in side.items()}
        for side, total in zip(values, totals, strict=True)
    ]
    shared = [name for name in values[0] if name in values[1]]
    if values[0] and values[1] and not shared:
        raise UsageError(
            "nothing-in-common",
            f"The two traces have no {by} in common: A has {_few(values[0])}, B {_few(values[1])}.",
            "Compare two traces of the same program.",
        )
    pairs = {name: (values[0][name].values, values[1][name].values) for name in shared}
    judged = compare_many(pairs, smallest=smallest) if pairs else {}
    common, spread = _moved_together(judged)
    threshold = max(smallest, abs(common) + spread)
    if threshold > smallest:
        judged = compare_many(pairs, smallest=threshold)
    longer = _times_as_many(numbers, {name: shares[0][name] + shares[1][name] for name in shared})
    changes = [
        _change(name, values, numbers, shares, judged, longer, smallest)
        for name in dict.fromkeys([*values[0], *values[1]])
    ]
    changes.sort(key=lambda c: (-abs(c.weight), c.name))
    options = changed_options(a, b)
    differences = tuple(environment.differences(a.environment, b.environment))
    return TraceDiff(options, tuple(changes), totals[0], totals[1], common, threshold, longer, differences)


def changed_options(a: TraceResult, b: TraceResult) -> tuple[OptionChange, ...]:
    """The options that touch what is recorded and differ; one that an older trace does not name had its default."""
    one, two = (_options(trace) for trace in (a, b))
    return tuple(
        OptionChange(name, one[name], two[name], touches)
        for name, touches in _TOUCHES.items()
        if one[name] != two[name]
    )


def _few(names: Mapping[str, Any]) -> str:
    first = min(names)
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _options(trace: TraceResult) -> dict[str, Any]:
    found = {name: trace.recorded_with.get(name, getattr(TraceOptions(), name)) for name in _TOUCHES}
    return {name: sorted(v) if isinstance(v, list | tuple) else v for name, v in found.items()}


_WHICH = "which calls are recorded"
_TOUCHES = {
    "inside": f"{_WHICH}, and how much of a call's time is its own",
    "sync": "whether a call's time holds the device's work",
    "device": "what a call cost to record",
    "only": _WHICH,
    "skip": _WHICH,
    "also": _WHICH,
    "framework": _WHICH,
    "sample": "how many calls are recorded",
    "budget": "how many calls are recorded",
    "totals": "whether calls are recorded one by one",
    "signatures": "what a call cost to record, and names by signature",
    "strides": "what a call cost to record, and names by signature",
    "max_signatures": "names by signature",
    "facts": "what the first call of a signature cost to record",
    "lines": "what a call cost to record, and names by line and function",
    "lines_in": "names by line and function",
    "lossless": "whether the program waited for the recorder",
    "core": "what a call cost to record",
}


Values = npt.NDArray[np.float64]


def _moved_together(judged: Mapping[str, Comparison]) -> tuple[float, float]:
    """The median of the names' changes, and how far from it chance takes the farthest of so many names.

    The spread is a median deviation, which a few real changes do not move, but which few names tell badly: Student's t
    with its efficiency (37 %) as degrees of freedom, at 1 % for all names together.
    """
    enough = [c.relative.estimate for c in judged.values() if min(c.n_a, c.n_b) >= FEWEST_CALLS]
    moved = np.array([estimate for estimate in enough if np.isfinite(estimate)])
    if len(moved) < FEWEST_SHARED:
        return 0.0, 0.0
    from scipy.stats import t as student

    common = float(np.median(moved))
    deviation = 1.4826 * float(np.median(np.abs(moved - common)))
    return common, deviation * float(student.ppf(1 - 0.005 / len(moved), 0.37 * (len(moved) - 1)))


def _times_as_many(numbers: Sequence[dict[str, int]], shares: Mapping[str, float]) -> float:
    """The ratio of the numbers of calls that half of the time has or stays below."""
    ratios = sorted((numbers[1][name] / numbers[0][name], share) for name, share in shares.items())
    gone, half = 0.0, sum(shares.values()) / 2
    for ratio, share in ratios:
        gone += share
        if gone >= half:
            return ratio
    return 1.0


def _change(
    name: str,
    values: Sequence[dict[str, _Times]],
    numbers: Sequence[dict[str, int]],
    shares: Sequence[dict[str, float]],
    judged: Mapping[str, Comparison],
    longer: float,
    smallest: float,
) -> CallChange:
    n_a, n_b = (side.get(name, 0) for side in numbers)
    share_a, share_b = (side.get(name, 0.0) for side in shares)
    medians = [side[name].median_ns if name in side else None for side in values]
    if name not in judged:
        kind: ChangeKind = "new" if n_b else "gone"
        relative, weight, why = None, share_b - share_a, "only in B" if n_b else "only in A"
    else:
        kind, relative, weight, why = _moved(
            judged[name], 1.0 if n_a == n_b else n_b / n_a / longer, share_a, smallest
        )
    return CallChange(name, kind, n_a, n_b, share_a, share_b, medians[0], medians[1], relative, weight, why)


def _moved(
    found: Comparison, often: float, share: float, smallest: float
) -> tuple[ChangeKind, float, float, str]:
    """Kind, relative change of a call, weight and reason of a name in both traces.

    `often` is how many times as often it is called as names are altogether. What changed more, a call or their number,
    gives the kind.
    """
    words: dict[str, ChangeKind] = {
        "higher": "slower",
        "lower": "faster",
        "same": "same",
        "unclear": "unclear",
    }
    kind, why = words[found.call], found.why
    relative = float(found.relative.estimate)
    speed = 1 + relative if found.call in ("higher", "lower") and np.isfinite(relative) else 1.0
    if abs(often - 1) <= smallest:
        return kind, relative, share * (speed - 1), why
    if speed <= 0 or abs(np.log(often)) > abs(np.log(speed)):
        kind = "more" if often > 1 else "fewer"
    a_call = f"; a call {why}" if speed != 1 else ""
    return kind, relative, share * (speed * often - 1), f"{often:.3g} times as often{a_call}"


@dataclass(frozen=True, slots=True)
class _Times:
    """Self times of a name's calls after the first: some of them, in their order, evenly over the run; and of all."""

    values: Values
    total_ns: float
    median_ns: float

    @classmethod
    def of(cls, values: Values) -> _Times:
        return cls(evenly(values, MOST_VALUES), float(values.sum()), float(np.median(values)))


def _times(trace: TraceResult, by: str, moved: Mapping[str, str]) -> tuple[dict[str, _Times], dict[str, int]]:
    """Self times in ns of each name; and the number of all its calls."""
    recording: Recording = trace.recording
    if recording.totals:
        raise TraceError(
            "totals-only",
            f"The trace in {trace.folder} kept totals only, and a comparison needs the calls.",
            "Trace again without totals=True.",
        )
    if not recording.is_held:
        return _times_of_many(recording, by, moved)
    events = recording.events
    modules = np.array([bool(w.path) for w in recording.callables], dtype=bool)
    code = events["callable"]
    keep = chosen_events(by, events["flags"], recording.kinds[code], modules[code])
    key = _key(events, by)
    warm = keep & ((events["flags"] & FIRST) == 0)
    only_first = ~np.isin(key, np.unique(key[warm]))  # called once: better the first call than none
    at = np.flatnonzero(warm | (keep & only_first))
    at = at[np.argsort(events["start_ns"][at], kind="stable")]
    own = self_times(recording, by)[at].astype(np.float64)
    name = namer(recording, by)
    chosen = key[at]
    groups: dict[str, list[Any]] = {}
    counted: dict[str, int] = {}
    called = dict(zip(*(found.tolist() for found in np.unique(key[keep], return_counts=True)), strict=True))
    for number in np.unique(chosen).tolist():
        said, detail, _ = name(number >> 32, number & 0xFFFFFFFF, 0, 0, number & 0xFFFFFFFF)
        full = _full_name(said, detail, by, moved)
        groups.setdefault(full, []).append(np.flatnonzero(chosen == number))
        counted[full] = counted.get(full, 0) + called[number]
    return {full: _Times.of(own[np.sort(np.concatenate(parts))]) for full, parts in groups.items()}, counted


def _name_and_signature(full: str) -> tuple[str, str]:
    """`_full_name` undone."""
    name, _, rest = full.partition("(")
    return name, rest.removesuffix(")")


def _full_name(said: str, detail: str, by: str, moved: Mapping[str, str]) -> str:
    return f"{said}({detail})" if by == "signature" else moved.get(said, said)


_SAMPLED = 1 << 14  # of a name, whose median stands for that of millions


def _times_of_many(
    recording: Recording, by: str, moved: Mapping[str, str]
) -> tuple[dict[str, _Times], dict[str, int]]:
    """The same of calls that are not held: counted first, then some are picked, evenly in the order of the trace."""
    grouping, is_module = (
        Grouping(recording, by),
        np.array([bool(w.path) for w in recording.callables], dtype=bool),
    )
    codes: dict[str, int] = {}
    n = total = called = np.zeros(0, np.int64)
    first: list[tuple[Numbers, Numbers, Numbers]] = []  # the groups, starts and times of first calls
    within: list[
        tuple[Numbers, Numbers]
    ] = []  # of which first calls (by their place) what is to be taken off
    spread, firsts_until = Spread(), 0

    def chosen() -> Iterator[tuple[dict[str, Numbers], Numbers, Numbers, Numbers, Numbers, int]]:
        nonlocal n, total, called
        for _, events, parent, fresh in with_callers(recording, group=-1, first=-1):
            flags, code = events["flags"][:fresh], events["callable"][:fresh]
            keep = chosen_events(by, flags, recording.kinds[code], is_module[code])
            at = np.flatnonzero(keep)
            said = grouping.codes({name: column[:fresh] for name, column in events.items()}, at)
            full = np.array(
                [
                    codes.setdefault(_full_name(*words[:2], by, moved), len(codes))
                    for words in grouping.in_order()
                ]
            )
            n, total, called = (np.pad(sums, (0, len(codes) - len(sums))) for sums in (n, total, called))
            yield events, parent, at, full[said] if len(at) else said, (flags[at] & FIRST) == 0, fresh

    def own_of(events: dict[str, Numbers], at: Numbers) -> Numbers:
        found: Numbers = events["duration_ns"][at] - (0 if by == "module" else events["child_ns"][at])
        return found

    for events, parent, at, code, warm, fresh in chosen():
        called += np.bincount(code, minlength=len(called))
        n += np.bincount(code[warm], minlength=len(n))
        own = own_of(events, at)
        total += sums_of(code[warm], own[warm], len(total))
        first.append((code[~warm], events["start_ns"][at[~warm]], own[~warm]))
        if by == "module":
            events["group"][at[warm]] = code[warm]
            inner, above = inner_modules(events, parent, fresh, is_module)
            np.subtract.at(total, events["group"][above], events["duration_ns"][inner])
            events["first"][at[~warm]] = firsts_until + np.arange(len(first[-1][0]))
            inner, above = inner_modules(events, parent, fresh, is_module, of="first")
            within.append((events["first"][above], events["duration_ns"][inner]))
        else:
            spread.add(code[warm], own[warm])
        firsts_until += len(first[-1][0])
    ends = np.cumsum(np.minimum(n, _SAMPLED))
    starts, times = (
        np.zeros(int(ends[-1]) if len(ends) else 0, np.int64),
        np.zeros(int(ends[-1]) if len(ends) else 0, np.float64),
    )
    wanted = [np.linspace(0, max(0, m - 1), min(m, _SAMPLED)).astype(np.int64) for m in n.tolist()]
    left = n.copy()  # calls of each group that are still to come, from the last one on
    for events, parent, at, code, warm, fresh in chosen():
        at, code = at[warm], code[warm]
        here, local = distinct(code)
        m = np.bincount(local, minlength=len(here))
        order, begin = by_group(local, len(here)), np.cumsum(m) - m
        for k, group in enumerate(here.tolist()):
            low = int(left[group] - m[k])
            span = slice(*np.searchsorted(wanted[group], [low, left[group]]))
            picked = at[order[begin[k] + wanted[group][span] - low]]
            into = int(ends[group]) - len(wanted[group]) + np.arange(*span.indices(len(wanted[group])))
            starts[into], times[into] = events["start_ns"][picked], own_of(events, picked)
            events["group"][picked] = into
            left[group] = low
        if by == "module":
            inner, above = inner_modules(events, parent, fresh, is_module)
            np.subtract.at(times, events["group"][above], events["duration_ns"][inner].astype(np.float64))
    code, start, own = (
        np.concatenate([one[i] for one in first] or [np.empty(0, np.int64)]) for i in range(3)
    )
    for places, inner_ns in within:
        np.subtract.at(own, places, inner_ns)
    limits = np.iinfo(np.int64)
    medians = spread.percentiles(len(codes), *(np.full(len(codes), end) for end in (limits.min, limits.max)))
    found: dict[str, _Times] = {}
    for name, group in codes.items():
        if n[group]:
            its = np.arange(int(ends[group]) - len(wanted[group]), int(ends[group]))
            values = times[its[np.argsort(starts[its], kind="stable")]]
            is_all = len(values) == n[group]
            median = float(np.median(values)) if is_all or by == "module" else float(medians[group][0])
            found[name] = _Times(evenly(values, MOST_VALUES), float(total[group]), median)
        else:
            its = np.flatnonzero(code == group)
            found[name] = _Times.of(own[its[np.argsort(start[its], kind="stable")]].astype(np.float64))
    return found, {name: int(called[group]) for name, group in codes.items()}


def _key(events: Mapping[str, npt.NDArray[Any]], by: str) -> npt.NDArray[np.int64]:
    """One number for each event of one group."""
    if by in BY_SITE:
        return events["site"].astype(np.int64)
    signature = events["signature"].astype(np.int64) if by == "signature" else 0
    return events["callable"].astype(np.int64) << 32 | signature
