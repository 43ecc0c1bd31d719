"""One line an operator: the first backend's time, the second's, their ratio, and how far their results are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from luxmeter.operators.rows import MEASURED, Row, short_signature


@dataclass(frozen=True)
class Pair:
    """One case on two backends. `ratio` is the second's time over the first's; above 1 it is slower."""

    first: Row
    second: Row

    @property
    def ratio(self) -> float | None:
        """How many times as long the second takes; None where one of them has no time."""
        if not self.first.median_us or not self.second.median_us:
            return None
        return self.second.median_us / self.first.median_us

    @property
    def differs(self) -> bool:
        """Whether the results are further apart than another order of summation explains."""
        if self.second.status == "differs":
            return True
        room = {"fp64": 1e-7, "fp16": 1e-2, "bf16": 5e-2}.get(self.second.dtype, 1e-4)
        return self.second.max_rel_error is not None and self.second.max_rel_error > room

    @property
    def remark(self) -> str:
        """Why there is no ratio, or that the results differ."""
        bad = next((r for r in (self.first, self.second) if r.status not in MEASURED), None)
        if bad is not None:
            return f"{bad.backend} {bad.status}: {bad.reason}"
        doubtful = "doubtful" if "doubtful" in (self.first.status, self.second.status) else ""
        return ", ".join(filter(None, ["results differ" if self.differs else "", doubtful]))


def side_by_side(rows: Iterable[Row], *, first: str = "eager", second: str = "mindspore") -> list[Pair]:
    """The rows of a benchmark in pairs, in their order; cases that ran on one of the two alone are left out.

    >>> side_by_side(lux.bench(ops, backends=["eager", "mindspore"]))  # doctest: +SKIP
    """
    places: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        place = (row.op, row.signature, row.scale, row.dtype, row.mode, row.device, row.threads, row.kernel)
        places.setdefault(place, {})[row.backend] = row
    return [
        Pair(found[first], found[second]) for found in places.values() if first in found and second in found
    ]


def table_of(pairs: Iterable[Pair]) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) for people; scale, mode and threads where they are not the same everywhere."""
    pairs = list(pairs)
    names = (pairs[0].first.backend, pairs[0].second.backend) if pairs else ("first", "second")
    cells: dict[str, Callable[[Pair], Any]] = {
        "op": lambda p: p.first.kernel or p.first.op.rpartition(".")[2],
        "signature": lambda p: short_signature(p.first.signature, 40),
        "scale": lambda p: p.first.scale,
        "dtype": lambda p: p.first.dtype,
        "mode": lambda p: p.first.mode,
        "threads": lambda p: p.first.threads,
        f"{names[0]} us": lambda p: _time(p.first),
        f"{names[1]} us": lambda p: _time(p.second),
        "ratio": lambda p: "" if p.ratio is None else f"{p.ratio:.2f}",
        "max error": lambda p: "" if p.second.max_abs_error is None else f"{p.second.max_abs_error:.1e}",
        "remark": lambda p: p.remark,
    }
    for column in ("scale", "mode", "threads"):
        if len({cells[column](pair) for pair in pairs}) < 2:
            del cells[column]
    return list(cells), [[cell(pair) for cell in cells.values()] for pair in pairs]


def _time(row: Row) -> str:
    if row.median_us is None:
        return ""
    if row.n < 2 or row.ci_low_us is None or row.ci_high_us is None:
        return f"{row.median_us:.4g}"
    return f"{row.median_us:.4g} [{row.ci_low_us:.4g}, {row.ci_high_us:.4g}]"
