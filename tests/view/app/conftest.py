"""A lab with a bit of everything, made once by a program of its own; each test has a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs luxmeter[ui]")

from made_app import EVIL

from luxmeter.experiment import open_lab

PROGRAM = f"""
import contextlib, torch, luxmeter as lux
EVIL = {EVIL!r}
for number, name in enumerate(("first", EVIL, "third")):
    with lux.Experiment(name, params={{"lr": 0.1 * number, EVIL: EVIL}}, tags=["one"] if number else [], quiet=True) as exp:
        for step in range(20):
            exp.log({{"loss": 1.0 / (step + 1), EVIL: float(step)}}, step)
        if number == 2:
            with lux.trace():
                for _ in range(1000):
                    torch.rand(4, 4) @ torch.rand(4, 4)
        exp.writer.put_file("evil<b>.txt", EVIL)
        exp.writer.put_file("sub/page.html", "<script>alert(1)</script>")
        print("said", EVIL)
for lr in (0.5, 0.9):
    for seed in range(3):
        with lux.Experiment("swept", params={{"lr": lr, "seed": seed}}, tags=["sweep"], quiet=True) as exp:
            for step in range(30):
                exp.log({{"acc": lr * step + seed}}, step)
with contextlib.suppress(ZeroDivisionError), lux.Experiment("broken", quiet=True):
    raise ZeroDivisionError("why it failed")
"""


@pytest.fixture(scope="session")
def made_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the program ran."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "program.py").write_text(PROGRAM)
    own = {**os.environ, "LUXMETER_HOME": str(folder / ".luxmeter")}
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def lab(made_lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a lab."""
    shutil.copytree(made_lab, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "project" / ".luxmeter"))
    return open_lab(tmp_path / "project").folder
