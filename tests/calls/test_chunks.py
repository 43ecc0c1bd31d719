"""What is counted chunk by chunk is what all calls at once give: made-up traces in chunks of any length."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from luxmeter.calls.chunks import Events, OwnWork, Part
from luxmeter.calls.kinds import OUTSIDE, RECORDING
from luxmeter.calls.outside import find_outside
from luxmeter.calls.reader import Recording, set_own_work_apart
from luxmeter.calls.records import (
    COMPLETED,
    EVENT_DTYPE,
    FIRST,
    INSIDE,
    OWN,
    RAISED,
    SECTION,
    SPANNED,
    CallableNames,
    ProcessRecord,
    SignatureNames,
    SiteNames,
)
from luxmeter.calls.spread import PERCENTS, Spread, bucket_of, middle_of, rank_of
from luxmeter.calls.steps import Step, find_steps, split_of
from luxmeter.calls.table import BY, make_table
from luxmeter.calls.tree import make_tree
from luxmeter.signature import Signature

ONE_CORE = "made-up events"

CALLABLES = (
    CallableNames("(luxmeter)"),
    CallableNames("torch.add"),
    CallableNames("Tensor.__add__", "torch.add"),
    CallableNames("DataLoader.__next__"),
    CallableNames("Net", path="net"),
    CallableNames("torch.nn.Linear", path="net.a"),
    CallableNames("Tensor.backward"),
    CallableNames("torch.optim.SGD.step", boundary=True),
    CallableNames("train", kind=SECTION),
)
SECTIONS = (8,)
SIGNATURES = (None, *(SignatureNames(1, Signature((n,))) for n in range(3)))
SITES = (None, *(SiteNames(f"/a/{f}.py", f"f{n // 2}", n) for f in "xy" for n in range(1, 4)))


def events_of(seed: int, calls: int) -> dict[str, Any]:
    """Events of threads of three processes as they end: calls in calls, some lost, some at one tick of the clock."""
    rng = random.Random(seed)
    rows: list[dict[str, int]] = []
    for process, thread in ((0, 0), (0, 1), (1, 0), (2, 3)):
        rows += _thread(rng, process, thread, calls // 4)
    rng_order = sorted(range(len(rows)), key=lambda i: rows[i]["process"])  # threads of a process stay mixed
    if rng.random() < 0.5:
        rng_order = _mixed(rng, rows)
    columns = {
        name: np.array([rows[i].get(name, 0) for i in rng_order], dtype=EVENT_DTYPE[name])
        for name in EVENT_DTYPE.names or ()
    }
    columns["process"] = np.array([rows[i]["process"] for i in rng_order], dtype=np.uint32)
    return columns


def _mixed(rng: random.Random, rows: list[dict[str, int]]) -> list[int]:
    """The threads of a process in turns, each in its order."""
    found: list[int] = []
    for _, group in itertools.groupby(range(len(rows)), key=lambda i: rows[i]["process"]):
        lanes: dict[int, list[int]] = {}
        for i in group:
            lanes.setdefault(rows[i]["thread"], []).append(i)
        left = list(lanes.values())
        while left := [lane for lane in left if lane]:
            found.append(rng.choice(left).pop(0))
    return found


def _thread(rng: random.Random, process: int, thread: int, calls: int) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = []
    now = rng.randrange(100)
    left = calls

    def call(depth: int, section: int) -> tuple[int, int]:
        """Its duration by the clock, and that of the recorder's own work in it."""
        nonlocal now, left
        left -= 1
        start, child, works = now, 0, 0
        what = rng.randrange(1, len(CALLABLES))
        inner = what if what in SECTIONS else section
        now += rng.choice((0, 0, 1, 3, 20, 500))
        while left > 0 and depth < 5 and rng.random() < 0.5:
            if rng.random() < 0.15:
                took = rng.randrange(1, 30)
                rows.append({"start_ns": now, "duration_ns": took, "flags": OWN | SPANNED | COMPLETED, "depth": depth + 1,
                                 "process": process, "thread": thread})  # fmt: skip
                now += took
                child += took
                works += took
            took, work = call(depth + 1, inner)
            child += took
            works += work
            now += rng.choice((0, 0, 2, 7))
        flags = (
            COMPLETED
            | (INSIDE if depth and rng.random() < 0.4 else 0)
            | (SPANNED if rng.random() < 0.5 else 0)
        )
        flags |= (FIRST if rng.random() < 0.1 else 0) | (RAISED if rng.random() < 0.05 else 0)
        now += rng.choice((0, 0, 1, 5))
        took = now - start
        row = {"callable": what, "signature": rng.randrange(4), "site": rng.randrange(len(SITES)), "section": section, "depth": depth,
                   "start_ns": start, "duration_ns": took, "child_ns": child, "wait_ns": rng.randrange(took + 1) // 2, "flags": flags,
                   "process": process, "thread": thread}  # fmt: skip
        if rng.random() > 0.03:  # or it is lost
            rows.append(row)
        return took, works

    while left > 0:
        call(0, 0)
        now += rng.choice((0, 0, 4, 60))
    return rows


