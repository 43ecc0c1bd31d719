"""CallTable and CallTree from made-up events: exact numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from luxmeter.calls.core import _pystate
from luxmeter.calls.reader import Recording, TotalsRow, set_own_work_apart
from luxmeter.calls.records import (
    COMPLETED,
    EVENT_DTYPE,
    FIRST,
    INSIDE,
    OWN,
    RAISED,
    SECTION,
    SPAN,
    SPANNED,
    CallableNames,
    ProcessRecord,
    SignatureNames,
)  # fmt: skip
from luxmeter.calls.table import CallTable, bucket_edges, make_table
from luxmeter.calls.tree import descendants, make_tree, parents
from luxmeter.errors import UsageError
from luxmeter.signature import Signature

ONE_CORE = "tables of made-up events"

CALLABLES = (
    CallableNames("(luxmeter)"),
    CallableNames("Tensor.__add__", "+"),
    CallableNames("torch.mm"),
    CallableNames("Net", kind=SPAN, path="net"),
    CallableNames("fit", kind=SECTION),
    CallableNames("torch.nn.Linear", path="net.a"),
    CallableNames("torch.nn.Linear", path="net.b"),
)


def recording(*rows: dict[str, Any], totals: tuple[TotalsRow, ...] = ()) -> Recording:
    events = np.zeros(len(rows), dtype=EVENT_DTYPE)
    for i, row in enumerate(rows):
        for name, value in row.items():
            if name != "process":
                events[i][name] = value
    columns = {name: events[name] for name in EVENT_DTYPE.names or ()}
    columns["process"] = np.array([row.get("process", 0) for row in rows], dtype=np.uint32)
    set_own_work_apart(columns)
    processes = tuple(ProcessRecord(rank, 100 + rank, {}, {}, {0: "main", 1: "other"}) for rank in (0, 1))
    signatures = (None, SignatureNames(1, Signature((1,))), SignatureNames(1, Signature((2,))))
    return Recording(columns, totals, CALLABLES, signatures, processes)


def event(what: int, start: int, duration: int, **more: Any) -> dict[str, Any]:
    return {"callable": what, "start_ns": start, "duration_ns": duration, "flags": COMPLETED, **more}


def test_statistics_of_one_api():
    rows = [event(1, 10 * i, i + 1) for i in range(100)]
    rows[0]["flags"] |= FIRST
    rows[99]["flags"] |= RAISED
    (row,) = make_table(recording(*reversed(rows)))
    assert (row.name, row.n, row.total_ns, row.self_ns, row.mean_ns) == ("+", 100, 5050, 5050, 50.5)
    assert (row.min_ns, row.p50_ns, row.p95_ns, row.p99_ns, row.max_ns) == (1, 50, 95, 99, 100)
    assert (row.first_ns, row.share, row.raised, row.dispatch_ns) == (1, 1.0, 1, 5050)
    assert make_table(recording(*rows), warmup=False)["+"].n == 99


NEST = (
    event(0, 5, 2, flags=OWN | SPANNED | COMPLETED, depth=2),
    event(5, 10, 30, depth=2, signature=1, module=3, section=4),
    event(1, 50, 10, depth=2, signature=2, module=3, section=4),
    event(3, 4, 66, depth=1, child_ns=42, flags=SPANNED | COMPLETED, section=4),
    event(2, 80, 10, depth=1, wait_ns=4, section=4),
    event(4, 0, 100, depth=0, child_ns=76, flags=SPANNED | COMPLETED),
    event(6, 200, 5, thread=1),
    event(2, 300, 7, process=1, flags=INSIDE | COMPLETED),
)


def test_groupings():
    rec = recording(*NEST)
    api = make_table(rec)
    assert {r.name: (r.n, r.total_ns, r.self_ns) for r in api} == {
        "torch.nn.Linear": (2, 35, 35), "+": (1, 10, 10), "Net": (1, 64, 24), "torch.mm": (2, 17, 17),
    }  # fmt: skip
    assert [r.name for r in api] == ["torch.nn.Linear", "Net", "torch.mm", "+"]
    assert sum(r.share for r in api) == pytest.approx(1)
    assert api["torch.mm"].dispatch_ns == 13
    assert {r.name: (r.total_ns, r.detail) for r in make_table(rec, "module")} == {
        "net": (64, "Net"), "net.a": (30, "torch.nn.Linear"), "net.b": (5, "torch.nn.Linear"),
    }  # fmt: skip
    assert {r.name: (r.total_ns, r.self_ns) for r in make_table(rec, "section")} == {"fit": (98, 24)}
    assert {r.name: (r.n, r.total_ns) for r in make_table(rec, "thread")} == {
        "main (rank 0)": (4, 74), "other (rank 0)": (1, 5), "main (rank 1)": (1, 7),
    }  # fmt: skip
    assert {r.name: (r.n, r.total_ns) for r in make_table(rec, "rank")} == {
        "rank 0": (5, 79),
        "rank 1": (1, 7),
    }
    assert {r.name: (r.n, r.total_ns) for r in make_table(rec, "rank", inside=False)} == {"rank 0": (5, 79)}
    signatures = {(r.name, r.detail): r.n for r in make_table(rec, "signature")}
    assert signatures[("torch.nn.Linear", "1")] == 1 and signatures[("+", "2")] == 1
    assert make_table(rec, inside=False)["torch.mm"].n == 1


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_all_tables_count_to_one_number(warmup: bool, inside: bool):
    first = {"flags": FIRST | COMPLETED}
    rec = recording(*NEST, event(1, 400, 3, **first), event(5, 500, 3, **first))
    how = {"warmup": warmup, "inside": inside}
    calls = {
        by: sum(row.n for row in make_table(rec, by, **how)) for by in ("api", "signature", "thread", "rank")
    }
    assert (
        set(calls.values())
        == {make_table(rec, "module", **how).calls}
        == {make_table(rec, "section", **how).calls}
    )
    assert calls["api"] == 6 - (not inside) + 2 * warmup
    if warmup and inside:
        assert calls["api"] == rec.calls == make_tree(rec).n
    modules = make_table(rec, "module", **how)
    assert (
        f"{sum(row.n for row in modules)} of the {calls['api']} calls are calls of modules" in modules.text()
    )
    assert f"there were {calls['api']} calls" in make_table(rec, "section", **how).text()


def test_the_recorders_own_work_is_in_no_calls_time():
    rec = recording(
        event(0, 10, 5, flags=OWN | SPANNED, depth=2),
        event(1, 15, 10, depth=2),
        event(0, 30, 4, flags=OWN | SPANNED, depth=1, thread=1),  # on another thread at the same time
        event(3, 5, 35, child_ns=15, depth=1, flags=SPANNED | COMPLETED),
        event(0, 45, 2, flags=OWN | SPANNED, depth=1),
        event(2, 47, 3, depth=1),
        event(4, 0, 60, child_ns=40, flags=SPANNED | COMPLETED),
    )
    assert {r.name: (r.total_ns, r.self_ns) for r in make_table(rec)} == {
        "+": (10, 10), "Net": (30, 20), "torch.mm": (3, 3),
    }  # fmt: skip
    assert [(r.total_ns, r.self_ns) for r in make_table(rec, "section")] == [(53, 20)]
    assert parents(rec.events).tolist() == [3, 3, -1, 6, 6, 6, -1], (
        "by the clock they still lie within each other"
    )


def test_a_modules_own_time_holds_the_calls_in_it_but_not_the_modules():
    deeper = recording(
        event(1, 12, 4, depth=3),  # of net.a, which is no leaf here
        event(5, 10, 30, depth=2, child_ns=4),
        event(0, 41, 3, flags=OWN | COMPLETED, depth=2),
        event(1, 50, 10, depth=2),
        event(3, 4, 66, depth=1, child_ns=43),
        event(4, 0, 100, depth=0, child_ns=66),
    )
    assert {r.name: r.self_ns for r in make_table(deeper, "module")} == {"net": 33, "net.a": 30}
    assert {r.name: r.self_ns for r in make_table(deeper)} == {"+": 14, "torch.nn.Linear": 26, "Net": 23}


def test_the_tree():
    tree = make_tree(recording(*NEST))
    assert [
        (depth, node.name or "all", node.n, node.total_ns, node.self_ns) for depth, node in tree.walk()
    ] == [
        (0, "all", 6, 110, 0),
        (1, "fit", 1, 98, 24),
        (2, "Net", 1, 64, 24),
        (3, "torch.nn.Linear", 1, 30, 30),
        (3, "+", 1, 10, 10),
        (2, "torch.mm", 1, 10, 10),
        (1, "torch.mm", 1, 7, 7),
        (1, "torch.nn.Linear", 1, 5, 5),
    ]
    assert tree["fit"]["Net"]["net.a"].n == 1
    with pytest.raises(KeyError):
        tree["nothing"]


def test_parents_are_those_that_contain():
    events = recording(*NEST).events
    assert parents(events).tolist() == [3, 3, 3, 5, 5, -1, -1, -1]
    assert descendants(events, parents(events), events["flags"] & OWN == 0).tolist() == [
        0,
        0,
        0,
        2,
        0,
        4,
        0,
        0,
    ]  # of the program
    # The parent was lost: the next event one level up began later and is not taken for it.
    lost = recording(event(1, 0, 5, depth=1), event(2, 10, 5, depth=0)).events
    assert parents(lost).tolist() == [-1, -1]


@given(st.lists(st.integers(0, 5), max_size=40))
def test_parents_of_any_nesting(moves: list[int]):
    """Random programs: open (even) and close (odd) calls; the parent found is the one that was open."""
    open_calls: list[tuple[int, int, int]] = []  # id, start, depth
    rows, truth, ids, number = [], [], [], 0
    for clock, move in enumerate([*moves, *[1] * len(moves)]):
        if move % 2 == 0:
            open_calls.append((number, clock, len(open_calls)))
            number += 1
        elif open_calls:
            me, start, depth = open_calls.pop()
            rows.append(event(1, start, clock - start, depth=depth))
            ids.append(me)
            truth.append(open_calls[-1][0] if open_calls else None)
    found = parents(recording(*rows).events).tolist()
    assert [ids[p] if p >= 0 else None for p in found] == truth


def test_nothing_recorded():
    rec = recording()
    for by in ("api", "signature", "module", "section", "thread", "rank"):
        assert len(make_table(rec, by)) == 0
    assert make_tree(rec).children == ()
    assert make_table(rec).text(title="0 calls") == "0 calls\nnothing by api was recorded"


def test_a_wrong_grouping_or_row_is_refused():
    with pytest.raises(UsageError, match="Did you mean 'module'"):
        make_table(recording(), "modul")
    with pytest.raises(UsageError, match="no-such-row"):
        CallTable([])["x"]


def test_text_shows_the_top_and_says_what_is_left_out():
    text = make_table(recording(*NEST)).text(top=2, title="Mine")
    assert text.splitlines()[0].strip() == "Mine"
    assert "torch.nn.Linear" in text and "... and 2 more rows" in text and "torch.mm" not in text


@given(st.integers(0, 1 << 46))
def test_buckets_hold_what_is_put_into_them(duration: int):
    edges = bucket_edges(_pystate.HISTOGRAM_BUCKETS)
    at = _pystate.bucket(duration)
    assert edges[at] <= duration < edges[at + 1]


def test_percentiles_of_totals_are_near():
    durations = np.random.default_rng(1).lognormal(9, 1, 20_000).astype(int)
    histogram = np.bincount(
        [_pystate.bucket(int(d)) for d in durations], minlength=_pystate.HISTOGRAM_BUCKETS
    )
    total = TotalsRow(
        0, 1, 0, 0, 0, COMPLETED, len(durations), int(durations.sum()), 0, 0, int(durations.min()),
        int(durations.max()), histogram,
    )  # fmt: skip
    row = make_table(recording(totals=(total,)))["+"]
    for percent, found in ((50, row.p50_ns), (95, row.p95_ns), (99, row.p99_ns)):
        assert found == pytest.approx(np.percentile(durations, percent), rel=0.1)
    assert row.total_ns == durations.sum()


def test_a_tree_of_very_many_paths():
    names = 3000
    made = recording(*(event(n, 10 * n, n + 1) for n in range(1, names)))
    tree = make_tree(replace(made, callables=tuple(CallableNames(f"f{n}") for n in range(names))))
    assert tree.n == names - 1
    assert {(t.name, t.n, t.total_ns) for t in tree.children} == {
        (f"f{n}", 1, n + 1) for n in range(1, names)
    }
