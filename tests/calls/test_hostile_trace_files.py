"""Lines of words.jsonl and counters of end.json that no trace of ours has: each is refused with the name of what it is in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import luxmeter as lux
from luxmeter.calls import damage_of_trace
from luxmeter.calls.checked import check_end, check_line
from luxmeter.calls.diff import diff_traces
from luxmeter.calls.records import EVENT_DTYPE
from luxmeter.calls.result import TraceResult
from luxmeter.errors import LuxmeterError, LuxmeterWarning
from luxmeter.store import write_sealed

ONE_CORE = "what files say is read; nothing hangs on how it was recorded"

GOOD_LINES: list[dict[str, Any]] = [
    {"callable": 1, "name": "torch.add", "label": "", "kind": 0, "path": ""},
    {"signature": 1, "of": 1, "general": False, "outputs": [[1, 2]]},
    {"thread": 1, "name": "MainThread"},
    {"site": 1, "file": "a.py", "function": "f", "line": 3, "source": "f()"},
    {"of a newer version": 1},
]


@pytest.mark.parametrize("line", GOOD_LINES)
def test_a_good_line_is_taken_and_each_of_its_values_looked_at(line: dict[str, Any]) -> None:
    check_line(line)
    for name in (name for name in line if "newer" not in name):
        for value in (None, {}, -1.5, {"a": [1]}):
            with pytest.raises(ValueError, match=rf"its {name} is "):
                check_line({**line, name: value})
        if name not in ("callable", "signature", "thread", "site", "general", "outputs"):
            with pytest.raises(ValueError, match=rf"its {name} is None"):
                check_line({key: value for key, value in line.items() if key != name})


@pytest.mark.parametrize("line", [None, 7, "x", [1]])
def test_a_line_that_is_no_object(line: Any) -> None:
    with pytest.raises(ValueError, match="no object"):
        check_line(line)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    with lux.trace(keep=tmp_path / "t"):
        torch.ones(2) + 1
    return tmp_path / "t"


def test_the_end_of_a_trace_is_looked_at_value_by_value(kept: Path) -> None:
    [file] = kept.glob("rank*/end.json")
    good = json.loads(file.read_text())
    good.pop("$sum", None)
    check_end(good)
    check_end({})
    refused = set()
    for name in good:
        for value in (None, "\ud800", -1.5, {"a": "b"}, ["x"] * 200):
            try:
                check_end({**good, name: value})
            except ValueError as error:
                assert name in str(error)
                refused.add(name)
    assert {"stats", "elapsed_ns", "cost", "clock", "remarks"} <= refused
    for bad in (None, [1], {key: value for key, value in good.items() if key != "stats"}):
        with pytest.raises(ValueError, match=r"end\.json (holds no object|has no stats)"):
            check_end(bad)


def test_a_line_that_a_disk_changed_costs_its_names(kept: Path) -> None:
    [file] = kept.glob("rank*/words.jsonl")
    good = file.read_text()
    assert "torch.ones" in good
    file.write_text(good.replace("torch.ones", "torch.twos"))
    with pytest.warns(LuxmeterWarning):
        names = {row.name for row in lux.load_trace(kept).table().rows}
    assert "torch.ones" not in names and "torch.twos" not in names


@pytest.mark.parametrize("left", [0, 0.5])
def test_names_that_were_cut_off_a_trace_that_ended_are_told(kept: Path, left: float) -> None:
    [words] = kept.glob("rank*/words.jsonl")
    data = words.read_bytes()
    words.write_bytes(data[: int(len(data) * left)])
    with pytest.warns(LuxmeterWarning, match="the names of .* call"):
        lux.load_trace(kept).table()
    assert [what for place, what in damage_of_trace(kept) if place == words]


def test_totals_without_names_are_told(tmp_path: Path) -> None:
    with lux.trace(keep=tmp_path / "t", totals=True):
        torch.ones(2) + 1
    [words] = (tmp_path / "t").glob("rank*/words.jsonl")
    words.unlink()
    with pytest.warns(LuxmeterWarning, match="the names of"):
        lux.load_trace(tmp_path / "t").table()


def test_what_is_no_trace(tmp_path: Path, kept: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(LuxmeterError):
            lux.load_trace(place)
    [file] = kept.rglob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    with pytest.raises(LuxmeterError):
        str(lux.load_trace(kept).table())


@pytest.mark.parametrize("missing", ["start_ns", "child_ns", "depth", "callable"])
def test_events_in_columns_of_which_one_is_not_there(kept: Path, missing: str) -> None:
    [file] = kept.glob("rank*/events/*.parquet")
    columns = {name: np.zeros(3, EVENT_DTYPE[name]) for name in EVENT_DTYPE.names or () if name != missing}
    write_sealed(file, pa.table(columns), {})
    with pytest.raises(LuxmeterError, match=f"events without {missing}"):
        lux.load_trace(kept).table()
    columns[missing] = np.zeros(3, EVENT_DTYPE[missing])
    write_sealed(file, pa.table({name: of for name, of in columns.items() if name != "site"}), {})  # format 1
    assert sum(row.n for row in lux.load_trace(kept).table().rows) == 3


@pytest.mark.parametrize(
    "said",
    [7, [1], {}, {"format": "3"}, {"format": {}}, {"format": 3, "options": []}]
    + [{"format": 3, "options": {name: value}} for name, value in
       {"sync": "yes", "sample": "2", "max_signatures": 0, "only": {"a": 1}, "skip": [1, "a"], "budget": "x", "framework": 7}.items()],
)  # fmt: skip
def test_an_identity_that_no_trace_has_is_refused_by_everything_that_asks_for_it(
    kept: Path, said: Any
) -> None:
    (kept / "trace.json").write_text(json.dumps(said))
    asked: list[Callable[[TraceResult], object]] = [
        lambda t: t.table(), lambda t: t.recorded_with, lambda t: t.steps(), lambda t: diff_traces(t, t)
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(LuxmeterError) as caught:
            ask(lux.load_trace(kept))
        assert caught.value.slug == "trace-damaged"