END = {"started_ns": -50, "elapsed_ns": 4000, "pauses": [["gc", 0, 10, 40], ["gc", 0, 200, 900]]}
PROCESSES = tuple(
    ProcessRecord(rank, 100 + rank, {}, {}, {0: "MainThread", 1: "other"}, dict(END)) for rank in range(3)
)


def held(columns: dict[str, Any]) -> Recording:
    """A trace whose events are held."""
    columns = dict(columns)
    set_own_work_apart(columns)
    return Recording(columns, (), CALLABLES, SIGNATURES, PROCESSES, SITES)


def chunked(columns: dict[str, Any], rows: int) -> Recording:
    """The same in chunks of so many events."""
    parts = []
    for first in range(0, len(columns["flags"]), rows):
        piece = {name: column[first : first + rows] for name, column in columns.items()}
        start, end = piece["start_ns"], piece["start_ns"] + piece["duration_ns"]
        # One process a part, as on disk.
        for process in np.unique(piece["process"]).tolist():
            of = {name: column[piece["process"] == process] for name, column in piece.items()}
            parts.append(
                Part(lambda of=of: dict(of), process, len(of["flags"]), int(start.min()), int(end.max()))
            )  # type: ignore[misc]
    events = Events(parts, OwnWork.of_all(columns), (*columns, "own_ns"), rows=rows)
    return Recording(events, (), CALLABLES, SIGNATURES, PROCESSES, SITES)


TRACES = given(seed=st.integers(0, 1 << 30), calls=st.integers(4, 150), rows=st.integers(1, 150))


@TRACES
@settings(max_examples=60, deadline=None)
def test_the_same_table(seed: int, calls: int, rows: int) -> None:
    columns = events_of(seed, calls)
    one, other = held(columns), chunked(columns, rows)
    for by, warmup, inside in itertools.product(BY, (True, False), (True, False)):
        a, b = (make_table(r, by, warmup=warmup, inside=inside) for r in (one, other))
        assert a.rows == b.rows and a.calls == b.calls, by
    assert not other.is_held and "_all" not in other.events.__dict__


@TRACES
@settings(max_examples=60, deadline=None)
@example(3316, 24, 1)  # a section behind the last call of a thread
def test_the_same_tree_and_time_outside(seed: int, calls: int, rows: int) -> None:
    columns = events_of(seed, calls)
    one, other = held(columns), chunked(columns, rows)
    assert _plain(make_tree(one)) == _plain(make_tree(other))
    assert find_outside(one).threads == find_outside(other).threads
    assert (
        find_outside(one, most=1).threads
        == find_outside(other, most=1).threads
        == find_outside(one).threads[:1]
    )
    assert (one.calls, one.n, one.first_ns) == (other.calls, other.n, other.first_ns)


