"""The time outside: made-up events whose gaps are known, and a real trace that imports, collects and waits."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

import luxmeter as lux
from luxmeter.calls.outside import BEGIN, END, find_outside
from luxmeter.calls.pauses import Pauses
from luxmeter.calls.reader import Recording, set_own_work_apart
from luxmeter.calls.records import EVENT_DTYPE, OWN, SECTION, SPANNED, CallableNames, ProcessRecord, SiteNames
from luxmeter.render import span

ONE_CORE = "what is traced runs on both cores; the rest are made-up events"

CALLABLES = (
    CallableNames("(luxmeter)"),
    CallableNames("torch.add"),
    CallableNames("DataLoader.__next__", "next(DataLoader)"),
    CallableNames("train", kind=SECTION),
)
ADD, NEXT, TRAIN = 1, 2, 3
SITES = (None, SiteNames("/a/train.py", "f", 3), SiteNames("/a/train.py", "f", 7))


def recording(*rows: dict[str, Any], **end: Any) -> Recording:
    """Events as they end; `end` is what the process told at its end."""
    columns: dict[str, Any] = {n: np.zeros(len(rows), EVENT_DTYPE[n]) for n in EVENT_DTYPE.names or ()}
    for i, row in enumerate(rows):
        for name, value in row.items():
            columns[name][i] = value
    columns["process"] = np.zeros(len(rows), np.uint32)
    set_own_work_apart(columns)
    process = ProcessRecord(0, 1, {}, {}, {0: "MainThread", 1: "other"}, end)
    return Recording(columns, (), CALLABLES, (None,), (process,), SITES)


def event(what: int, start: int, duration: int, **more: Any) -> dict[str, Any]:
    return {"callable": what, "start_ns": start, "duration_ns": duration, **more}


def test_gaps_lie_between_lines() -> None:
    made = recording(
        event(ADD, 100, 50, site=1),
        event(ADD, 160, 40, site=2),
        event(ADD, 300, 100, site=1),
        event(ADD, 420, 80, site=2),
        started_ns=0,
        elapsed_ns=1000,
    )
    main = find_outside(made).main
    assert main is not None
    assert (main.wall_ns, main.calls_ns, main.outside_ns) == (1000, 270, 730)
    assert [(g.after, g.before, g.n, g.total_ns, g.longest_ns) for g in main.gaps] == [
        ("train.py:7", END, 1, 500, 500),
        (BEGIN, "train.py:3", 1, 100, 100),
        ("train.py:7", "train.py:3", 1, 100, 100),
        ("train.py:3", "train.py:7", 2, 30, 20),
    ]
    assert sum(g.total_ns for g in main.gaps) == main.outside_ns


def test_what_lies_within_a_call_is_no_gap_and_a_section_is_no_call() -> None:
    made = recording(
        event(ADD, 110, 20, depth=2, section=TRAIN),
        event(ADD, 100, 100, depth=1, section=TRAIN, site=1),
        event(ADD, 260, 40, depth=1, section=TRAIN, site=2),
        event(TRAIN, 50, 300, flags=SPANNED),
    )
    (main,) = find_outside(made)
    assert (main.wall_ns, main.outside_ns) == (200, 60), "without an end, from the first call to the last"
    (gap,) = main.gaps
    assert (gap.after, gap.before, gap.section) == ("train.py:3", "train.py:7", "train")


def test_pauses_and_own_work_count_where_they_lie_outside() -> None:
    made = recording(
        event(ADD, 0, 100, site=1),
        event(0, 150, 30, flags=OWN | SPANNED),  # between the calls
        event(0, 450, 20, flags=OWN | SPANNED, depth=1),  # within the second
        event(NEXT, 400, 120, site=2),
        started_ns=0,
        elapsed_ns=520,
        pauses=[
            ["gc", 0, 90, 40],
            ["gc", 0, 410, 50],
            ["compile", 0, 200, 60],
            ["import", 0, 300, 7],
            ["gc", 1, 150, 100],
        ],
        cost={"added_ns": 5.0, "inside_ns": 2.0},
    )
    (main,) = find_outside(made)
    assert (main.outside_ns, main.data_ns) == (300, 120)
    assert (main.collecting_ns, main.compiling_ns, main.importing_ns) == (30, 60, 7)
    assert main.recording_ns == 30 + 2 * 3


def test_each_thread_has_its_own_time() -> None:
    made = recording(
        event(ADD, 500, 50, thread=1),
        event(ADD, 600, 50, thread=1),
        event(ADD, 0, 10, site=1),
        started_ns=0,
        elapsed_ns=1000,
    )
    main, other = find_outside(made)
    assert (main.name, main.wall_ns, main.outside_ns) == ("MainThread", 1000, 990)
    assert (other.name, other.wall_ns, other.outside_ns) == ("other", 150, 50)
    assert other.gaps[0].after == "torch.add", "without a line, the call's name"


def test_a_table_ends_with_the_time_outside(core_name: str) -> None:
    x = torch.ones(2)
    with lux.trace() as t:
        x.sin()
        junk = [[] for _ in range(50_000)]  # the collector's work
        gc.collect()
        x.cos()
    del junk
    main = t.outside().main
    assert main is not None and main.wall_ns == t.result.recording.processes[0].end["elapsed_ns"]
    assert 0 < main.collecting_ns < main.outside_ns and main.recording_ns > 0
    first, *_ = str(t).splitlines()
    assert f"{span(main.outside_ns)} of it outside them" in first
    rows = t.table().as_table().rows
    assert rows[-1][0] == "outside" and main.outside_ns in rows[-1]
    assert all(row.name != "outside" for row in t.table()), "it is no row of calls"
    assert any("garbage collection" in line for line in t.table().as_table().notes)
    assert t.outside().gap_table().rows and "MainThread" in str(t.outside())
    assert t.table("module").text().count("outside") == 0


def test_no_callback_is_left_in_the_collector(core_name: str) -> None:
    before = list(gc.callbacks)
    with lux.trace():
        torch.ones(1)
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before


def test_short_pauses_are_only_counted() -> None:
    times = iter([0, 100, 1_000, 500_000, 600_000, 600_001])
    pauses = Pauses(lambda: next(times))
    for _ in range(2):
        pauses._on_gc("start", {})
        pauses._on_gc("stop", {})
    with pauses.during("import"), pauses.during("import"):
        pass
    (row,) = pauses.told({threading.get_ident(): 3})
    assert row == ["gc", 3, 1_000, 499_000]
    assert (pauses.counted, pauses.counted_ns) == (2, 101)
    assert pauses.told({}) == []


def test_of_several_processes_the_first_line_tells_time_by_the_clock(core_name: str, tmp_path: Path) -> None:
    """They run beside each other: their times together are no time that anybody waited."""
    for name in "ab":
        with lux.trace(framework=None, keep=tmp_path / name) as t:
            t.wrap(sum, name="work")(range(20_000))
    both = lux.load_trace(tmp_path / "a", tmp_path / "b")
    each = [process.end["elapsed_ns"] for process in both.recording.processes]
    assert both.elapsed_ns == max(each) < sum(each) == both.cost().elapsed_ns
    assert f" in {span(max(each))}, " in str(both).splitlines()[0]


def test_a_trace_without_calls_and_a_notebook() -> None:
    empty = find_outside(recording())
    assert str(empty) == "no call was recorded" and empty.main is None
    found = find_outside(recording(event(ADD, 100, 50, site=1), event(ADD, 400, 40, site=2)))
    assert found._repr_html_().count("<table") == 2


def test_a_collection_that_began_before_the_trace_is_not_counted() -> None:
    pauses = Pauses(lambda: 10**9)
    pauses._on_gc("stop", {})
    assert pauses.counted == 0 and not pauses.told({threading.get_ident(): 0})
