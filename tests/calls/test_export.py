"""A trace as files: what is in them is what was traced."""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from seen import CORES
from torch import nn

import luxmeter as lux
from luxmeter.calls import Trace, TraceResult, export
from luxmeter.calls.formats import is_trace_file_name, trace_format_of
from luxmeter.calls.records import OWN
from luxmeter.calls.tree import CallTree
from luxmeter.calls.window import Window, in_window
from luxmeter.errors import MissingExtraError, TraceError, UsageError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


@pytest.fixture(scope="module", params=CORES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceResult]:
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(3, 4)
    folder = tmp_path_factory.mktemp("export") / "t"
    with lux.trace(inside=True, keep=folder, core=request.param) as t:
        for _ in range(5):
            with t.section("train"):
                opt.zero_grad()
                net(x).sum().backward()
                opt.step()
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
    yield t.result


def test_csv_json_parquet_and_pandas_hold_every_call(saved: TraceResult) -> None:
    for name in ("c.csv", "c.json", "c.parquet"):
        assert export.write(saved, name) == Path(name)
    with open("c.csv", newline="") as stream:
        from_csv = list(csv.DictReader(stream))
    from_json = json.loads(Path("c.json").read_text())
    frame = export.frame(saved)
    assert len(from_csv) == len(from_json) == pq.read_table("c.parquet").num_rows == len(frame)
    assert frame.groupby("label", observed=True).size()["torch.relu"] == 5
    assert [row["name"] for row in from_csv] == [row["name"] for row in from_json] == list(frame["name"])
    assert [int(row["duration_ns"]) for row in from_csv] == list(frame["duration_ns"])
    relu = next(row for row in from_json if row["name"] == "torch.relu")
    assert relu["signature"] == "f32[3,8]" and relu["section"] == "train"
    raised = frame[frame["raised"]]
    assert list(raised["name"]) == ["torch.mm"]
    assert sorted(p.name for p in Path().iterdir()) == ["c.csv", "c.json", "c.parquet"]


def test_parents_point_at_their_callers(saved: TraceResult) -> None:
    frame = export.frame(saved)
    below = frame[frame["parent"] >= 0]
    callers = frame.loc[below["parent"]]
    assert len(below) > 20
    assert (callers["depth"].to_numpy() + 1 == below["depth"].to_numpy()).all()
    assert (callers["start_ns"].to_numpy() <= below["start_ns"].to_numpy()).all()
    assert (frame["name"] != "(luxmeter)").all()


@pytest.mark.parametrize("what", ["api", "signature", "module", "section"])
def test_tables(saved: TraceResult, what: str) -> None:
    export.write(saved, "t.csv", what=what)
    frame = pd.read_csv("t.csv", keep_default_na=False)
    assert list(frame[what]) == [row.name for row in saved.table(what)]
    assert list(frame["total_ns"]) == [row.total_ns for row in saved.table(what)]


def check_trace_event_format(text: str) -> list[dict[str, Any]]:
    """The grammar of the Trace Event Format for what we write, and that spans of a lane nest."""
    document = json.loads(text)
    assert set(document) <= {"traceEvents", "displayTimeUnit"} and document["displayTimeUnit"] in ("ms", "ns")
    lanes = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert (
            isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        )
        assert isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            continue
        assert isinstance(event["cat"], str)
        assert event["ts"] >= 0 and event["dur"] >= 0
        lanes[event["pid"], event["tid"]].append((round(event["ts"] * 1e3), round(event["dur"] * 1e3)))
    for spans in lanes.values():
        open_until: list[int] = []
        for start, duration in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or start + duration <= open_until[-1]
            open_until.append(start + duration)
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_perfetto(saved: TraceResult) -> None:
    export.write(saved, "t.perfetto.json")
    events = check_trace_event_format(Path("t.perfetto.json").read_text())
    assert len(events) == len(export.frame(saved))
    relu = next(e for e in events if e["name"] == "torch.relu")
    line, function = relu["args"].pop("line"), relu["args"].pop("function")
    assert line.startswith("test_export.py:") and function
    assert relu["args"] == {"api": "torch.relu", "with": "f32[3,8]", "section": "train"}
    assert any(e["args"].get("raised") for e in events if e["name"] == "torch.mm")