@TRACES
@settings(max_examples=60, deadline=None)
def test_the_same_steps(seed: int, calls: int, rows: int) -> None:
    columns = events_of(seed, calls)
    one, other = held(columns), chunked(columns, rows)
    for by, sampled in ((None, False), (None, True), ("train", False)):
        a, b = (find_steps(made, by=by, sampled=sampled) for made in (one, other))
        assert list(a) == list(b) and a.lines() == b.lines()
        assert split_of(one, a.median) == split_of(other, b.median)
    assert split_of(one, None, find_outside(one).main) == split_of(other, None, find_outside(other).main)


@TRACES
@settings(max_examples=100, deadline=None)
def test_a_split_and_the_time_outside_say_the_same(seed: int, calls: int, rows: int) -> None:
    """Of each thread, with calls that were lost, sections in calls and calls in sections, and the recorder at work anywhere."""
    columns = events_of(seed, calls)
    for made in (held(columns), chunked(columns, rows)):
        for thread in find_outside(made):
            split = split_of(made, None, thread)
            assert split is not None and split.total_ns == thread.wall_ns
            parts = dict(split.parts)
            assert parts.get(OUTSIDE, 0) == thread.outside_ns
            assert parts.get(RECORDING, 0) == thread.describing_ns


@TRACES
@settings(max_examples=60, deadline=None)
def test_each_moment_of_a_step_is_of_one_kind(seed: int, calls: int, rows: int) -> None:
    columns = events_of(seed, calls)
    made = chunked(columns, rows)
    for by in (None, "train"):
        for step in find_steps(made, by=by):
            assert sum(step.kinds_ns) == step.total_ns and min(step.kinds_ns) >= 0
            assert step.outside_ns == _without_a_call(made, step)


def _without_a_call(made: Recording, step: Step) -> int:
    """By looking at every nanosecond of a step, in the thread whose steps they are."""
    e = {
        name: np.concatenate([chunk[name] for _, chunk in made.chunks()])
        for name in (*columns_needed, "own_ns")
    }
    mine = (e["process"] == step.process) & ((e["flags"] & OWN) == 0)
    lanes: dict[int, int] = {}
    for thread, depth, took in zip(
        e["thread"][mine].tolist(), e["depth"][mine].tolist(), e["duration_ns"][mine].tolist(), strict=True
    ):
        lanes[thread] = lanes.get(thread, 0) + (took if depth == int(e["depth"][mine].min()) else 0)
    busiest = max(sorted(lanes), key=lambda thread: lanes[thread])
    open_ = np.zeros(step.total_ns, dtype=bool)
    at = np.flatnonzero(mine & (e["thread"] == busiest) & (made.kinds[e["callable"]] != SECTION))
    for k in at.tolist():
        start = int(e["start_ns"][k]) - step.start_ns
        stop = start + int(e["duration_ns"][k] + e["own_ns"][k])
        open_[max(start, 0) : max(stop, 0)] = True
    return int((~open_).sum())


columns_needed = ("process", "thread", "flags", "depth", "callable", "start_ns", "duration_ns")


@TRACES
@settings(max_examples=30, deadline=None)
def test_the_same_of_a_rank(seed: int, calls: int, rows: int) -> None:
    columns = events_of(seed, calls)
    one, other = (made.of_rank(1) for made in (held(columns), chunked(columns, rows)))
    for by in BY:
        assert make_table(one, by).rows == make_table(other, by).rows
    assert _plain(make_tree(one)) == _plain(make_tree(other))


def _plain(tree: Any) -> Any:
    """Without an order of what took the same time."""
    inner = sorted((_plain(child) for child in tree.children), key=repr)
    return tree.name, tree.n, tree.total_ns, tree.self_ns, tree.path, inner


