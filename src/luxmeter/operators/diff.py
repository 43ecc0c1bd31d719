"""One benchmark against another: what got slower, faster, broke or works now, beyond chance and beyond noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from luxmeter import verdict
from luxmeter.operators.results import MEASURED, BenchResult, Row, load_benchmark
from luxmeter.render import NUMBER, SHARE, Column, Table

_IDENTITY = ("op", "kernel", "signature", "scale", "dtype", "backend", "mode", "device", "threads")
_ORDER = ("broken", "slower", "fixed", "faster", "gone", "new", "unclear", "same", "neither")


@dataclass(frozen=True)
class BenchChange:
    """One row of A and the same row of B. `call` is one of broken, slower, fixed, faster, gone, new, unclear, same
    (within the noise), neither (measured in neither). `relative` is B's time above A's, as a share of A's.
    """

    op: str
    signature: str
    scale: str
    dtype: str
    backend: str
    mode: str
    device: str
    threads: int
    kernel: str
    call: str
    why: str
    median_a_us: float | None = None
    median_b_us: float | None = None
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class BenchDiff:
    """All changes from A to B, what matters first, with what a reader must know about the two."""

    changes: tuple[BenchChange, ...]
    threshold: float
    notes: tuple[str, ...] = ()
    name_a: str = "A"
    name_b: str = "B"

    def of(self, call: str) -> tuple[BenchChange, ...]:
        """The changes of one kind."""
        return tuple(change for change in self.changes if change.call == call)

    @property
    def geometric_mean(self) -> float | None:
        """B's time as a multiple of A's over all rows measured in both."""
        both = [
            math.log(c.median_b_us / c.median_a_us) for c in self.changes if c.median_a_us and c.median_b_us
        ]
        return math.exp(sum(both) / len(both)) if both else None

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values for `json.dumps`."""
        counts = {call: len(self.of(call)) for call in _ORDER if self.of(call)}
        return {
            "a": self.name_a, "b": self.name_b, "threshold": self.threshold, "geometric_mean": self.geometric_mean,
            "counts": counts, "notes": list(self.notes), "changes": [asdict(change) for change in self.changes],
        }  # fmt: skip

    def table(self, *, top: int | None = 40, everything: bool = False) -> Table:
        """What changed; with `everything`, what did not, too."""
        shown = [c for c in self.changes if everything or c.call not in ("same", "unclear", "neither")]
        columns = [
            Column(""),
            Column("op", folds=20),
            Column("signature", most=48, folds=16),
            Column("scale", goes=4),
            Column("dtype", goes=3),
            Column("backend", goes=2),
            Column("us A", NUMBER),
            Column("us B", NUMBER),
            Column("change", SHARE, form="+.1%", missing=""),
            Column("95 %", goes=1),
            Column("why", folds=16),
        ]
        rows = [
            [c.call, c.kernel or c.op, c.signature, c.scale, c.dtype, c.backend, c.median_a_us, c.median_b_us, c.relative,
             "" if c.low is None or c.high is None else f"{c.low:+.1%} .. {c.high:+.1%}", c.why]
            for c in shown[:top]
        ]  # fmt: skip
        return Table(columns, rows)

    def __str__(self) -> str:
        table = self.table()
        more = len(self.table(top=None).rows) - len(table.rows)
        lines = [table.text()] if table.rows else []
        lines += [f"... and {more} more"] if more else []
        counted = ", ".join(f"{len(self.of(call))} {call}" for call in _ORDER if self.of(call))
        mean = self.geometric_mean
        lines.append(
            f"{counted or 'nothing to compare'}; below {self.threshold:.1%} nothing is called a difference"
        )
        if mean is not None:
            lines.append(f"all rows together: {self.name_b} takes {mean:.3f} x the time of {self.name_a}")
        return "\n".join([*lines, *self.notes])


