"""CallTable from totals mode: rows that stand for many calls, with a histogram of four buckets a doubling."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.records import FIRST, INSIDE, RAISED, SPANNED
from luxmeter.calls.table import ADDED_UP, CallTable, Named, Row, chosen_events, namer

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording, TotalsRow

Numbers = npt.NDArray[Any]


def bucket_edges(n: int) -> Numbers:
    """Lower edges in ns of the first `n` buckets and the end of the last: 0 1 2 3 4 5 6 7 8 10 12 14 16 20 ..."""
    at = np.arange(n + 1, dtype=np.float64)
    octave = np.floor(at / 4) + 1
    edges: Numbers = np.where(at < 4, at, (4 + at % 4) * 2.0 ** (octave - 2))
    return edges


def totals_table(
    recording: Recording, by: str, *, warmup: bool = True, inside: bool = True, notes: Sequence[str] = ()
) -> CallTable:
    """As table.make_table; percentiles are right to about a tenth."""
    kinds = np.array([recording.callables[t.callable].kind for t in recording.totals])
    modules = np.array([bool(recording.callables[t.callable].path) for t in recording.totals])
    flags = np.array([t.flags for t in recording.totals])
    choose = functools.partial(
        chosen_events, flags=flags, kinds=kinds, modules=modules, warmup=warmup, inside=inside
    )
    name = namer(recording, by)
    groups: dict[Named, list[TotalsRow]] = {}
    for t, wanted in zip(recording.totals, choose(by), strict=True):
        if wanted:
            groups.setdefault(name(t.callable, t.signature, t.thread, t.process), []).append(t)
    calls = sum(t.n for t, wanted in zip(recording.totals, choose("api"), strict=True) if wanted)
    own = {
        named: sum(t.total_ns - t.child_ns if _without_inner(t, by, inside) else t.total_ns for t in rows)
        for named, rows in groups.items()
    }
    whole = sum(own.values()) or 1
    made = [_row(named, rows, by, own[named], whole) for named, rows in groups.items()]
    return CallTable(made, by=by, notes=notes, calls=calls)


def _without_inner(t: TotalsRow, by: str, inside: bool) -> bool:
    """Whether what a row's calls called is counted elsewhere."""
    return by not in ADDED_UP or inside or bool(t.flags & SPANNED)


def _row(named: Named, rows: list[TotalsRow], by: str, own: int, whole: int) -> Row:
    n = sum(t.n for t in rows)
    total = own if by in ADDED_UP else sum(t.total_ns for t in rows)
    low, high = min(t.min_ns for t in rows), max(t.max_ns for t in rows)
    histogram = np.sum([t.histogram for t in rows], axis=0)
    first = [t.min_ns for t in rows if t.flags & FIRST]
    p50, p95, p99 = (int(min(max(_percentile(histogram, p), low), high)) for p in (50, 95, 99))
    raised = sum(t.n for t in rows if t.flags & RAISED)
    waited = sum(t.wait_ns for t in rows if by not in ADDED_UP or not t.flags & INSIDE)
    return Row(
        named[0], n, total, own, total / n, low, p50, p95, p99, high, first[0] if first else None, own / whole,
        named[1], raised, total - waited, named[2],
    )  # fmt: skip


def _percentile(histogram: Numbers, percent: float) -> float:
    edges = bucket_edges(len(histogram))
    reached = np.cumsum(histogram)
    wanted = percent / 100 * reached[-1]
    at = int(np.searchsorted(reached, wanted))
    before = reached[at - 1] if at else 0
    within = (wanted - before) / histogram[at] if histogram[at] else 0.0
    return float(edges[at] + within * (edges[at + 1] - edges[at]))
