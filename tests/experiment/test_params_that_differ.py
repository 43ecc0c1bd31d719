"""Two runs whose parameters differ: said by diff, by groups, by filters and in tables."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter import BaseParams, Experiment
from luxmeter.experiment.compare.diff import RunDiff
from luxmeter.experiment.compare.repeats import group_runs
from luxmeter.experiment.query.conditions import C
from luxmeter.view.text.run_diff import as_record, write_diff

S = BaseParams.SCHE


def test_runs_with_two_schedules_differ_wherever_one_looks(tmp_path: Path) -> None:
    values = [S.Cos(0, 1, 0, 10), S.Linear(0, 1, 0, 10), S.Cos(0, 1, 0, 10)]
    ids = []
    for seed, value in enumerate(values):
        params = BaseParams(s=value, dtype=torch.float32, seed=seed)
        with Experiment("x", params, lab=tmp_path / "lab", quiet=True) as exp:
            exp.log({"loss": 1.0}, step=0)
        ids.append(exp.id)
    found = lux.runs(lab=tmp_path / "lab", sort="created")
    one, two, again = found
    assert [(c.name, c.a, c.b) for c in RunDiff(one, two).params] == [
        ("s.$type", "CosSchedule", "LinearSchedule"),
        ("seed", 0, 1),
    ]
    assert [c.name for c in RunDiff(one, again).params] == ["seed"]
    assert [g.n for g in group_runs(found)] == [2, 1]
    asked = lux.runs(lab=tmp_path / "lab", s=S.Linear(0, 1, 0, 10))
    assert [run.id for run in asked] == [ids[1]]
    asked = lux.runs(C.param.s == S.Cos(0, 1, 0, 10), lab=tmp_path / "lab")
    assert {run.id for run in asked} == {ids[0], ids[2]}
    assert {run.id for run in lux.runs(C.param.s != S.Cos(0, 1, 0, 10), lab=tmp_path / "lab")} == {ids[1]}
    assert len(lux.runs(lab=tmp_path / "lab", dtype=torch.float32)) == 3
    assert not len(lux.runs(lab=tmp_path / "lab", dtype=torch.float16))
    frame = found.params_frame()
    assert list(frame["s.$type"]) == ["CosSchedule", "LinearSchedule", "CosSchedule"]
    assert "LinearSchedule" in frame.to_csv() and "torch.float32" in frame.to_csv()


@pytest.mark.parametrize(
    ("a", "b"),
    [(np.zeros(5000), np.eye(1, 5000, 9)[0]), (Path("a"), "a"), (b"x", "b'x'"), ({1: 0}, {"1": 0}), ("1", 1), ("\udcff", "\udcfe"),
     (lambda x: x, lambda x: -x), ((math.nan,), (0.0,)), (None, "None"), (True, 1), ("a" * 99 + "b", "a" * 99 + "c")],
)  # fmt: skip
def test_the_command_says_how_two_runs_differ(
    a: Any, b: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (a, b):
        with Experiment("x", {"v": value}, lab=tmp_path / "lab", quiet=True) as exp:
            exp.log({"loss": 1.0}, step=0)
    found = lux.runs(lab=tmp_path / "lab", sort="created")
    diff = RunDiff(*found)
    assert diff.params
    change = as_record(diff, None)["params"][0]
    assert change["a"] != change["b"] or type(change["a"]) is not type(change["b"])
    write_diff(diff, None, sys.stdout)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  v"))
    _, one, two = re.split(r"\s{2,}", line.strip())
    assert one != two
    assert len(group_runs(found)) == 2
    frame = found.params_frame()
    assert str(frame.iloc[0].to_dict()) != str(frame.iloc[1].to_dict())
