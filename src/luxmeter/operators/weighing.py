"""What changes of operators mean for the program they come from: one verdict, weighted by how much each matters in the traced run.

A row weighs what the trace says its calls took. Where the trace cannot say (kernels of backward passes, forward and backward
measured together, other sizes than the recorded ones) it weighs its calls times its time in A. What no row covers is taken
as unchanged, and the share that is covered is told.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from luxmeter import stats
from luxmeter.operators.results import Row
from luxmeter.render import counted
from luxmeter.stats import Floats
from luxmeter.verdict import Wander, log_ratios

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RESAMPLES = 4000
_STRETCHES = 12  # of neighbouring times, which resemble each other: these are drawn, not single times
_FORWARD = "forward"
_TOO_NOISY = 0.1  # where one look at the same thing is off by so much, a run is not judged


@dataclass(frozen=True)
class Part:
    """One operator's part in the verdict, over all its rows: `share` of the run's time, and how much of the run it `moves`."""

    op: str
    share: float
    moves: float


@dataclass(frozen=True)
class RunVerdict:
    """The traced run, were it run with B: its time changes by `change` (-0.07: 7 % less), between `low` and `high` with 95 %.

    `call` is slower, faster, or unclear (the interval has 0 in it). `coverage` is the share of the run that the compared rows are;
    None where the run is not known, and then the rows alone are the run. `setting` tells this verdict from others of one comparison.
    """

    call: str
    change: float
    low: float
    high: float
    coverage: float | None
    rows: int
    estimated: float  # the share of the weights that are calls times A's time, not traced
    parts: tuple[Part, ...]
    setting: str = ""
    noisy: bool = False  # the same rows moved so much between two looks that nothing is called

    @property
    def main(self) -> Part | None:
        """The operator with most of the change, in the direction of the whole."""
        same = [p for p in self.parts if p.moves * self.change > 0]
        return max(same, key=lambda p: abs(p.moves), default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the sentence."""
        return {**asdict(self), "sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """The verdict in a sentence or two."""
        what = "this run" if self.coverage is not None else "a run of these rows"
        where = f"{self.setting}: " if self.setting else ""
        if self.call == "unclear":
            said = f"{where}the time of {what} would change by {self.change:+.1%} ({self.low:+.1%} to {self.high:+.1%}): no clear difference"
            said += ", the machine was too noisy to tell" if self.noisy else ""
        else:
            ends = sorted((abs(self.low), abs(self.high)))
            more = "less" if self.change < 0 else "more"
            said = f"{where}{what} would be {abs(self.change):.1%} {self.call} ({ends[0]:.1%} to {ends[1]:.1%} {more} time)"
            said += self._from()
        return f"{said}.{self._covered()}"

    def _from(self) -> str:
        main = self.main
        if main is None:
            return ""
        gross = sum(p.moves for p in self.parts if p.moves * self.change > 0)
        said = f"; {main.moves / gross:.0%} of it from {_short(main.op)}"
        against = [p for p in self.parts if p.moves * self.change < 0]
        worst = max(against, key=lambda p: abs(p.moves), default=None)
        if worst is not None and abs(worst.moves) > 0.1 * abs(gross):
            said += f", against it {_short(worst.op)} with {worst.moves:+.1%}"
        return said

    def _covered(self) -> str:
        rows = f"{counted(self.rows, 'compared row')}"
        about = "about " if self.estimated > 0.5 else ""
        if self.coverage is None:
            return f" Weighed by calls times time: {rows}."
        return f" The {rows} {'are' if self.rows != 1 else 'is'} {about}{self.coverage:.0%} of its time; the rest is taken as unchanged."


def run_verdicts(
    pairs: Sequence[tuple[Row, Row]], whole_ns: int | None, wander: Wander | None, *, settings: Sequence[str], seed: int = 0
) -> tuple[RunVerdict, ...]:  # fmt: skip
    """One verdict for each setting (scale, dtype, backend ...) that rows measured in both have; that of most of the run first.

    Without `wander` the rows were measured in turns; then there is none of a single round.
    """
    groups: dict[tuple[str, ...], list[tuple[Row, Row]]] = defaultdict(list)
    for a, b in pairs:
        if a.times_s and b.times_s and not a.kernel and a.traced_calls and a.median_us and b.median_us:
            groups[tuple(str(getattr(a, name)) for name in settings)].append((a, b))
    several = [
        name for i, name in enumerate(settings) if len({place[i] for place in groups}) > 1
    ]  # what tells them apart
    found = []
    for place, members in groups.items():
        said = dict(zip(settings, place, strict=True))
        words = [_setting_name(name, said[name]) for name in several]
        if wander is not None or rounds_of(members) > 1:
            found.append(_verdict(members, whole_ns, wander, ", ".join(filter(None, words)), seed))
    found.sort(key=lambda v: -(v.coverage if v.coverage is not None else v.rows))
    return tuple(found)


def _short(op: str) -> str:
    """`mm` of torch.mm and of aten.mm.default, whose last word is its overload."""
    words = op.split(".")
    return words[1] if words[0] in ("aten", "prims") and len(words) > 1 else words[-1]


def _setting_name(name: str, value: str) -> str:
    if name == "scale":
        return value or "as recorded"
    return f"{value} threads" if name == "threads" else value


def weight_ns(row: Row) -> tuple[float, bool]:
    """What the row's calls take in the traced run, and whether that is reckoned from its own time instead of traced."""
    if row.traced_ns is not None and row.mode == _FORWARD and not row.scale:
        return float(row.traced_ns), False
    return (row.traced_calls or 0) * (row.median_us or 0.0) * 1e3, True


def turns_of(a: Row, b: Row) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Of each round of two rows that were measured in turns, their times."""
    return [
        (x, y) for x, y in zip(a.turns_s, b.turns_s, strict=False) if len(x) == len(y) > 0
    ]  # stopped in a round: that one is left out


def rounds_of(members: Sequence[tuple[Row, Row]]) -> int:
    """How many rounds the two were measured in, in turns."""
    return max((len(turns_of(a, b)) for a, b in members), default=0)


def _verdict(
    members: Sequence[tuple[Row, Row]], whole_ns: int | None, wander: Wander | None, setting: str, seed: int
) -> RunVerdict:
    weights, reckoned = zip(*(weight_ns(a) for a, _ in members), strict=True)
    ns = np.array(weights)
    own = float(ns.sum()) or 1.0
    whole = max(float(whole_ns), own) if whole_ns else own
    shares = ns / whole
    if wander is None:
        ratios, low, high = _moved_in_turns(members, shares)
    else:
        ratios, low, high = _moved(members, shares, wander, np.random.default_rng(seed))
    moved = shares * np.expm1(ratios)
    change = float(moved.sum())
    call = "slower" if low > 0 else "faster" if high < 0 else "unclear"
    nearest = 0.0 if call == "unclear" else min(abs(low), abs(high))
    noisy = wander is not None and wander.each > _TOO_NOISY and nearest < 2 * wander.each
    call = "unclear" if noisy else call
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (a, _), share, moves in zip(members, shares, moved, strict=True):
        totals[a.op][0] += float(share)
        totals[a.op][1] += float(moves)
    parts = sorted((Part(op, *found) for op, found in totals.items()), key=lambda p: -abs(p.moves))
    estimated = float(ns[np.array(reckoned)].sum()) / own
    coverage = float(shares.sum()) if whole_ns else None
    return RunVerdict(
        call, change, low, high, coverage, len(members), estimated, tuple(parts), setting, noisy
    )


def _moved(
    members: Sequence[tuple[Row, Row]], shares: Floats, wander: Wander, rng: np.random.Generator
) -> tuple[Floats, float, float]:
    """The logarithms of the rows' ratios, and between what the change of all of them lies: drawn with what is known to move it."""
    sides = [np.stack([log_medians(row.times_s, rng) for row in side]) for side in zip(*members, strict=True)]
    ratios = np.array([math.log((b.median_us or 1) / (a.median_us or 1)) for a, b in members])
    drawn = ratios[:, None] + sides[1] - sides[0] + wander.drawn(len(members), _RESAMPLES, rng)
    low, high = (float(q) for q in np.quantile(shares @ np.expm1(drawn), [0.025, 0.975]))
    return ratios, low, high


def _moved_in_turns(members: Sequence[tuple[Row, Row]], shares: Floats) -> tuple[Floats, float, float]:
    """The same of rows measured in turns: each round is a look at all rows that have it, so rounds tell how far the change may be off."""
    from scipy.special import stdtrit

    means, parts, counts = np.zeros(len(members)), np.zeros(rounds_of(members)), np.zeros(len(members), int)
    for place, (a, b) in enumerate(members):
        logs = log_ratios(turns_of(a, b))
        counts[place] = n = len(logs)
        if n > 1:
            means[place], moves = stats.steady_parts(logs)
            parts[:n] += shares[place] * np.exp(means[place]) * moves * math.sqrt(n / (n - 1))
    # Rounds of which fewer rows are left move the whole less (Satterthwaite).
    squares = np.concatenate([np.full(len(g), float(np.mean(g**2))) for g in _alike(parts, counts)])
    total = float(squares.sum())
    freedom = max(1.0, total**2 / float((squares**2).sum()) - 1) if total else 1.0
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(total)
    change = float(shares @ np.expm1(means))
    return means, change - half, change + half


def _alike(parts: Floats, counts: NDArray[np.int_]) -> list[Floats]:
    """The rounds' parts, those together that the same rows had."""
    ends = sorted({int(n) for n in counts if 0 < n < len(parts)})
    return [found for found in np.split(parts, ends) if len(found)]


def log_medians(times: Sequence[float], rng: np.random.Generator, resamples: int = _RESAMPLES) -> Floats:
    """How far the logarithm of the median may be off: a bootstrap over stretches of neighbouring times."""
    x = np.log(np.maximum(np.asarray(times, dtype=np.float64), 1e-12))
    if len(x) < 2:
        return np.zeros(resamples)
    stretches = min(_STRETCHES, len(x))
    middles = np.array([np.median(part) for part in np.array_split(x, stretches)])
    drawn = middles[rng.integers(0, stretches, size=(resamples, stretches))].mean(axis=1) - middles.mean()
    # A mean of few draws varies too little by this; the spread of a mean and of a median of all are alike enough.
    return np.asarray(drawn * math.sqrt(stretches / (stretches - 1)), dtype=np.float64)
