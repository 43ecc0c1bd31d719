"""Starting a run again where something is missing: data that is linked, a module, a Python, git, rights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import make_run

from luxmeter.errors import LuxmeterWarning, StoreError, UsageError
from luxmeter.experiment.reproduce import handover, rerun
from luxmeter.experiment.reproduce.arguments import changed_arguments
from luxmeter.experiment.reproduce.match import code_differs, match_runs
from luxmeter.experiment.reproduce.rerun import _checkout, _command, _startable, _wait, make_plan, start_rerun
from luxmeter.experiment.reproduce.rollback import roll_back
from luxmeter.store import Lab, records


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


def test_data_of_the_project_is_linked_into_the_new_folder(lab: Lab, tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "data" / "deep").mkdir(parents=True)
    (root / "data" / "deep" / "x.bin").write_bytes(b"data")
    (root / "train.py").write_text("there already")
    run = make_run(lab, code={"train.py": "1"}, root=root)
    with _checkout(run, None, ["data/deep", "train.py"]) as place:
        assert (place / "data" / "deep").is_symlink() and (place / "data/deep/x.bin").read_bytes() == b"data"
        assert (place / "train.py").read_text() == "1", "what the run had stays"
    assert (root / "data" / "deep" / "x.bin").is_file()
    for missing, slug in (("none", "nothing-to-link"), ("../up", "name-outside")):
        with pytest.raises(UsageError, match=slug), _checkout(run, None, [missing]):
            pass


def test_a_program_that_was_started_as_a_module_from_a_folder_below(lab: Lab, tmp_path: Path) -> None:
    root = tmp_path / "project"
    run = make_run(lab, code={"pkg/train.py": "1"}, root=root, argv=("pkg/train.py", "--lr", "1"))
    with _checkout(run, tmp_path / "kept", []) as place:
        command = replace(
            _startable(run, trust=False), module="pkg.train", script=None, cwd=str(root / "gone")
        )
        plan = make_plan(run, command, place)
        assert plan.cwd == place and _command(plan, run, place, "py") == [
            "py",
            "-m",
            "pkg.train",
            "--lr",
            "1",
        ]
        outside = replace(command, module=None, script="/no/such/train.py")
        with pytest.raises(StoreError, match="script-missing"):
            _command(make_plan(run, outside, place), run, place, "py")
        absolute = replace(outside, script=str(place / "pkg" / "train.py"))
        assert _command(make_plan(run, absolute, place), run, place, "py")[1] == str(
            place / "pkg" / "train.py"
        )
    assert (tmp_path / "kept" / "pkg" / "train.py").is_file()


def test_a_python_that_is_not_there(lab: Lab) -> None:
    run = make_run(lab, code={"train.py": "1"})
    with pytest.raises(StoreError, match="program-not-started"):
        start_rerun(run, lab, python="/no/such/python", quiet=True)


STUBBORN = """
import pathlib, signal, sys, time
def heard(*_):
    pathlib.Path(sys.argv[1]).write_text("heard")
    if sys.argv[2] == "ends":
        sys.exit(0)
signal.signal(signal.SIGINT, heard)
pathlib.Path(sys.argv[1]).write_text("begun")
while True:
    time.sleep(0.01)
"""
WAITER = """
import sys
from pathlib import Path
from luxmeter.experiment.reproduce import rerun
import subprocess
real = subprocess.Popen.wait
def wait(self, timeout=None):
    return real(self, None if timeout is None else 0.5)
if sys.argv[3] == "stays":
    subprocess.Popen.wait = wait  # half a minute of patience is long for a test
try:
    rerun._wait([sys.executable, sys.argv[1], sys.argv[2], sys.argv[3]], Path("."), dict(__import__("os").environ), output=None)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("how", ["ends", "stays"])
def test_ctrl_c_reaches_the_program_and_one_that_stays_is_killed(tmp_path: Path, how: str) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    told = tmp_path / "told"
    words = [sys.executable, "-c", WAITER, str(tmp_path / "stubborn.py"), str(told), how]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as waiter:
        deadline = time.monotonic() + 120
        while not told.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(waiter.pid, signal.SIGINT)
        said, _ = waiter.communicate(timeout=120)
    assert said == "interrupted\n" and told.read_text() == "heard"
    with pytest.raises(ProcessLookupError):
        os.killpg(waiter.pid, 0)  # nobody of them is left