def diff_benchmarks(
    a: BenchResult, b: BenchResult, *, smallest: float = 0.02, share_of_errors: float = 0.01, names: tuple[str, str] = ("A", "B")
) -> BenchDiff:  # fmt: skip
    """B against A, row by row.

    A change is called only if it is beyond chance (corrected for the number of rows), beyond what the rows' own times
    wander, beyond either benchmark's noise floor, and at least `smallest`.
    """
    floor = max([smallest, *(r.noise_floor for r in (a, b) if r.noise_floor is not None)])
    pairs = list(_pairs(a, b))
    times = {
        str(i): (x.times_s, y.times_s)
        for i, (x, y) in enumerate(pairs)
        if x is not None and y is not None and x.times_s and y.times_s
    }
    judged = verdict.compare_many(times, smallest=floor, share_of_errors=share_of_errors) if times else {}
    changes = [_change(x, y, judged.get(str(i))) for i, (x, y) in enumerate(pairs)]
    changes.sort(key=lambda c: (_ORDER.index(c.call), -abs(c.relative or 0.0)))
    return BenchDiff(tuple(changes), floor, tuple(_notes(a, b)), *names)


def diff_benchmark_files(a: str | Path, b: str | Path, *, smallest: float = 0.02) -> BenchDiff:
    """`diff_benchmarks` for two files that `BenchResult.to_json` or `to_parquet` wrote."""
    first, second = load_benchmark(a), load_benchmark(b)
    names = (Path(a).stem, Path(b).stem) if Path(a).stem != Path(b).stem else ("A", "B")
    return diff_benchmarks(first, second, smallest=smallest, names=names)


def _pairs(a: BenchResult, b: BenchResult) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of the same name; two cases whose text is the same (other strides) are paired in their order."""
    sides: list[dict[tuple[Any, ...], list[Row]]] = [defaultdict(list), defaultdict(list)]
    for side, result in zip(sides, (a, b), strict=True):
        for row in result:
            side[tuple(getattr(row, name) for name in _IDENTITY)].append(row)
    for place in {**sides[0], **sides[1]}:
        x, y = sides[0].get(place, []), sides[1].get(place, [])
        for i in range(max(len(x), len(y))):
            yield (x[i] if i < len(x) else None), (y[i] if i < len(y) else None)


def _change(a: Row | None, b: Row | None, found: verdict.Comparison | None) -> BenchChange:
    row = b if b is not None else a
    assert row is not None
    identity = {name: getattr(row, name) for name in _IDENTITY}
    medians: dict[str, Any] = {
        "median_a_us": a.median_us if a is not None else None,
        "median_b_us": b.median_us if b is not None else None,
    }
    if found is not None:
        call = {"higher": "slower", "lower": "faster"}.get(found.call, found.call)
        return BenchChange(
            **identity, **medians, call=call, why=found.why, relative=found.relative.estimate,
            low=found.relative.low, high=found.relative.high, p_value=found.p_value,
        )  # fmt: skip
    if a is None or b is None:
        return BenchChange(**identity, **medians, call="new" if a is None else "gone", why=row.status)
    call = "broken" if a.status in MEASURED else "fixed" if b.status in MEASURED else "neither"
    worse = a if call == "fixed" else b
    return BenchChange(**identity, **medians, call=call, why=f"{worse.status}: {worse.reason}".rstrip(": "))


def _notes(a: BenchResult, b: BenchResult) -> Iterator[str]:
    """What makes the two hard to compare, or explains why they differ."""
    one, other = (r.environment.get("machine", {}) for r in (a, b))
    for word in ("processor", "cores"):
        if one.get(word) != other.get(word) and one and other:
            yield f"not the same machine: {word} {one.get(word)} and {other.get(word)}"
    versions = [r.environment.get("packages", {}) for r in (a, b)]
    for package in ("torch", "onnxruntime", "mindspore", "numpy"):
        x, y = (v.get(package) for v in versions)
        if x != y and all(versions):
            yield f"{package} {x} and {y}"
    if one.get("python") != other.get("python") and one and other:
        yield f"Python {one.get('python')} and {other.get('python')}"
    for name, result in (("A", a), ("B", b)):
        if result.noise_floor is None and result.rows:
            yield f"{name} has no noise floor: only the wandering of its own times is known"
        if not result.complete:
            yield f"{name} was stopped early: rows are missing"
