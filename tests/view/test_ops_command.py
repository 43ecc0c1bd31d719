"""`luxmeter ops`: the operators of traces and of other tools' files, filtered, merged, saved, for people and machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.view.cli import build_app

ONE_CORE = "a command reads recordings, whichever core made them"

LOG = """Operator: aten.add.Tensor
cnt: 3, ((T([2, 3], f32), T([2, 3], f32)), {})
cnt: 1, ((T([2, 3], f32), 1), {})
Operator: aten.mm.default
cnt: 2, ((T([2, 3], f32), T([3, 4], f32)), {})
cnt: 2, ((T([2, 3], f99), T([3, 4], f32)), {})
"""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(torch.cat([x, x], dim=1)))


def traced(folder: str, steps: int) -> None:
    net = Net()
    with lux.trace(keep=folder):
        for _ in range(steps):
            net(torch.rand(5, 3)).sum().backward()


def luxmeter(*args: str) -> Any:
    result = CliRunner().invoke(build_app(), list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_a_trace_as_a_table() -> None:
    traced("t", 2)
    said = luxmeter("ops", "t").stdout
    for part in ("torch.nn.Linear", "f32[5,6], Linear(in_features=6, out_features=4, bias=True)", "Net.body.0", "torch.cat",
                 "[f32[5,3], f32[5,3]], dim=1"):  # fmt: skip
        assert part in said
    assert said.splitlines()[-1] == "6 operators of 5 names, 12 calls"


def test_filters_and_files_and_merging() -> None:
    traced("t1", 2)
    traced("t2", 3)
    luxmeter("ops", "t1", "-o", "one.jsonl")
    assert len(lux.load_operators("one.jsonl")) == 6
    found = json.loads(luxmeter("ops", "one.jsonl", "t2", "--name", "*Linear", "--json").stdout)
    assert [(c["op"], c["count"]) for c in found] == [("torch.nn.Linear", 5)] * 2
    assert sum(c["share"] for c in found) < 1.0  # of all that was traced, backward among it
    [head] = json.loads(luxmeter("ops", "t1", "--module", "Net.head", "--json").stdout)
    assert head["where"] == ["Net.head"]
    assert len(json.loads(luxmeter("ops", "t1", "--top", "2", "--json").stdout)) == 2


def test_shares_are_of_the_whole_trace_however_few_are_shown(tmp_path: Path) -> None:
    traced("t", 3)
    every = {c["op"] + str(c["args"]): c["share"] for c in json.loads(luxmeter("ops", "t", "--json").stdout)}
    table = lux.load_trace("t").table()
    whole = sum(row.self_ns for row in table)
    assert (
        "Tensor.backward" in table
        and sum(every.values()) < 1 - table["Tensor.backward"].self_ns / whole + 1e-9
    )
    luxmeter("ops", "t", "-o", "kept.jsonl")
    for source in ("t", "kept.jsonl"):
        for chosen in (("--top", "1"), ("--name", "*Linear"), ("--module", "Net.head")):
            for case in json.loads(luxmeter("ops", source, *chosen, "--json").stdout):
                assert case["share"] == pytest.approx(every[case["op"] + str(case["args"])])
        one = luxmeter("ops", source, "--top", "1").stdout.splitlines()
        assert one[1].split()[0] == f"{max(every.values()):.1%}" != "100.0%"
        assert (
            one[-2]
            == f"these are {max(every.values()):.1%} of the time of all {sum(r.n for r in table):,} calls there"
        )
    log = tmp_path / "model.txt"
    log.write_text(LOG)
    [first] = json.loads(luxmeter("ops", str(log), "--name", "*mm*", "--json").stdout)
    assert first["share"] == pytest.approx(2 / 6)
    assert "these are 33.3% of all 6 calls there" in luxmeter("ops", str(log), "--name", "*mm*").stdout
    both = json.loads(luxmeter("ops", "t", "t", "--top", "1", "--json").stdout)
    assert both[0]["share"] == pytest.approx(max(every.values()))


def test_what_backward_runs_is_told_on_request() -> None:
    traced("t", 2)
    found = json.loads(luxmeter("ops", "t", "--name", "*Linear", "--backward", "--json").stdout)
    behind = {c["op"]: c for c in found if c.get("source", "").startswith("backward of torch.nn.Linear")}
    assert behind["aten.mm.default"]["count"] == 2 and "aten.ones_like.default" not in behind


def test_other_tools_files(tmp_path: Path) -> None:
    log = tmp_path / "model.txt"
    log.write_text(LOG)
    result = luxmeter("ops", str(log), "--json")
    assert [(c["op"], c["count"]) for c in json.loads(result.stdout)] == [
        ("aten.add.Tensor", 3), ("aten.add.Tensor", 1), ("aten.mm.default", 2),
    ]  # fmt: skip
    assert "1 of 4 inputs" in result.stderr and "line 6" in result.stderr
    x = torch.rand(4, 4)
    with torch.profiler.profile(record_shapes=True) as profile:
        torch.mm(x, x)
    profile.export_chrome_trace(str(tmp_path / "chrome.json"))
    assert "aten.mm.default" in luxmeter("ops", str(tmp_path / "chrome.json")).stdout


def test_what_cannot_be_read_names_the_place(tmp_path: Path) -> None:
    damaged = tmp_path / "ops.jsonl"
    damaged.write_text('{"what": "luxmeter operators", "version": 1, "cases": 1}\n{"op": 5}\n')
    (tmp_path / "empty").mkdir()
    for source, slug in (
        (str(damaged), "operators-damaged"),
        (str(tmp_path / "none.jsonl"), "operators-unreadable"),
        (str(tmp_path / "empty"), "no-operators-there"),
        ("no-such-run", "no"),
    ):
        with pytest.raises(Exception, match=slug) as caught:
            luxmeter("ops", source)
        assert isinstance(caught.value, lux.errors.LuxmeterError)
    traced("t", 1)
    with pytest.raises(UsageError, match="Did you mean"):
        luxmeter("ops", "t", "--name", "torch.nn.Liner")
    with pytest.raises(UsageError, match="no-such-folder"):
        luxmeter("ops", "t", "-o", str(tmp_path / "no" / "folder.jsonl"))
