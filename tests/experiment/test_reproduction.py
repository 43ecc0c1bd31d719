"""The same again? And command lines with other values, written as the script takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run

from luxmeter.errors import StoreError, UsageError
from luxmeter.experiment import lineage
from luxmeter.experiment.reproduce import handover
from luxmeter.experiment.reproduce.arguments import changed_arguments, split_changes, was_taken
from luxmeter.experiment.reproduce.match import code_differs, match_points, match_runs
from luxmeter.experiment.reproduce.rerun import (
    _command,
    _startable,
    code_of,
    import_roots,
    make_plan,
    start_rerun,
)
from luxmeter.store import Lab, records


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


def pair(lab: Lab, a: dict[str, Any], b: dict[str, Any], **options: Any) -> Any:
    return match_runs(make_run(lab, **a), make_run(lab, **b), **options)


def test_bit_by_bit(lab: Lab) -> None:
    points = {"loss": [0.1 + 0.2, float("nan"), float("inf")], "acc": [0.5]}
    found = pair(lab, {"metrics": points}, {"metrics": points})
    assert found.outcome == "bit by bit" and "All 4 points of 2 metrics" in found.why


def test_within_a_tolerance_that_is_named(lab: Lab) -> None:
    a, b = {"metrics": {"loss": [1.0, 2.0]}}, {"metrics": {"loss": [1.0, 2.0 + 2e-7]}}
    found = pair(lab, a, b)
    assert (
        found.outcome == "within tolerance" and found.largest == pytest.approx(1e-7) and "1e-07" in found.why
    )
    strict = pair(lab, a, b, tolerance=1e-9)
    assert strict.outcome == "not" and strict.metrics[0].first_step == 1


@pytest.mark.parametrize(
    ("b", "why"),
    [
        ({"loss": [1.0, 2.1]}, "relative difference"),
        ({"loss": [1.0]}, "2 points, then 1"),
        ({"loss": [1.0, 2.0, 3.0]}, "2 points, then 3"),
        ({"other": [1.0]}, "has none"),
        ({"loss": [1.0, float("nan")]}, "inf"),
    ],
)
def test_not(lab: Lab, b: dict[str, Any], why: str) -> None:
    found = pair(lab, {"metrics": {"loss": [1.0, 2.0]}}, {"metrics": b})
    assert found.outcome == "not" and any(why in m.why for m in found.metrics)


def test_the_sign_of_zero_and_one_last_bit_are_seen() -> None:
    steps = np.arange(1)

    def match(a: float, b: float) -> str:
        return match_points(steps, np.array([a]), steps, np.array([b]), tolerance=1e-12, whole=True)[0]

    assert match(0.0, -0.0) == "within tolerance"
    assert match(1.0, np.nextafter(1.0, 2.0)) == "within tolerance"
    assert match(1.0, 1.0) == match(float("nan"), float("nan")) == "bit by bit"
    assert match_points(steps, np.ones(1), steps + 1, np.ones(1), tolerance=1, whole=True)[0] == "different"


def test_clocks_and_machines_are_left_out(lab: Lab) -> None:
    a = {"metrics": {"loss": [1.0], "system/cpu_percent": [3.0], "epoch_time": [2.0], "mine": [1.0]}}
    b = {"metrics": {"loss": [1.0], "system/cpu_percent": [9.0, 8.0], "epoch_time": [7.0], "mine": [2.0]}}
    assert pair(lab, a, b).outcome == "not"
    found = pair(lab, a, b, ignore=["mi*"])
    assert found.outcome == "bit by bit"
    assert {m.key for m in found.metrics if m.match == "left out"} == {
        "system/cpu_percent",
        "epoch_time",
        "mine",
    }


def test_a_run_that_was_killed_is_compared_as_far_as_it_came(lab: Lab) -> None:
    found = pair(
        lab, {"metrics": {"loss": [1.0, 2.0]}, "state": "interrupted"}, {"metrics": {"loss": [1.0, 2.0, 3.0]}}
    )
    assert found.outcome == "bit by bit"


def test_a_second_run_that_fails_is_no_reproduction(lab: Lab) -> None:
    found = pair(lab, {"metrics": {"loss": [1.0]}}, {"metrics": {"loss": [1.0]}, "state": "failed"})
    assert found.outcome == "not" and "failed" in found.why


def test_without_metrics_the_files_tell(lab: Lab) -> None:
    one = {"code": {}, "files": {"a.ckpt": b"1"}}
    assert pair(lab, one, one).outcome == "bit by bit"
    assert pair(lab, one, {"code": {}, "files": {"a.ckpt": b"2"}}).files_different == ("out/a.ckpt",)
    assert pair(lab, {}, {}).outcome == "nothing to compare"


def test_other_code_is_told(lab: Lab) -> None:
    a = make_run(lab, code={"train.py": "1", "model.py": "2"})
    assert code_differs(a, make_run(lab, code={"train.py": "1", "model.py": "2"})) == []
    told = code_differs(a, make_run(lab, code={"train.py": "9"}))
    assert told == ["train.py ran with another content", "model.py ran then, but not from this code now"]


# -- starting again ---------------------------------------------------------------------------------------------------


def test_the_plan_stays_inside_the_new_folder(lab: Lab, tmp_path: Path) -> None:
    root = tmp_path / "project"
    run = make_run(lab, code={"sub/train.py": "1"}, root=root, argv=("sub/train.py", "--lr", "1"))
    with code_of(run) as place:
        assert place.name == "project" and (place / "sub" / "train.py").read_text() == "1"
        plan = make_plan(run, _startable(run, trust=False), place)
        assert (plan.script, plan.cwd, plan.argv) == (str(place / "sub/train.py"), place, ("--lr", "1"))
        assert _command(plan, run, place, "py") == ["py", str(place / "sub/train.py"), "--lr", "1"]
    assert not place.parent.exists()


def test_what_cannot_be_started(lab: Lab, tmp_path: Path) -> None:
    with lab.create_run("bare") as writer:
        pass
    bare = lab.find(writer.id)
    with pytest.raises(StoreError, match="not-startable"):
        _startable(bare, trust=False)
    with pytest.raises(StoreError, match="no-code-kept"), code_of(bare):
        pass
    run = make_run(lab, code={"t.py": ""}, argv=("t.py", "--api-key=(hidden)"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(UsageError, match="folder-not-empty"), code_of(run, tmp_path / "full"):
        pass
    with code_of(run) as place, pytest.raises(UsageError, match="argument-hidden"):
        _command(make_plan(run, _startable(run, trust=False), place), run, place, "py")
    outside = records.Command(argv=("x",), cwd="/", script="../../etc/x.py")
    with code_of(run) as place, pytest.raises(UsageError, match="name-outside"):
        make_plan(run, outside, place)


def test_import_roots() -> None:
    files = ["train.py", "src/pkg/__init__.py", "src/pkg/deep/__init__.py", "src/pkg/deep/m.py", "tools/x.py"]
    assert import_roots(files) == [".", "src", "tools"]


# -- other values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "change", "expected"),
    [
        (["--lr=0.1", "--x"], "lr=0.5", ["--lr=0.5", "--x"]),
        (["--lr", "0.1", "--x"], "lr=0.5", ["--lr", "0.5", "--x"]),
        (["--lr", "-1"], "lr=2", ["--lr", "2"]),
        (["lr=0.1", "b=2"], "lr=0.5", ["lr=0.5", "b=2"]),
        (["--batch-size", "8"], "batch_size=16", ["--batch-size", "16"]),
        (["--lr=1", "--lr=2"], "lr=3", ["--lr=1", "--lr=3"]),  # the last one counts
        (["--amp", "--lr=1"], "amp=false", ["--lr=1"]),
        (["--amp"], "amp=true", ["--amp"]),
        ([], "lr=0.5", ["--lr=0.5"]),
        ([], "optim.name=a b; $(rm -rf ~)", ["--optim.name=a b; $(rm -rf ~)"]),
        (["b=2"], "lr=0.5", ["b=2", "lr=0.5"]),
        (["data", "--b=2"], "lr=0.5", ["data", "--b=2", "--lr=0.5"]),
    ],
)
def test_changed_arguments(arguments: list[str], change: str, expected: list[str]) -> None:
    params = {"lr": 0.1, "optim.name": "adam", "batch_size": 8, "amp": False}
    assert changed_arguments(arguments, split_changes([change]), params=params) == expected


def test_the_source_tells_how_an_option_is_spelled() -> None:
    source = 'p.add_argument("--batch-size", type=int)\np.add_argument("--amp", action="store_true")\n'
    params = {"batch_size": 8, "amp": False}
    assert changed_arguments([], {"batch_size": "9"}, params=params, sources=[source]) == ["--batch-size=9"]
    assert changed_arguments([], {"amp": "true"}, params=params, sources=[source]) == ["--amp"]
    assert changed_arguments([], {"amp": "false"}, params=params, sources=[source]) == []
    negatable = source + 'p.add_argument("--no-amp")'
    assert changed_arguments(["--amp"], {"amp": "no"}, params=params, sources=[negatable]) == ["--amp=no"]
    assert changed_arguments(["--amp"], {"amp": "false"}, params=params, sources=[negatable]) == ["--no-amp"]


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="'batch_size'"):
        changed_arguments([], {"batch_sise": "9"}, params={"batch_size": 8})
    assert changed_arguments([], {"anything": "9"}, params={}) == [
        "--anything=9"
    ]  # nothing is known of this script
    with pytest.raises(UsageError, match="change-without-value"):
        split_changes(["lr"])


@pytest.mark.parametrize(
    ("value", "text", "taken"),
    [(0.5, "0.5", True), (0.5, ".5", True), (1, "1.0", True), (True, "true", True), (1, "true", False),
     ("sgd", "sgd", True), ((1, 2), "[1,2]", True), (0.1, "0.5", False), (None, "0.5", False)],
)  # fmt: skip
def test_was_taken(value: Any, text: str, taken: bool) -> None:
    assert was_taken(value, text) is taken


# -- which run it was -------------------------------------------------------------------------------------------------

MANY = """
import luxmeter as lux
from luxmeter.store import Lab

