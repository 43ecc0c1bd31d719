"""Groups of repeats as tables: a row a variant, or every variant against another with corrected significance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.experiment.compare.repeat_stats import Correction, Difference, Estimate, corrected, judged
from luxmeter.experiment.compare.repeats import Group, compare_groups, group_of, higher_is_better
from luxmeter.files import from_json
from luxmeter.render import NUMBER, Column, Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RepeatRow:
    """One variant: how many repeats, and each metric's mean with interval."""

    group: Group
    metrics: dict[str, Estimate | None]

    def record(self) -> dict[str, Any]:
        """For machines."""
        return {**_facts(self.group), "metrics": {k: e and asdict(e) for k, e in self.metrics.items()}}


@dataclass(frozen=True)
class VariantRow:
    """One variant in one metric, and what it is against the reference; None for the reference itself."""

    group: Group
    estimate: Estimate
    against: Difference | None

    def record(self) -> dict[str, Any]:
        """For machines."""
        return {
            **_facts(self.group),
            **asdict(self.estimate),
            "against": self.against and asdict(self.against),
        }


class RepeatTable:
    """A row a variant."""

    def __init__(self, rows: Sequence[RepeatRow], metrics: Sequence[str], *, of: str) -> None:
        self.rows = list(rows)
        self.metrics = list(metrics)
        self.of = of

    def records(self) -> list[dict[str, Any]]:
        """As plain values."""
        return [row.record() for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """A row a variant: name, its parameters, n, and of each metric mean, low, high, std."""
        import pandas as pd

        rows = []
        for row in self.rows:
            flat: dict[str, Any] = {"name": row.group.name, "n": row.group.n}
            flat |= {f"param.{key}": from_json(value) for key, value in row.group.params.items()}
            for key, found in row.metrics.items():
                flat |= {
                    f"{key}.{part}": getattr(found, part, None) for part in ("mean", "low", "high", "std")
                }
            rows.append(flat)
        return pd.DataFrame(rows)

    def print(self, stream: IO[str] | None = None) -> None:
        """For people: `0.913 ± 0.012`, where ± is the 95 % interval of the mean by the t distribution."""
        self.as_table().print(stream)

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.as_table())

    def as_table(self) -> Table:
        """What is printed."""
        columns = [
            Column("variant", folds=20),
            Column("n", NUMBER),
            Column("seeds", goes=1),
            *map(Column, self.metrics),
        ]
        rows = [
            [
                row.group.label,
                row.group.n,
                _seeds(row.group),
                *(shown(row.metrics[key]) for key in self.metrics),
            ]
            for row in self.rows
        ]
        return Table(columns, rows)


class VariantTable:
    """Every variant in one metric, best first, each against the reference: the best that can carry it, or a named one."""

    def __init__(
        self,
        rows: Sequence[VariantRow],
        *,
        metric: str,
        reference: Group,
        correction: str,
        tests: int,
        high_is_best: bool,
        note: str = "",
    ) -> None:
        self.rows = list(rows)
        self.metric = metric
        self.reference = reference
        self.correction = correction
        self.high_is_best = high_is_best
        self.note = note  # why this is the reference, or why it carries no verdict
        self.tests = tests  # how many tests the p-values are corrected for

    def records(self) -> list[dict[str, Any]]:
        """As plain values."""
        return [row.record() for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """A row a variant, with difference, interval, effect, p and corrected p against the reference."""
        import pandas as pd

        rows = []
        for row in self.rows:
            flat: dict[str, Any] = {"variant": row.group.label, **asdict(row.estimate)}
            parts = ("difference", "effect", "p_value", "p_corrected", "call", "more_seeds")
            flat |= {part: getattr(row.against, part, None) for part in parts}
            flat |= {"difference_low": getattr(row.against, "low", None)}
            flat |= {"difference_high": getattr(row.against, "high", None)}
            rows.append(flat)
        return pd.DataFrame(rows)

    def print(self, stream: IO[str] | None = None) -> None:
        """For people."""
        self.as_table().print(stream)

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.as_table())

    def as_table(self) -> Table:
        """What is printed."""
        columns = [
            Column("variant", folds=20),
            Column("n", NUMBER),
            Column(self.metric),
            Column("difference", goes=2),
            Column("effect", NUMBER, form="+.2f", goes=1),
            Column("p", NUMBER, form=".2g"),
            Column("verdict", folds=12),
        ]
        words = {
            "holm": "corrected after Holm",
            "fdr": "corrected after Benjamini and Hochberg",
            "none": "not corrected",
        }
        how = (
            f"against {self.reference.label}; {self.tests} tests, p {words[self.correction]}; "
            "± is the 95 % interval of the mean (t)"
        )
        notes = [how, self.note] if self.note else [how]
        return Table(columns, [self._cells(row) for row in self.rows], notes=notes)

    def _cells(self, row: VariantRow) -> list[Any]:
        if row.against is None:
            return [row.group.label, row.estimate.n, shown(row.estimate), "reference", "", "", ""]
        d = row.against
        gap = f"{d.difference:+.4g}"
        if d.low is not None and d.high is not None:
            gap += f" ({d.low:+.3g} .. {d.high:+.3g})"
        return [
            row.group.label, row.estimate.n, shown(row.estimate), gap, d.effect, d.p_corrected, self._verdict(d),
        ]  # fmt: skip

    def _verdict(self, d: Difference) -> str:
        if d.call == "unclear":
            return d.why
        return "better" if (d.call == "higher") == self.high_is_best else "worse"


