"""Several benchmarks of the same operators: operators x environments, each against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.operators.diff import STATED_RATE, BenchChange, BenchDiff, diff_benchmarks, names_of
from luxmeter.operators.results import BenchResult, load_benchmark
from luxmeter.render import DURATION, SHARE, Column, Table
from luxmeter.verdict import Regression

_QUIET = ("same", "unclear", "neither")


@dataclass(frozen=True)
class BenchMatrix:
    """The comparisons of all but the first benchmark with the first; one row an operator."""

    names: tuple[str, ...]
    diffs: tuple[BenchDiff, ...]

    def regressions(self, threshold: float) -> list[Regression]:
        """What got worse than in the first by more than `threshold`, in which of the others."""
        return [
            Regression(f"{diff.name_b}: {r.name}", r.kind, r.change, r.why)
            for diff in self.diffs
            for r in diff.regressions(threshold)
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values for `json.dumps`."""
        return {"names": list(self.names), "against_first": [diff.to_json() for diff in self.diffs]}

    def table(self, *, top: int | None = 40, everything: bool = False) -> Table:
        """A row an operator, what moves most of the run first; a column for each benchmark; the verdicts below.

        A cell is the change against the first; in brackets where it is not called one.
        """
        found: dict[tuple[Any, ...], list[BenchChange | None]] = {}
        for i, diff in enumerate(self.diffs):
            seen: dict[tuple[Any, ...], int] = {}
            for c in diff.changes:
                place = (c.op, c.kernel, c.signature, c.scale, c.mode)
                seen[place] = seen.get(place, 0) + 1  # two rows of one text: in their order
                found.setdefault((*place, seen[place]), [None] * len(self.diffs))[i] = c
        rows = [
            row for row in found.values() if everything or any(c is not None and c.call not in _QUIET for c in row)
        ]  # fmt: skip
        rows.sort(key=lambda row: -max(_weight(c) for c in row))
        columns = [
            Column("op", folds=20),
            Column("signature", is_signature=True, most=40, folds=16),
            Column("scale", hidden="empty", goes=2),
            Column("of the run", SHARE, missing="", hidden="empty", goes=1),
            Column(self.names[0], DURATION, missing=""),
            *(Column(name) for name in self.names[1:]),
        ]
        lines = [self._line(row) for row in rows[:top]]
        notes = [f"... and {len(rows) - len(lines)} more"] if len(rows) > len(lines) else []
        return Table(columns, lines, notes=[*notes, *self._below()])

    def _line(self, row: Sequence[BenchChange | None]) -> list[Any]:
        one = next(c for c in row if c is not None)
        first_us = next((c.median_a_us for c in row if c is not None and c.median_a_us), None)
        return [
            one.kernel or one.op,
            one.signature,
            one.scale,
            one.share,
            None if first_us is None else first_us * 1e3,
            *map(_cell, row),
        ]

    def _below(self) -> list[str]:
        lines = []
        for diff in self.diffs:
            lines += [f"{diff.name_b}: {found.sentence}" for found in diff.verdicts]
            if diff.differences:
                lines.append(
                    f"{diff.name_b}: not the same environment: {'; '.join(map(str, diff.differences))}"
                )
            lines += [f"{diff.name_b}: {note}" for note in (*diff.weakness(), *diff.notes)]
        return lines

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table())


def diff_many(
    results: Sequence[BenchResult],
    *,
    names: Sequence[str] = (),
    smallest: float = 0.02,
    share_of_errors: float = STATED_RATE,
) -> BenchMatrix:
    """Each benchmark against the first, as `diff_benchmarks` does it."""
    if len(results) < 2:
        raise UsageError(
            "nothing-to-compare",
            f"{len(results)} benchmark cannot be compared.",
            "Give at least two results of lux.bench.",
        )
    said = tuple(names) or tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(results)])
    diffs = [
        diff_benchmarks(results[0], result, smallest=smallest, share_of_errors=share_of_errors, names=(said[0], name))
        for name, result in zip(said[1:], results[1:], strict=True)
    ]  # fmt: skip
    return BenchMatrix(said, tuple(diffs))


def diff_many_files(paths: Sequence[str | Path], *, smallest: float = 0.02) -> BenchMatrix:
    """`diff_many` for files that `BenchResult.to_json` or `to_parquet` wrote."""
    return diff_many(
        [load_benchmark(p) for p in paths], names=names_of([Path(p) for p in paths]), smallest=smallest
    )


def _cell(change: BenchChange | None) -> str:
    if change is None:
        return ""
    if change.relative is None:
        return change.call
    said = f"{change.relative:+.1%}"
    return f"({said})" if change.call in _QUIET else f"{said} {change.call}"


def _weight(change: BenchChange | None) -> float:
    if change is None:
        return 0.0
    return abs(change.moves) if change.moves is not None else abs(change.relative or 0.0)
