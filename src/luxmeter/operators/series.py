"""Benchmarks as curves and ratios: time over each dimension that varies with the fitted exponent, speed-ups over eager torch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from luxmeter.operators.results import BenchResult, Row


@dataclass(frozen=True)
class Series:
    """One case over the sizes of one dimension, everything else held: sizes rising, times in microseconds."""

    name: str
    dimension: str
    sizes: tuple[int, ...]
    median_us: tuple[float, ...]
    low_us: tuple[float, ...]
    high_us: tuple[float, ...]

    @property
    def exponent(self) -> float | None:
        """k of time ~ size**k, a straight line through all points of the log-log picture; None for one point."""
        if len(self.sizes) < 2:
            return None
        return float(self._fit()[0])

    @property
    def fitted_us(self) -> tuple[float, ...]:
        """The straight line's times at the sizes."""
        slope, offset = self._fit()
        line = np.exp(offset) * np.array(self.sizes, dtype=float) ** slope
        return tuple(line.tolist())

    def _fit(self) -> Any:
        return np.polyfit(np.log(self.sizes), np.log(self.median_us), 1)


def series_of(result: BenchResult) -> list[Series]:
    """A series for each case, dtype, backend, device and number of threads over each dimension that varies."""
    measured = [(row, _sizes(row)) for row in result if row.median_us and row.scale]
    values: dict[str, set[int]] = defaultdict(set)
    for _, sizes in measured:
        for name, n in sizes.items():
            values[name].add(n)
    found: dict[tuple[Any, ...], dict[int, Row]] = defaultdict(dict)
    for row, sizes in measured:
        for dimension in (d for d, seen in values.items() if len(seen) > 1 and d in sizes):
            others = tuple((k, n) for k, n in sizes.items() if k != dimension and len(values[k]) > 1)
            place = (
                dimension,
                row.case or row.op,
                row.kernel,
                row.dtype,
                row.backend,
                row.mode,
                row.device,
                row.threads,
            )
            found[(*place, others)][sizes[dimension]] = row
    names = Names([row for row, _ in measured])
    return [
        _series(names.of(next(iter(rows.values())), place[-1]), place[0], rows)
        for place, rows in found.items()
    ]


@dataclass(frozen=True)
class Speedups:
    """How many times as fast each row is as the row it is held against; `kinds` is what tells the two apart."""

    rows: tuple[Row, ...]
    ratios: tuple[float, ...]
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    against: str


def speedups_of(result: BenchResult) -> Speedups:
    """Other backends against eager torch; where there is none, other dtypes against the first."""
    rows = [r for r in result if r.speedup and r.backend not in ("eager", "pt")]
    against = "eager torch, the same dtype"
    ratios = [r.speedup or 1.0 for r in rows]
    kinds = [r.backend for r in rows]
    if not rows:
        rows, ratios = _against_first_dtype(result)
        against, kinds = "eager torch in the first dtype", [r.dtype for r in rows]
    names = Names(rows, backend=False)
    return Speedups(tuple(rows), tuple(ratios), tuple(kinds), tuple(names.of(r, ()) for r in rows), against)


def _against_first_dtype(result: BenchResult) -> tuple[list[Row], list[float]]:
    first: dict[tuple[Any, ...], Row] = {}
    rows, ratios = [], []
    for row in result:
        if not row.median_us:
            continue
        place = (row.case, row.op, row.kernel, row.scale, row.mode, row.device, row.threads)
        base = first.setdefault(place, row)
        if base is not row and base.median_us and base.dtype != row.dtype:
            rows.append(row)
            ratios.append(base.median_us / row.median_us)
    return rows, ratios


def _series(name: str, dimension: str, rows: dict[int, Row]) -> Series:
    ordered = sorted(rows.items())
    return Series(
        name, dimension, tuple(n for n, _ in ordered), tuple(r.median_us or 0.0 for _, r in ordered),
        tuple(r.ci_low_us or 0.0 for _, r in ordered), tuple(r.ci_high_us or 0.0 for _, r in ordered),
    )  # fmt: skip


class Names:
    """Short names for rows: only what differs among them is said."""

    def __init__(self, rows: list[Row], *, backend: bool = True) -> None:
        fields = (
            ("dtype", "backend", "mode", "device", "threads")
            if backend
            else ("dtype", "mode", "device", "threads")
        )
        self._differing = [f for f in fields if len({getattr(r, f) for r in rows}) > 1]
        self._bars = not backend
        self._cases: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            self._cases[row.op].add(row.case)

    def of(self, row: Row, others: tuple[tuple[str, int], ...]) -> str:
        name = row.kernel or (row.op if row.op.startswith("aten.") else row.op.rpartition(".")[2])
        if self._bars or len(self._cases[row.op]) > 1:
            text = row.signature if len(row.signature) <= 44 else row.signature[:41] + "..."
            name = text if text.startswith(f"{name}(") else f"{name}({text})"  # a module says its name itself
        said = [
            name,
            *(str(getattr(row, field)) for field in self._differing),
            *(f"{k}={n}" for k, n in others),
        ]
        if self._bars and row.scale:
            said.append(row.scale)
        return " ".join(said)


def _sizes(row: Row) -> dict[str, int]:
    pairs = (part.partition("=") for part in row.scale.split(",") if "=" in part)
    return {name: int(n) for name, _, n in pairs}
