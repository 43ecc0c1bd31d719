"""Two traces of the same program: what got slower, what is new, what is gone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from luxmeter.calls.reading import Recording
from luxmeter.calls.records import FIRST
from luxmeter.calls.results import TraceResult
from luxmeter.calls.table import chosen_events, namer
from luxmeter.errors import TraceError, UsageError, suggestion
from luxmeter.verdict import Comparison, compare_many

Kind = Literal["slower", "faster", "same", "unclear", "new", "gone"]
BY = ("api", "signature", "module")
MOST_VALUES = 800  # of one name: the test looks at all pairs
FEWEST_SHARED = 10  # names, below which nothing is said about what they have in common
FEWEST_CALLS = 20  # of a name that takes part in that


@dataclass(frozen=True, slots=True)
class Change:
    """One name in two traces. Times are self times of a call; shares are of all self time."""

    name: str
    kind: Kind
    n_a: int
    n_b: int
    share_a: float
    share_b: float
    median_a_ns: float | None
    median_b_ns: float | None
    relative: float | None  # of the median of a call; None for new and gone
    weight: (
        float  # how much of the whole the change moves: share times relative, or the share of new and gone
    )
    why: str


@dataclass(frozen=True, slots=True)
class Difference:
    """B against A, the weightiest change first."""

    changes: tuple[Change, ...]
    total_a_ns: int
    total_b_ns: int
    common: (
        float  # how much the calls of both traces changed together (median of all): the machine, not a call
    )
    threshold: float  # the smallest relative change that is called one

    def of(self, kind: Kind) -> list[Change]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind == kind]


def difference(a: TraceResult, b: TraceResult, *, by: str = "api", smallest: float = 0.05) -> Difference:
    """Compare two traces, name by name, on the self times of their calls without each API's first.

    A change counts only if it is beyond chance, beyond the wandering inside each trace, larger than `smallest`, and
    stands out from the changes of all names: two runs of the same program differ by the machine's state, which moves
    every name a little and by different amounts. With fewer than ten names that cannot be told.
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
    values = [_values(trace, by) for trace in (a, b)]
    totals = [sum(int(v.sum()) for v in side.values()) for side in values]
    shares = [
        {name: float(v.sum()) / (total or 1) for name, v in side.items()}
        for side, total in zip(values, totals, strict=True)
    ]
    shared = [name for name in values[0] if name in values[1]]
    pairs = {name: (_spread(values[0][name]), _spread(values[1][name])) for name in shared}
    judged = compare_many(pairs, smallest=smallest) if pairs else {}
    common, spread = _moved_together(judged)
    threshold = max(smallest, abs(common) + spread)
    if threshold > smallest:
        judged = compare_many(pairs, smallest=threshold)
    changes = [_change(name, values, shares, judged) for name in dict.fromkeys([*values[0], *values[1]])]
    changes.sort(key=lambda c: (-abs(c.weight), c.name))
    return Difference(tuple(changes), totals[0], totals[1], common, threshold)


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


def _change(
    name: str,
    values: list[dict[str, Values]],
    shares: list[dict[str, float]],
    judged: Mapping[str, Comparison],
) -> Change:
    n_a, n_b = (len(side.get(name, ())) for side in values)
    share_a, share_b = (side.get(name, 0.0) for side in shares)
    medians = [float(np.median(side[name])) if name in side else None for side in values]
    if name not in judged:
        kind: Kind = "new" if n_b else "gone"
        why = "only in B" if n_b else "only in A"
        return Change(
            name, kind, n_a, n_b, share_a, share_b, medians[0], medians[1], None, share_b - share_a, why
        )
    found = judged[name]
    words: dict[str, Kind] = {"higher": "slower", "lower": "faster", "same": "same", "unclear": "unclear"}
    relative = float(found.relative.estimate)
    counted = found.call in ("higher", "lower") and np.isfinite(relative)
    weight = share_a * relative if counted else 0.0
    return Change(
        name,
        words[found.call],
        n_a,
        n_b,
        share_a,
        share_b,
        medians[0],
        medians[1],
        relative,
        weight,
        found.why,
    )


def _values(trace: TraceResult, by: str) -> dict[str, Values]:
    """Self times in ns of each name, in the order of the calls."""
    recording: Recording = trace.recording
    if recording.totals:
        raise TraceError(
            "totals-only",
            f"The trace in {trace.folder} kept totals only, and a comparison needs the calls.",
            "Trace again without totals=True.",
        )
    events = recording.events
    kinds = np.array([w.kind for w in recording.callables], dtype=np.uint8)
    modules = np.array([bool(w.path) for w in recording.callables], dtype=bool)
    code = events["callable"]
    keep = chosen_events(by, events["flags"], kinds[code], modules[code])
    warm = keep & ((events["flags"] & FIRST) == 0)
    only_first = ~np.isin(code, np.unique(code[warm]))  # called once: better the first call than none
    at = np.flatnonzero(warm | (keep & only_first))
    at = at[np.argsort(events["start_ns"][at], kind="stable")]
    own = (events["duration_ns"] - events["child_ns"])[at].astype(np.float64)
    name = namer(recording, by)
    key = code[at].astype(np.int64) << 32 | (
        events["signature"][at].astype(np.int64) if by == "signature" else 0
    )
    groups: dict[str, list[Any]] = {}
    for number in np.unique(key).tolist():
        said, detail, _ = name(number >> 32, number & 0xFFFFFFFF, 0, 0)
        full = f"{said}({detail})" if by == "signature" else said
        groups.setdefault(full, []).append(np.flatnonzero(key == number))
    return {full: own[np.sort(np.concatenate(parts))] for full, parts in groups.items()}


def _spread(values: Values) -> Values:
    """At most MOST_VALUES of them, evenly over the run."""
    if len(values) <= MOST_VALUES:
        return values
    return values[np.linspace(0, len(values) - 1, MOST_VALUES).astype(np.int64)]
