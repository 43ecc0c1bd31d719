"""Benchmarks, checks, costs and operators files from elsewhere: whatever they hold, they are read or refused in our words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.calls import diff_traces
from luxmeter.errors import UsageError
from luxmeter.model import load_cost
from luxmeter.operators import diff_benchmark_files, load_benchmark
from luxmeter.operators.case import load_operators
from luxmeter.operators.checks.diff import diff_checks
from luxmeter.operators.checks.records import load_check
from luxmeter.view.pages.check import check_page

ONE_CORE = "what files say is read; nothing hangs on how it was recorded"
INPUTS = Path(__file__).parents[1] / "golden" / "inputs"
DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE_PARTS = ["text", 7, [1], {"python": {"a": 1}}, {"gpus": [[1]]}]


@pytest.mark.parametrize("read", [load_benchmark, load_check, load_cost, load_operators])
def test_json_that_is_nested_deeply(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = tmp_path / "deep.json"
    path.write_text(DEEP)
    with pytest.raises(UsageError):
        read(path)


def test_an_operator_that_is_nested_deeply(tmp_path: Path) -> None:
    path = tmp_path / "ops.jsonl"
    path.write_text(
        '{"what": "luxmeter operators", "version": 1}\n{"op": "torch.relu", "args": ' + DEEP + "}\n"
    )
    with pytest.raises(UsageError, match=r"line 2.*nested too deeply"):
        load_operators(path)


@pytest.mark.parametrize(("depth", "is_read"), [(16, True), (150, False), (300, False), (900, False)])
def test_what_is_read_can_be_shown(tmp_path: Path, depth: int, is_read: bool) -> None:
    """A call is captured 16 deep. What was nested much deeper was read, and could not be shown."""
    nested = "[" * depth + "1" + "]" * depth
    path = tmp_path / "ops.jsonl"
    path.write_text(
        f'{{"what": "luxmeter operators", "version": 1}}\n{{"op": "torch.stack", "args": [{nested}]}}\n'
    )
    if is_read:
        assert nested in str(load_operators(path)[0])
    else:
        with pytest.raises(UsageError, match="operators-damaged"):
            load_operators(path)


@pytest.mark.parametrize("part", ["machine", "load", "packages", "env"])
@pytest.mark.parametrize("value", HOSTILE_PARTS)
def test_an_environment_that_is_none(tmp_path: Path, part: str, value: Any) -> None:
    """What is refused is refused when it is read; what is read can be shown and compared."""
    good = INPUTS / "bench-a.json"
    said = json.loads(good.read_text())
    said["environment"][part] = value
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(said))
    with pytest.raises(UsageError, match="benchmark-damaged"):
        load_benchmark(path)
    said = json.loads((INPUTS / "check-a.json").read_text())
    said["environment"][part] = value
    path.write_text(json.dumps(said))
    with pytest.raises(UsageError, match="check-damaged"):
        load_check(path)


def test_numbers_of_an_environment_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    for part, name in (("machine", "threads"), ("load", "load_1min")):
        said = json.loads((INPUTS / "bench-a.json").read_text())
        said["environment"][part][name] = "many"
        path.write_text(json.dumps(said))
        with pytest.raises(UsageError, match=f"benchmark-damaged|{name} is 'many'"):
            load_benchmark(path)
    said["environment"]["load"] = {}
    said["environment"]["packages"]["threads"] = "1.0"  # a package may be called so
    path.write_text(json.dumps(said))
    assert load_benchmark(path).table().rows


def test_a_time_that_is_beyond_every_number(tmp_path: Path) -> None:
    said = json.loads((INPUTS / "bench-a.json").read_text())
    said["rows"][0]["times_s"][0] = 10**400
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(said))
    with pytest.raises(UsageError, match="benchmark-damaged"):
        load_benchmark(path)


@pytest.mark.parametrize("name", ["noise_floor", "complete", "together"])
def test_a_field_of_another_type(tmp_path: Path, name: str) -> None:
    said = json.loads((INPUTS / "bench-a.json").read_text())
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**said, name: {"a": [1]}}))
    if name == "together":  # any value is told as a text
        assert str(load_benchmark(path))
    else:
        with pytest.raises(UsageError, match="benchmark-damaged"):
            load_benchmark(path)


def test_good_ones_are_read_and_compared() -> None:
    assert diff_benchmark_files(INPUTS / "bench-a.json", INPUTS / "bench-b.json").table().rows
    a, b = (load_check(INPUTS / f"check-{letter}.json") for letter in "ab")
    assert diff_checks(a, b) and "Does it compute right?" in check_page(a)


@pytest.mark.parametrize("value", HOSTILE_PARTS)
def test_a_trace_whose_environment_is_none(tmp_path: Path, value: Any) -> None:
    for name in "ab":
        with lux.trace(keep=tmp_path / name):
            torch.ones(2) + 1
    head = tmp_path / "b" / "trace.json"
    said = json.loads(head.read_text())
    said["environment"] = {"machine": value, "packages": value, "load": value}
    head.write_text(json.dumps(said))
    found = diff_traces(lux.load_trace(tmp_path / "a"), lux.load_trace(tmp_path / "b"))
    assert found.differences == () and str(found.table())
