"""A trace that is too large to be held answers as one that is: a real one in small parts on disk, read both ways."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from seen import FASTEST

import luxmeter as lux
from luxmeter.calls import diff, diff_traces, export
from luxmeter.calls.chunks import Events
from luxmeter.calls.result import TraceResult, load_trace
from luxmeter.calls.syncs import device_syncs
from luxmeter.calls.table import BY
from luxmeter.calls.window import Window, first_calls, in_window
from luxmeter.errors import UsageError
from luxmeter.view.pages.trace import trace_page

ONE_CORE = "how files are read; the quickest core makes them"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TraceResult, TraceResult]]:
    """One trace of a training, held, and read in chunks of some 200 events."""
    monkeypatch.setattr("luxmeter.calls.writer.PART_ROWS", 64)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with lux.trace(keep=tmp_path / "trace", core=FASTEST, inside=True, lossless=True) as t:
        for n in range(30):
            with t.section("forward"):
                loss = model(torch.ones(n % 4 + 1, 4)).sum()
                float(loss.detach())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            t.step()
            if n % 8 == 0:
                _ = t.result  # which writes what waits
    held = load_trace(tmp_path / "trace")
    assert held.recording.is_held and held.recording.n > 800
    monkeypatch.setattr("luxmeter.calls.reader.AT_ONCE", 100)
    monkeypatch.setattr("luxmeter.calls.chunks.ROWS", 200)
    large = load_trace(tmp_path / "trace")
    assert len(list(large.recording.chunks())) > 2
    yield held, large
    assert "_all" not in vars(large.recording.events)  # nothing above has read them all


def test_tables_tree_steps_source_and_text(both: tuple[TraceResult, TraceResult]) -> None:
    held, large = both
    for by in BY:
        assert held.table(by).rows == large.table(by).rows
        assert (
            held.table(by, warmup=False, inside=False).rows
            == large.table(by, warmup=False, inside=False).rows
        )
    assert str(held.tree()) == str(large.tree())
    assert str(held.outside()) == str(large.outside())
    assert list(held.steps()) == list(large.steps()) and len(held.steps()) == 29
    assert list(held.steps("forward")) == list(large.steps("forward"))
    assert str(held.source()) == str(large.source())
    assert str(held) == str(large)
    assert list(held.operators()) == list(large.operators()) != []
    assert device_syncs(held) == device_syncs(large) != []


def test_files(both: tuple[TraceResult, TraceResult]) -> None:
    held, large = both
    for window in (None, Window(depth=1), Window(start_s=0.0, end_s=held.steps()[4].total_ns / 1e9)):
        for name in ("calls.csv", "calls.json", "calls.folded"):
            one, other = (export.write(trace, f"{i}-{name}", window=window) for i, trace in enumerate(both))
            assert one.read_text() == other.read_text(), (name, window)
        one, other = (export.write(trace, f"{i}.parquet", window=window) for i, trace in enumerate(both))
        assert _rows(pq.read_table(one)) == _rows(pq.read_table(other))
        found = [export.write(trace, f"{i}.trace.json", window=window) for i, trace in enumerate(both)]
        one, other = (sorted(map(json.dumps, json.loads(path.read_text())["traceEvents"])) for path in found)
        assert one == other
    table = export.arrow(large)
    parent = np.array(table["parent"])
    at = np.flatnonzero(parent >= 0)
    depth = np.array(table["depth"])
    assert len(at) and (depth[parent[at]] == depth[at] - 1).all()


def test_callers_come_before_what_they_call_in_a_perfetto_file(both: tuple[TraceResult, TraceResult]) -> None:
    path = export.write(both[1], "large.trace.json")
    open_ends: dict[Any, list[float]] = {}
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    for event in sorted(events, key=lambda e: e["ts"]):  # as readers do: what is at one time stays in order
        ends = open_ends.setdefault((event["pid"], event["tid"]), [])
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        assert not ends or event["ts"] + event["dur"] <= ends[-1] + 1e-3
        ends.append(event["ts"] + event["dur"])


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def test_the_page(both: tuple[TraceResult, TraceResult]) -> None:
    one, other = (trace_page(trace, title="t", window=Window()) for trace in both)
    assert one == other


def test_the_first_calls_and_a_window(both: tuple[TraceResult, TraceResult]) -> None:
    held, _ = both
    step = held.steps()[7]
    for most in (3, 1000):
        one, other = (
            first_calls(t.recording, most, start_ns=step.start_ns, end_ns=step.end_ns, process=0)
            for t in both
        )
        assert (
            one[1]
            == other[1]
            == step.calls
            + sum(w.kind == 2 for w in (held.recording.callables[c] for c in _all_in(held, step)["callable"]))
        )
        assert {k: v.tolist() for k, v in one[0].items()} == {k: v.tolist() for k, v in other[0].items()}
    for window in (Window(depth=2), Window(start_s=0.001), Window(end_s=0.005, depth=1)):
        one_part, other_part = (in_window(t, window).recording for t in both)
        assert other_part.is_held
        for name, column in one_part.events.items():
            assert column.tolist() == other_part.events[name].tolist(), (window, name)


def _all_in(trace: TraceResult, step: Any) -> Any:
    return first_calls(trace.recording, 1 << 20, start_ns=step.start_ns, end_ns=step.end_ns, process=0)[0]


def test_a_rank_of_it(both: tuple[TraceResult, TraceResult]) -> None:
    held, large = (trace.of_rank(0) for trace in both)
    assert isinstance(large.recording.events, Events)
    assert held.table().rows == large.table().rows


@pytest.mark.parametrize("by", diff.BY)
def test_times_to_compare(both: tuple[TraceResult, TraceResult], by: str) -> None:
    (one, counted), (other, counted_too) = (diff._times(trace, by, {}) for trace in both)
    assert counted == counted_too and one.keys() == other.keys() and one
    for name, times in one.items():
        assert times.total_ns == other[name].total_ns, name
        assert sorted(times.values) == sorted(other[name].values), name
        assert times.median_ns == other[name].median_ns, name
    found = diff_traces(both[1], both[1], by=by)
    assert {change.kind for change in found.changes} <= {"same", "unclear"}


def test_times_of_very_many_are_picked_evenly(
    both: tuple[TraceResult, TraceResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff, "_SAMPLED", 10)
    every, some = (diff._times(trace, "api", {})[0] for trace in both)
    assert every.keys() == some.keys()
    for name, times in some.items():
        if name == "torch.nn.Linear":
            picked = every[name].values[np.linspace(0, len(every[name].values) - 1, 10).astype(int)]
            assert times.values.tolist() == picked.tolist()
        assert len(times.values) <= 10 and set(times.values) <= set(every[name].values)
        assert times.total_ns == every[name].total_ns
        middle = np.percentile(every[name].values, 50, method="inverted_cdf")
        assert times.median_ns == middle or times.median_ns == every[name].median_ns


def test_what_recording_cost_is_taken_off(both: tuple[TraceResult, TraceResult]) -> None:
    held, large = both
    for by in BY:
        for some in ({}, {"warmup": False}, {"inside": False}):
            less = held.table(by, subtract_cost=True, **some)
            assert less.rows == large.table(by, subtract_cost=True, **some).rows, (by, some)
        assert held.table(by, subtract_cost=True).rows != held.table(by).rows


def test_every_call_in_batches_of_all_columns_or_some(both: tuple[TraceResult, TraceResult]) -> None:
    held, large = both
    batches = list(large.batches())
    assert len(batches) > 2 and {batch.schema for batch in batches} == {held.events().schema}
    assert pa.concat_tables(batches).equals(held.events()) and large.events().equals(held.events())
    parent, depth = (np.array(large.events()[name]) for name in ("parent", "depth"))
    at = np.flatnonzero(parent >= 0)
    assert len(at) and (depth[parent[at]] == depth[at] - 1).all()
    some = large.events(["duration_ns", "name"])
    assert some.column_names == ["duration_ns", "name"] and some.equals(held.events(some.column_names))
    for trace in both:
        with pytest.raises(UsageError, match=r"(?s)no column 'duration'.*duration_ns") as error:
            trace.batches(["name", "duration"])
        assert error.value.slug == "no-such-column"


def test_questions_in_sql(both: tuple[TraceResult, TraceResult], monkeypatch: pytest.MonkeyPatch) -> None:
    held, large = both
    for query in (
        "select * from calls",
        "select name, count(*) as n, sum(duration_ns) as ns from calls group by name order by name",
        "select a.name, count(*) as n from calls a join calls b on a.start_ns = b.start_ns group by all order by 1",
        "select typeof(columns(*)) from calls limit 1",
        "select s.signature, c.line from calls c join signatures s on s.id = c.signature order by c.start_ns, c.depth",
    ):
        one, other = held.sql(query), large.sql(query)
        assert one.column_names == other.column_names and _rows(one) == _rows(other), query
        assert one.num_rows
    monkeypatch.setattr(large, "batches", None)  # the calls are laid down for the first question alone
    assert large.sql("select count(*) as n from calls")["n"][0].as_py() == held.recording.n


def test_the_file_of_a_question_goes_with_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luxmeter.calls.reader.AT_ONCE", 1)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with lux.trace(keep=tmp_path / "trace", core=FASTEST, framework=None) as t:
        work = t.wrap(len, name="work")
        for _ in range(10):
            work("")
    large = load_trace(tmp_path / "trace")
    assert large.sql("select count(*) as n from calls where not own")["n"][0].as_py() == 10
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    del large
    assert not list((tmp_path / "temporary").iterdir())


def test_what_grows_meanwhile_is_read_as_far_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luxmeter.calls.reader.AT_ONCE", 10)
    with lux.trace(keep=tmp_path / "trace", core=FASTEST, lossless=True) as t:
        for _ in range(100):
            torch.ones(1) + 1
        early = t.result
        n, table = early.recording.n, early.table().rows
        for _ in range(100):
            torch.ones(1) + 1
    assert early.recording.n == n and load_trace(tmp_path / "trace").recording.n > n
    assert load_trace(tmp_path / "trace").table()["torch.ones"].n == 200
    early._made.clear()
    assert early.table().rows == table


def test_a_table_is_made_without_pandas(tmp_path: Path) -> None:
    """Which takes longer to import than a million calls to be read."""
    with lux.trace(framework=None, keep=tmp_path / "trace") as t:
        t.wrap(len, name="work")("")
    code = f"""
import sys, luxmeter as lux
from luxmeter.calls.reader import trace_title
found = lux.load_trace({str(tmp_path / "trace")!r})
print(found.table(), found.tree(), trace_title(found.folder))
raise SystemExit("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "work" in done.stdout and "1 call in" in done.stdout, done.stderr