def test_the_output_of_a_program_goes_where_it_is_sent(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        assert _wait([sys.executable, "-c", "print(7)"], tmp_path, dict(os.environ), output=out.fileno()) == 0
    assert (tmp_path / "out").read_text() == "7\n" and rerun._stderr() is not None


def test_words_that_are_names_of_parameters_and_options_that_were_not_given() -> None:
    assert changed_arguments(["lr", "--x=1"], {"lr": "2"}, params={"lr": 1}) == ["lr", "--x=1", "--lr=2"]
    source = 'parser.add_argument("--warm-up")'
    assert changed_arguments([], {"warm_up": "2"}, params={"lr": 1}, sources=[source]) == ["--warm-up=2"]
    assert changed_arguments([], {"warm_up": "2"}, params={"lr": 1}, sources=["def main(warm_up): ..."]) == [
        "--warm_up=2"
    ]
    with pytest.raises(UsageError, match="rerun-parameter"):
        changed_arguments([], {"warm_up": "2"}, params={"lr": 1}, sources=["def main(): ..."])


def test_runs_that_keep_no_code_do_not_differ_in_it(lab: Lab) -> None:
    bare = make_run(lab)
    assert code_differs(bare, make_run(lab, code={"a.py": "1"})) == []


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"python": [1]},
        {"python": {"version": 3, "internal": [2**70], "gauss_next": None}},
        {"torch": "x", "numpy": 1},
        [1],
    ],
)
def test_a_random_state_that_was_forged_is_told_and_nothing_else(lab: Lab, said: object) -> None:
    run = make_run(lab, code={"a.py": "1"})
    (run.folder / records.FILES_FOLDER / records.RANDOM).write_text(json.dumps(said))
    with pytest.warns(LuxmeterWarning, match="random-not-restored"):
        handover._go_back(run.folder)


def test_a_metric_that_an_unfinished_run_did_not_come_to_is_no_difference(lab: Lab) -> None:
    more = make_run(lab, metrics={"loss": [1.0], "acc": [0.5]})
    found = {
        state: {
            one.key: one.match
            for one in match_runs(make_run(lab, metrics={"loss": [1.0]}, state=state), more).metrics
        }
        for state in ("finished", "failed")
    }
    assert found["finished"]["acc"] == "missing" and "acc" not in found["failed"]
    assert found["failed"].keys() == {"loss"}


def test_words_that_name_code_that_was_kept_are_told_as_they_were_typed(tmp_path: Path) -> None:
    laid = handover.LaidOut(tmp_path / "laid", str(tmp_path / "project"), None)
    inside, outside = str(tmp_path / "laid" / "a" / "train.py"), str(tmp_path / "laid-beside" / "train.py")
    assert laid.holds(["--lr", inside]) and not laid.holds(["--lr", outside, "train.py"])
    assert Path(laid.as_typed(inside)).resolve() == tmp_path / "project" / "a" / "train.py"
    assert [laid.as_typed(word) for word in (outside, "--lr", "a/train.py")] == [
        outside,
        "--lr",
        "a/train.py",
    ]


def test_an_order_that_is_gone_holds_no_run(tmp_path: Path) -> None:
    assert handover._lines(tmp_path / "none") == [] and handover.run_made(tmp_path / "none", "a") is None


def test_rollback_where_nothing_can_be_written_or_nothing_shall_be(lab: Lab, tmp_path: Path) -> None:
    run = make_run(lab, code={"train.py": "a\n"})
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="rollback-unwritable"):
        roll_back(run, tmp_path / "file" / "below")
    Path("kept.txt").write_text("mine")
    done = roll_back(run, dry_run=True)
    assert done.written == ["train.py"] and not Path("train.py").exists()


def test_where_git_does_not_answer_nothing_counts_as_saved(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True)
    run = make_run(lab, code={"train.py": "a\n", "line\nbreak.py": "b\n"})
    Path("line\nbreak.py").write_text("mine")
    with pytest.raises(StoreError, match="unsaved-changes"):
        roll_back(run)
    Path("line\nbreak.py").unlink()
    Path("train.py").write_text("mine")
    (Path(".git") / "HEAD").write_text("ref: refs/heads/main")
    monkeypatch.setattr("luxmeter.experiment.reproduce.rollback.git_text", _refuse)
    with pytest.raises(StoreError, match="unsaved-changes"):
        roll_back(run)
    assert Path("train.py").read_text() == "mine"


def _refuse(*_: object, **__: object) -> str:
    raise StoreError("git-failed", "git does not answer.", "Try again.")