def repeat_table(
    groups: Sequence[Group],
    metrics: Sequence[str] = (),
    *,
    of: str = "last",
    confidence: float = 0.95,
    method: str = "t",
) -> RepeatTable:
    """A row a group: the mean of each metric (all of them unless named) with its interval, and n."""
    keys = list(metrics) or list(dict.fromkeys(key for group in groups for key in group.metrics))
    rows = [
        RepeatRow(g, {k: g.estimate(k, of=of, confidence=confidence, method=method) for k in keys})
        for g in groups
        if g.members
    ]
    return RepeatTable(rows, keys, of=of)


def variant_table(
    groups: Sequence[Group],
    metric: str,
    *,
    of: str = "last",
    baseline: str | Group | None = None,
    best: str | None = None,
    correction: Correction = "holm",
    paired: bool = False,
    alpha: float = 0.05,
    power: float = 0.8,
    matters: float | None = None,
) -> VariantTable:
    """Every variant against the baseline, or against the best (with a single repeat: the one that has the most).

    The best is chosen by the same numbers that are then tested, so without a baseline all pairs are tested and the
    p-values are corrected for that many. `best` is "high" or "low"; unsaid, the metric's name decides.
    """
    if best not in (None, "high", "low"):
        raise UsageError("best-is", f"The best cannot be {best!r}.", "Say high or low.")
    found = [(g, e) for g in groups if (e := g.estimate(metric, of=of)) is not None]
    if not found:
        raise UsageError(
            "no-such-metric",
            f"No finished run among {sum(g.n for g in groups)} has a finite {metric!r}.",
            f"They have: {', '.join(dict.fromkeys(k for g in groups for k in g.metrics)) or 'none'}.",
        )
    high = higher_is_better(metric) if best is None else best == "high"
    found.sort(key=lambda pair: pair[1].mean, reverse=high)
    usable = [group for group, _ in found]
    if baseline is None:
        reference, note = _reference(found)
    else:
        reference = group_of(usable, baseline if isinstance(baseline, str) else baseline.label)
        note = _too_few(reference, found[usable.index(reference)][1].n)
    place = usable.index(reference)
    others = [i for i in range(len(usable)) if i != place]
    pairs = [(place, i) for i in others]
    if baseline is None:
        pairs += itertools.combinations(others, 2)
    raw = {
        pair: compare_groups(
            usable[pair[0]],
            usable[pair[1]],
            metric,
            of=of,
            paired=paired,
            alpha=alpha,
            power=power if place in pair else None,  # only what is shown needs a plan
            matters=matters,
            tests=len(pairs) if correction == "holm" else 1,
        )
        for pair in pairs
    }
    tested = {pair: d for pair, d in raw.items() if d.p_value is not None}
    adjusted = corrected([d.p_value for d in tested.values() if d.p_value is not None], correction)
    told = raw | {pair: judged(d, p) for (pair, d), p in zip(tested.items(), adjusted, strict=True)}
    rows = [VariantRow(g, e, told.get((place, i))) for i, (g, e) in enumerate(found)]
    return VariantTable(
        rows, metric=metric, reference=reference, correction=correction, tests=len(tested), high_is_best=high,
        note=note,
    )  # fmt: skip


def _reference(found: Sequence[tuple[Group, Estimate]]) -> tuple[Group, str]:
    """The best of these (the first), or the one with the most repeats if the best has only one; and what to say of it."""
    best, of_best = found[0]
    if of_best.n > 1 or len(found) == 1:
        return best, _too_few(best, of_best.n)
    chosen, of_chosen = max(found, key=lambda pair: pair[1].n)  # of equals the better one
    if of_chosen.n < 2:
        return best, "no variant has two repeats, so there is no verdict: run them with more seeds"
    return chosen, (
        f"{best.label} is the best but has one repeat, which carries no verdict; "
        f"the reference is {chosen.label}, which has the most ({of_chosen.n})"
    )


def _too_few(group: Group, repeats: int) -> str:
    if repeats > 1:
        return ""
    return f"{group.label} has one repeat, so nothing can be judged against it: run it with more seeds"


def shown(estimate: Estimate | None) -> str:
    """`0.913 ± 0.012`; one value is shown alone."""
    if estimate is None:
        return "-"
    half, mean = estimate.half_width, estimate.mean
    if half is None:
        return f"{mean:.4g}"
    if not 1e-4 <= half < 1e6 or abs(mean) >= 1e9:
        return f"{mean:.4g} ± {half:.2g}"
    digits = max(0, 1 - math.floor(math.log10(half)))  # as many as the interval has meaning
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def _facts(group: Group) -> dict[str, Any]:
    return {
        "variant": group.label,
        "name": group.name,
        "params": group.params,
        "runs": [member.id for member in group.members],
        "seeds": group.seeds,
        "left_out": group.left_out,
    }


def _seeds(group: Group) -> str:
    known = sorted(seed for seed in group.seeds if seed is not None)
    if not known:
        return "-"
    whole = known == list(range(known[0], known[-1] + 1)) and len(known) > 2
    text = f"{known[0]}..{known[-1]}" if whole else ",".join(map(str, known[:6]))
    return text + ("…" if not whole and len(known) > 6 else "")