def test_a_column_by_name_reads_all() -> None:
    columns = events_of(1, 90)
    one, other = held(columns), chunked(columns, 7)
    assert sorted(other.events) == sorted(one.events) and len(other.events) == len(one.events)
    for name in ("duration_ns", "own_ns", "child_ns", "process"):
        assert sorted(other.events[name].tolist()) == sorted(one.events[name].tolist())


def test_a_chunk_in_which_nothing_begins_is_not_read() -> None:
    columns = events_of(2, 400)
    made = chunked(columns, 20)
    starts = columns["start_ns"]
    low, high = int(np.quantile(starts, 0.4)), int(np.quantile(starts, 0.5))
    found = [chunk["start_ns"] for _, chunk in made.chunks(between=(low, high))]
    got = np.concatenate(found)
    assert np.count_nonzero((got >= low) & (got < high)) == np.count_nonzero(
        (starts >= low) & (starts < high)
    )
    assert len(found) < len(list(made.chunks()))


def test_buckets_hold_each_value_and_their_middle_is_near() -> None:
    values = np.unique(np.concatenate([np.arange(5000), np.geomspace(1, 2.0**62, 20000).astype(np.int64)]))
    near = middle_of(bucket_of(values))
    assert (near[:127] == values[:127]).all()
    assert (np.abs(near - values) <= 0.01 * values).all()
    assert (np.diff(bucket_of(values)) >= 0).all()


@pytest.mark.parametrize("shape", ["log", "narrow", "two", "one"])
def test_percentiles_of_many_are_within_one_percent(shape: str) -> None:
    rng = np.random.default_rng(3)
    n, groups = 40_000, 5
    values = {
        "log": rng.lognormal(9, 2, n),
        "narrow": 50_000 + rng.normal(0, 40, n),
        "two": np.where(rng.random(n) < 0.5, 130, 9_000_000),
        "one": np.full(n, 777_777),
    }[shape].astype(np.int64)
    codes = rng.integers(0, groups, n)
    exact, counted = Spread(), Spread(exact=n // 3)
    for at in np.array_split(np.arange(n), 7):
        exact.add(codes[at], values[at])
        counted.add(codes[at], values[at])
    assert exact.is_exact and not counted.is_exact
    ends = [np.array([end(values[codes == g]) for g in range(groups)]) for end in (np.min, np.max)]
    one, other = (np.array(s.percentiles(groups, *ends)) for s in (exact, counted))
    for g, percents in enumerate(one.tolist()):
        ordered = np.sort(values[codes == g])
        assert percents == [ordered[rank_of(p, len(ordered))] for p in PERCENTS]
    assert (np.abs(other - one) <= 0.01 * one).all()


def test_a_table_says_when_its_percentiles_are_near_only(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = events_of(5, 300)
    exact = make_table(held(columns))
    monkeypatch.setattr("luxmeter.calls.spread.EXACT", 100)
    near = make_table(chunked(columns, 40))
    assert any("within 1 %" in note for note in near.notes) and not exact.notes
    for row in exact:
        other = near[row.name]
        assert (other.n, other.total_ns, other.self_ns, other.min_ns, other.max_ns, other.first_ns) == (
            row.n, row.total_ns, row.self_ns, row.min_ns, row.max_ns, row.first_ns)  # fmt: skip
        for a, b in ((row.p50_ns, other.p50_ns), (row.p95_ns, other.p95_ns), (row.p99_ns, other.p99_ns)):
            assert a is not None and b is not None and abs(a - b) <= 0.01 * a


def test_groups_without_values_have_no_percentiles() -> None:
    counted = Spread(exact=0)
    counted.add(np.empty(0, np.int64), np.empty(0, np.int64))
    counted.add(np.array([0, 2, 0]), np.array([5, 9, 5]))
    counted.add(np.empty(0, np.int64), np.empty(0, np.int64))
    assert not counted.is_exact
    ends = np.array([5, 0, 9, 0])
    assert counted.percentiles(4, ends, ends) == [(5, 5, 5), (0, 0, 0), (9, 9, 9), (0, 0, 0)]