with lux.Experiment("mine", quiet=True, system_s=0) as exp:
    exp.log("loss", 1.0, step=0)
lab = Lab.open()
for _ in range(201):  # others' runs, meanwhile
    lab.create_run("other").finish()
"""
TWO = """
import random, sys
import luxmeter as lux

for name in sys.argv[1:]:
    with lux.Experiment(name, quiet=True, system_s=0) as exp:
        exp.log("drawn", random.random(), step=0)  # without a seed
"""
NESTED = """
import subprocess, sys
import luxmeter as lux

OTHER = "import luxmeter as lux; lux.Experiment('process', quiet=True, system_s=0).start_exp()"
with lux.Experiment("outer", quiet=True, system_s=0, parent=sys.argv[1], lab=sys.argv[2]) as exp:
    with lux.Experiment("inner", quiet=True, system_s=0, lab=sys.argv[2]):
        pass
    subprocess.run([sys.executable, "-c", OTHER], check=True)
"""


def test_the_run_is_found_however_many_others_were_made_meanwhile(lab: Lab, tmp_path: Path) -> None:
    first = make_run(lab, "mine", code={"train.py": MANY}, root=tmp_path)
    again = start_rerun(first, lab, quiet=True)
    assert again.returncode == 0 and again.run.name == "mine" and again.run.id != first.id
    assert again.run.identity["parent"] == first.id and len(lab.runs(limit=None)) == 203


def test_of_two_runs_of_a_program_the_one_of_that_name_is_reproduced(lab: Lab, tmp_path: Path) -> None:
    made = make_run(lab, "x", code={"train.py": TWO}, root=tmp_path, argv=("train.py", "one", "two"))
    assert start_rerun(made, lab, quiet=True).run.name == "one"  # none is called x: the first
    first = lab.find("two")
    again = start_rerun(first, lab, quiet=True)
    assert (again.run.name, again.run.identity["parent"]) == ("two", first.id)
    assert match_runs(first, again.run).outcome == "bit by bit"
    assert sorted(run.name for run in lab.runs()) == ["one", "one", "two", "two", "x"]
    with pytest.raises(StoreError, match="no-run-made"):  # not one that was made before
        start_rerun(first, lab, arguments=[], quiet=True)


def test_a_run_with_a_parent_and_a_lab_of_its_own_is_found(lab: Lab, tmp_path: Path) -> None:
    """Not the runs inside it, in its process or another."""
    elsewhere = Lab.open(tmp_path / "elsewhere")
    above = make_run(elsewhere, "above")
    words = ("train.py", above.id, str(elsewhere.folder))
    again = start_rerun(
        make_run(lab, "no such", code={"train.py": NESTED}, root=tmp_path, argv=words), lab, quiet=True
    )
    assert again.run.name == "outer" and again.run.folder.is_relative_to(elsewhere.folder)
    assert again.run.identity["parent"] == above.id
    assert elsewhere.find("inner").identity["parent"] == again.run.id
    assert lab.find("process").identity["parent"] == again.run.id


def test_started_inside_a_run_it_is_no_part_of_that(lab: Lab, tmp_path: Path, monkeypatch: Any) -> None:
    outer, first = make_run(lab), make_run(lab, "one", code={"train.py": TWO}, root=tmp_path)
    monkeypatch.setenv(lineage.VARIABLE, str(outer.folder))
    monkeypatch.setenv(handover.VARIABLE, str(tmp_path / "of another"))
    again = start_rerun(first, lab, arguments=["one"], quiet=True)
    assert again.run.identity["parent"] == first.id
