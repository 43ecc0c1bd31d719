"""The program of a run that the user did not make here starts only when the user says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from luxmeter.errors import UsageError
from luxmeter.experiment import start_rerun
from luxmeter.experiment.transfer.archive import export_run, import_run
from luxmeter.store import Lab, Run, is_own
from luxmeter.view.cli import build_app

SCRIPT = "import luxmeter as lux, pathlib\nwith lux.Experiment('small') as e:\n    e.log({'x': 1.0})\npathlib.Path(__file__).with_name('ran').touch()\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of a script, in a lab of its own."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    home = str(tmp_path / "lab")
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=project,
        env={**os.environ, "LUXMETER_HOME": home},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("LUXMETER_HOME", home)
    [run] = Lab.open(tmp_path / "lab").runs()
    return Lab.open(tmp_path / "lab").find(run.id)


def test_ones_own_runs_start_at_once_and_are_ones_own_when_moved(made: Run, tmp_path: Path) -> None:
    assert is_own(made.identity, made.folder)
    assert start_rerun(made, Lab.open(tmp_path / "lab"), quiet=True).returncode == 0
    moved = made.folder.rename(tmp_path / "moved")
    assert is_own(made.identity, moved)


@pytest.mark.parametrize("way", ["imported", "copied", "forged", "older", "without a key"])
def test_what_came_from_elsewhere_needs_a_word(made: Run, tmp_path: Path, way: str) -> None:
    lab = Lab.open(tmp_path / "other")
    if way == "imported":
        run = lab.find(import_run(lab, export_run(made, tmp_path / "run.zip")).id)
    else:
        shutil.copytree(made.folder, lab.folder / "runs" / made.id)
        run = lab.find(made.id)
        path = run.folder / "run.json"
        said = json.loads(path.read_text())
        if way == "forged":
            path.write_text(json.dumps({**said, "mark": "0" * 64}))
        elif way == "older":
            path.write_text(json.dumps({k: v for k, v in said.items() if k != "mark"}))
        elif way == "without a key":
            (Path(os.environ["XDG_CONFIG_HOME"]) / "luxmeter" / "key").unlink()
        run = Run(run.folder, lab.folder)
    for command in ("reproduce", "rerun"):
        refused = CliRunner().invoke(build_app(), [command, str(run.folder)])
        assert isinstance(refused.exception, UsageError) and refused.exception.slug == "code-from-elsewhere"
        assert "train.py" in str(refused.exception)
    assert len(list((lab.folder / "runs").glob("[!.]*"))) == 1, "nothing was started"
    if way == "imported":
        trusted = CliRunner().invoke(build_app(), ["reproduce", str(run.folder), "--trust", "--json"])
        assert trusted.exit_code == 0 and json.loads(trusted.stdout)["outcome"] == "bit by bit", (
            trusted.output
        )


def test_a_key_that_cannot_be_kept_costs_the_run_nothing(tmp_path: Path) -> None:
    (Path(os.environ["XDG_CONFIG_HOME"])).write_text("a file in the way")
    with Lab.open(tmp_path / "lab").create_run("a") as run:
        run.log({"x": 1.0})
    found = Run(tmp_path / "lab" / "runs" / run.id)
    assert found.state == "finished" and not is_own(found.identity, found.folder)