def test_perfetto_of_a_window_or_a_depth(saved: TraceResult) -> None:
    export.write(saved, "whole.trace.json")
    whole = check_trace_event_format(Path("whole.trace.json").read_text())
    export.write(saved, "flat.trace.json", window=Window(depth=2))
    flat = check_trace_event_format(Path("flat.trace.json").read_text())
    assert 0 < len(flat) < len(whole)
    middle = sorted(e["ts"] for e in whole)[len(whole) // 2]
    export.write(saved, "late.trace.json", window=Window(start_s=(middle - 0.0005) / 1e6))
    late = check_trace_event_format(Path("late.trace.json").read_text())
    assert len(late) == sum(e["ts"] >= middle for e in whole)


def test_a_part_is_as_if_nothing_else_had_been_recorded(saved: TraceResult) -> None:
    frame = export.frame(saved)
    flat = export.frame(saved, window=Window(depth=1))
    assert len(flat) == (frame["depth"] == 0).sum() and (flat["parent"] == -1).all()
    whole = frame[(frame["depth"] == 0)]["duration_ns"].sum()
    own = export.arrow(saved, "section", window=Window(depth=1)).to_pandas()["self_ns"].sum()
    train = frame[(frame["name"] == "train")]["duration_ns"].sum()
    described = saved.recording.events["duration_ns"][(saved.recording.events["flags"] & OWN) != 0].sum()
    assert train - described <= own <= train <= whole  # what they called counts as their own
    export.write(saved, "flat.folded", window=Window(depth=1))
    assert all(";" not in line for line in Path("flat.folded").read_text().splitlines())
    late = Window(start_s=(frame["start_ns"].max() - frame["start_ns"].min()) / 1e9)
    assert list(export.frame(saved, window=late)["name"]) == ["torch.mm"]
    assert [row["api"] for row in export.arrow(saved, "api", window=late).to_pylist()] == ["torch.mm"]
    export.write(saved, "late.html", window=late)
    page = Path("late.html").read_text()
    assert "only a part: calls that begin in" in page and "torch.relu" not in page
    with pytest.raises(UsageError, match=r"between 0 and [\d.]+ s.*empty-window"):
        export.write(saved, "none.csv", window=Window(start_s=1e6))
    assert not Path("none.csv").exists()
    assert export.frame(saved, window=Window()).equals(frame)


def test_a_window_begins_with_a_call_whatever_its_nanosecond(saved: TraceResult) -> None:
    """Not every number of nanoseconds comes back from seconds: 16723301 / 1e9 * 1e9 is a bit more."""
    odd = next(ns for ns in range(16_723_000, 16_724_000) if ns / 1e9 * 1e9 > ns)
    events = dict(saved.recording.events)
    events["start_ns"] = events["start_ns"].copy()
    last = int(np.argmax(events["start_ns"]))
    events["start_ns"][last] = events["start_ns"].min() + odd
    events["start_ns"][events["start_ns"] > events["start_ns"][last]] = events["start_ns"][last] - 1
    made = copy.copy(saved)
    made.__dict__["recording"] = dataclasses.replace(saved.recording, events=events)
    assert len(export.frame(made, window=Window(start_s=odd / 1e9))) == 1
    assert len(export.frame(made, window=Window(end_s=odd / 1e9))) == len(export.frame(made)) - 1


def test_callers_come_before_what_they_call_in_one_tick_of_the_clock(saved: TraceResult) -> None:
    made = copy.copy(saved)
    events = {**saved.recording.events, "start_ns": np.zeros_like(saved.recording.events["start_ns"])}
    made.__dict__["recording"] = dataclasses.replace(saved.recording, events=events)
    export.write(made, "tick.perfetto.json")
    written = [
        e["name"] for e in json.loads(Path("tick.perfetto.json").read_text())["traceEvents"] if e["ph"] == "X"
    ]
    first = [
        next(i for i, name in enumerate(written) if name.endswith(end))
        for end in ("train", "Net", "nn.Linear")
    ]
    assert first == sorted(first)


def test_collapsed_stacks_add_up_to_the_whole(saved: TraceResult) -> None:
    export.write(saved, "t.folded")
    lines = Path("t.folded").read_text().splitlines()
    found = {stack: int(value) for stack, value in (line.rsplit(" ", 1) for line in lines)}
    assert any(stack.startswith("train;") and stack.endswith("Net (Net);torch.relu") for stack in found)
    own = sum(node.self_ns for _, node in saved.tree().walk() if node.self_ns > 0)
    assert sum(found.values()) == own


def test_totals_have_tables_and_no_calls(tmp_path: Path, core_name: str) -> None:
    with lux.trace(totals=True) as t:
        torch.ones(2).sum()
    export.write(t, "t.csv", what="api")
    assert len(pd.read_csv("t.csv")) == 2
    export.write(t, "t.html")
    for wrong in ({}, {"what": "api", "window": Window(depth=1)}):
        with pytest.raises(TraceError, match="totals-only"):
            export.write(t, "calls.csv", **wrong)  # type: ignore[arg-type]
    assert not Path("calls.csv").exists() and not list(Path().glob(".calls*"))


def test_wrong_requests(saved: TraceResult) -> None:
    with pytest.raises(UsageError, match=r"'\.html'.*unknown-trace-format"):
        export.write(saved, "t.htm")
    with pytest.raises(UsageError, match=r"'parquet'"):
        export.write(saved, "x", format="parket")
    with pytest.raises(UsageError, match=r"'signature'"):
        export.write(saved, "x.csv", what="signatures")
    with pytest.raises(TraceError, match="trace-file-unwritable"):
        export.write(saved, "/proc/none/x.csv")
    for name in ("x.html", "x.folded", "x.perfetto.json"):
        with pytest.raises(UsageError, match="no-table-in-format"):
            export.write(saved, name, what="api")
    for window in ("1", "2:1", "a:b", "1:2:3", "nan:1", ":inf"):
        with pytest.raises(UsageError, match="bad-window"):
            Window.parse(window)
    assert Window.parse(":0.5", 3) == Window(None, 0.5, 3)


def test_names_of_files_and_folders(core_name: str) -> None:
    assert [is_trace_file_name(n) for n in ("a.html", "dir/", "dir", ".hidden", "a.b/c", "../x")] == [
        True
    ] + [False] * 5
    assert trace_format_of("a.trace.json") == "perfetto" and trace_format_of("a.json") == "json"


def test_a_running_trace_can_be_written(core_name: str) -> None:
    t: Trace = lux.start()
    try:
        torch.ones(2)
        export.write(t, "live.csv")
    finally:
        lux.stop()
    assert "torch.ones" in Path("live.csv").read_text()


def test_a_window_in_words_and_one_in_which_nothing_begins(saved: TraceResult) -> None:
    assert str(Window(depth=1)) == "the upper 1 level of calls"
    assert str(Window(start_s=1.5, depth=3)) == "calls that begin in 1.5 s:, the upper 3 levels of calls"
    with pytest.raises(UsageError, match="empty-window"):
        in_window(saved, Window(start_s=1e6, depth=1))


def test_a_data_frame_without_pandas_says_what_to_install(
    saved: TraceResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        export.frame(saved)


@pytest.mark.one_core("what is written is made of a recording, whichever core made it")
def test_a_call_without_time_of_its_own_is_no_line_of_a_flame_graph() -> None:
    inner = CallTree("b;c", 1, 5, 5, "", ())
    tree = CallTree("", 2, 5, 0, "", (CallTree("a", 1, 5, 0, "net", (inner,)),))
    assert list(export.collapsed(tree)) == ["a (net);b:c 5"]
