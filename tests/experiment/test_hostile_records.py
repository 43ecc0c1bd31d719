"""The small records of a run, from elsewhere: what git is told, what is deleted, what is drawn."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from made_runs import make_run

import luxmeter as lux
from luxmeter.errors import LuxmeterError, LuxmeterWarning, StoreError
from luxmeter.experiment.capture.snapshot import snapshot_refs
from luxmeter.experiment.reproduce import handover
from luxmeter.experiment.transfer import mlflow
from luxmeter.experiment.transfer.origin import IMPORT, Origin
from luxmeter.store import FinishedRun, Lab, Run

COMMIT = "5" * 40


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


def put_record(run: Run, name: str, said: Any) -> None:
    (run.folder / "files").mkdir(exist_ok=True)
    (run.folder / "files" / name).write_text(json.dumps(said))


@pytest.mark.parametrize("word", ["tree", "snapshot", "commit"])
@pytest.mark.parametrize("said", ["--help", "-d", "HEAD", "a" * 39, "0" * 40, f"{COMMIT}\n", f"{COMMIT} "])
def test_what_git_is_given_is_the_name_of_an_object(lab: Lab, word: str, said: str) -> None:
    run = make_run(lab)
    put_record(run, "code.json", {"root": "/", "files": {}, "git": {word: said}})
    with pytest.raises(StoreError, match="run-damaged"):
        _ = Run(run.folder).snapshot
    put_record(run, "code.json", {"root": "/", "files": {}, "git": {word: COMMIT}})
    assert Run(run.folder).snapshot is not None


def test_only_a_run_that_was_made_here_forgets_its_ref(lab: Lab, tmp_path: Path) -> None:
    """One that was copied in has the id, and perhaps the project's folder, of the run that it was copied from."""
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    with lab.create_run("own") as own:
        record = {
            "root": str(project),
            "files": {},
            "git": {"ref": f"refs/luxmeter/{own.id}", "snapshot": COMMIT},
        }
    run = Run(own.folder)
    put_record(run, "code.json", record)
    assert snapshot_refs([run]) == [(project, f"refs/luxmeter/{own.id}")]
    other = Lab.open(tmp_path / "other")
    shutil.copytree(run.folder, other.folder / "runs" / run.id)
    assert snapshot_refs([Run(other.folder / "runs" / run.id)]) == []


def test_a_saver_on_a_folder_that_a_file_names_takes_nothing_away(tmp_path: Path) -> None:
    left = [tmp_path / ".notes.tmp", tmp_path / "1.ckpt.0-of-2.a.b-1-1.shard"]
    for file in left:
        file.write_text("mine")
        os.utime(file, (0, 0))
    saver = lux.Saver(tmp_path, cleans=False)
    assert saver.find_checkpoints() == [] and saver.load_latest_checkpoint().checkpoint is None
    assert all(file.exists() for file in left)
    lux.Saver(tmp_path)
    assert not any(file.exists() for file in left)


def test_names_that_no_process_of_ours_gives_hinder_no_saver(tmp_path: Path) -> None:
    host = socket.gethostname()
    names = [f".a.{host}-{'9' * digits}-0123abcd.tmp" for digits in (11, 100)]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / ".folder.tmp").mkdir()
    os.utime(tmp_path / ".folder.tmp", (0, 0))
    lux.Saver(tmp_path).save_checkpoint(1, {"a": 1})
    assert {*names, ".folder.tmp"} <= {path.name for path in tmp_path.iterdir()}


def test_a_metric_that_no_float_holds(tmp_path: Path) -> None:
    saver = lux.Saver(tmp_path, metric="loss", background=False)
    for step in (1, 2):
        saver.save_checkpoint(step, {"a": step}, {"loss": step})
    sidecar = tmp_path / "000001.ckpt.json"
    said = json.loads(sidecar.read_text())
    for loss, best in ((10**400, 2), (-(10**400), 1)):
        sidecar.write_text(json.dumps({**said, "info": {"loss": loss}}))
        assert lux.Saver(tmp_path, metric="loss").load_best_checkpoint().checkpoint == {"a": best}


@pytest.mark.parametrize(
    ("uri", "run_id", "fits"),
    [("/home/u/.ssh", ".ssh", False), ("/home/u", "home", False), (f"/x/{'a' * 32}/../../home/u", "a" * 32, False),
     (f"/x/1/{'a' * 32}/artifacts", "a" * 32, True), ("s3://bucket/x", "x", True), (f"mlflow-artifacts:/1/{'a' * 32}/artifacts", "a" * 32, True)],
)  # fmt: skip
def test_a_folder_that_a_database_calls_a_runs_own(uri: str, run_id: str, fits: bool) -> None:
    assert mlflow._holds_run(uri, run_id) is fits


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"name": 3, "state": {}},
        {"name": "a"},
        {"name": "a", "state": 3},
        {"state": []},
        {"name": None, "state": {"python": 1}},
    ],
)
def test_a_file_that_is_no_random_state(said: Any, tmp_path: Path) -> None:
    (tmp_path / "state").write_text(json.dumps(said))
    with pytest.raises(LuxmeterError, match="random-state-unknown"):
        lux.RndManager().load(tmp_path / "state")
    marks = lux.RndManager(tmp_path / "marks")
    marks.mark("a")
    [file] = (tmp_path / "marks").iterdir()
    file.write_text(json.dumps(said))
    with pytest.raises(LuxmeterError, match="random-state-unknown"):
        lux.RndManager(tmp_path / "marks").mark("a")


@pytest.mark.parametrize(
    "text",
    ["3", "[]", '"torch"', "{", '{"python": 3}', '{"torch": "zz", "version": 1, "python": {}, "numpy": {}}'],
)
def test_a_random_state_that_is_none_hinders_no_run(
    lab: Lab, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(lab)
    (run.folder / "files").mkdir(exist_ok=True)
    (run.folder / "files" / "random.json").write_text(text)
    monkeypatch.setattr(handover, "_random_from", run.folder)
    before = torch.get_rng_state()
    with pytest.warns(LuxmeterWarning, match="random-not-restored"):
        handover.random_at_start()
    assert torch.equal(torch.get_rng_state(), before)
    assert handover._random_from is None  # it is not tried again


@pytest.mark.parametrize("text", ["3", "[]", "{}", "{", '{"key": []}'])
def test_a_note_of_an_import_that_tells_nothing(lab: Lab, text: str) -> None:
    """The run is another one, as far as anybody knows: it is not replaced."""
    origin = Origin("tool", "here", "key", "content")
    run = FinishedRun(id=origin.run_id(0), name="a", created_ns=0, ended_ns=1)
    assert origin.bring(lab, run) == run.id
    assert origin.is_in(lab, run.id)
    (lab.folder / "runs" / run.id / "files" / IMPORT).write_text(text)
    assert not origin.is_in(lab, run.id)
    with pytest.raises(StoreError, match="run-exists"):
        origin.bring(lab, run)
