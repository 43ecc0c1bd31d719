"""A training that is kept, changed, reproduced, rerun, compared and rolled back, each step as a user takes it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.errors import StoreError, UsageError
from luxmeter.view.cli import build_app

TRAIN = """
import random
import sys
import numpy as np
import torch
import luxmeter as lux
from model import make

params = lux.BaseParams()
params.lr, params.hidden, params.seed = 0.05, 8, 0
params.from_args()
torch.set_num_threads(1)
torch.manual_seed(params.seed)
with lux.Experiment("tiny", params, quiet=True, watch=["out"]) as exp:
    # Drawn without a seed: only the kept random state brings these numbers back.
    x = torch.tensor(np.random.randn(64, 4), dtype=torch.float32)
    y = x.sum(1, keepdim=True) + random.random()
    net = make(params.hidden)
    optimizer = torch.optim.SGD(net.parameters(), lr=params.lr)
    for step in range(20):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        exp.log({"loss": loss.item()}, step=step)
    with lux.Saver("out") as saver:
        saver.save_checkpoint(20, {"net": net.state_dict()})
print("last loss", loss.item())
"""
MODEL = """
import torch


def make(hidden):
    return torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
"""
# Knows nothing of us, takes its options by argparse.
PLAIN = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--learning-rate", type=float, default=0.5)
options = parser.parse_args()
import random
print("drew", random.random(), "with", options.learning_rate)
open("weights.txt", "w").write(str(options.learning_rate * options.steps))
"""


def run(*words: str, code: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, "NO_COLOR": "1"}
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def luxmeter(*words: str, code: int = 0) -> str:
    """A command in this process: what it starts is a process of its own, as it should be."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ended = build_app()(list(words), standalone_mode=False)
    assert (ended or 0) == code, said.getvalue()
    return said.getvalue()


def git(*words: str) -> str:
    return run(
        "git", "-c", "user.name=T", "-c", "user.email=t@t", "-c", "init.defaultBranch=main", *words
    ).stdout.strip()


def latest() -> str:
    return str(json.loads(luxmeter("runs", "--limit", "1", "--json"))[0]["id"])


def git_state() -> tuple[str, ...]:
    index = Path(".git/index").read_bytes().hex()
    return (
        git("rev-parse", "HEAD"),
        git("symbolic-ref", "HEAD"),
        git("for-each-ref", "refs/heads"),
        git("status", "--short"),
        index,
    )


@pytest.mark.slow
def test_the_way_back() -> None:
    git("init", "-q")
    Path("train.py").write_text(TRAIN)
    Path("model.py").write_text(MODEL)
    Path(".gitignore").write_text(".luxmeter/\nout/\n__pycache__/\n")
    git("add", ".")
    git("commit", "-qm", "first")
    luxmeter("init")
    Path("model.py").write_text(MODEL.replace("ReLU", "Tanh"))  # not committed, and run all the same
    run(sys.executable, "train.py")
    first = latest()

    # The code goes on; the run comes out again from its own.
    Path("model.py").write_text(MODEL.replace("ReLU", "Sigmoid"))
    before = git_state()
    said = luxmeter("reproduce", first)
    assert "reproduced bit by bit" in said and "All 20 points" in said
    assert (
        "files: 2 the same" in said or "files: 1 the same" in said
    )  # a checkpoint, bit by bit; its side-car has a date
    assert git_state() == before and git("worktree", "list").count("\n") == 0
    again = latest()
    info = json.loads(luxmeter("show", again, "--json"))
    assert info["parent"] == first and json.loads(luxmeter("show", first, "--json"))["children"] == [again]

    # With other code it is not the same, and that is said.
    run(sys.executable, "train.py")
    said = luxmeter("diff", first, "latest")
    assert (
        "torch.nn.Tanh" in said
        and "torch.nn.Sigmoid" in said
        and "model.py (+1 -1)" in said.split("why loss differs")[1]
    )

    # Other parameters, the same code.
    said = luxmeter("rerun", first, "lr=0.2", "-q")
    rerun = json.loads(luxmeter("show", "latest", "--json"))
    assert rerun["params"] == {"lr": 0.2, "hidden": 8, "seed": 0} and rerun["parent"] == first
    found = json.loads(luxmeter("diff", first, "latest", "--json"))
    assert [c["name"] for c in found["params"]] == ["lr"] and found["code"] == []

    # Back, but not over what is saved nowhere.
    Path("model.py").write_text("precious\n")
    with pytest.raises(StoreError, match=r"model\.py.*unsaved-changes"):
        luxmeter("rollback", first)
    assert Path("model.py").read_text() == "precious\n"
    Path("model.py").write_text(MODEL.replace("ReLU", "Sigmoid"))  # as the last run kept it
    Path("out/000020.ckpt").unlink()
    luxmeter("rollback", first)
    assert "Tanh" in Path("model.py").read_text() and Path("out/000020.ckpt").is_file()
    assert git("rev-parse", "HEAD") == before[0]


@pytest.mark.slow
def test_a_script_that_knows_nothing_of_us_and_no_git() -> None:
    Path("plain.py").write_text(PLAIN)
    luxmeter("init")
    run(sys.executable, "-m", "luxmeter", "run", "--quiet", "--watch", ".", "plain.py", "--steps", "4")
    first = latest()
    Path("plain.py").write_text("raise SystemExit('changed since')\n")
    said = luxmeter("reproduce", first)
    assert "reproduced bit by bit" in said  # no metrics: by its files
    logs = [json.loads(luxmeter("runs", "--json", "--limit", "2"))[i]["id"] for i in (0, 1)]
    assert (
        luxmeter("show", logs[0], "--log") == luxmeter("show", logs[1], "--log") != ""
    )  # the same number drawn
    luxmeter("rerun", first, "learning_rate=0.25", "-q")
    info = json.loads(luxmeter("show", "latest", "--json"))
    assert info["params"]["learning_rate"] == 0.25 and info["params"]["steps"] == 4
    assert info["command"]["argv"][1:] == ["--steps", "4", "--learning-rate=0.25"]
    with pytest.raises(UsageError, match=r"Did you mean 'learning_rate'\?"):
        luxmeter("rerun", first, "learning_rat=1")
    luxmeter("rollback", first, "--to", "back")
    assert Path("back/plain.py").read_text() == PLAIN and Path("back/weights.txt").read_text() == "2.0"


@pytest.mark.slow
def test_what_does_not_repeat_is_not_called_reproduced() -> None:
    Path("noisy.py").write_text(
        "import os\nimport luxmeter as lux\nwith lux.Experiment('noisy', {'a': 1}, quiet=True) as exp:\n"
        "    exp.log({'loss': int.from_bytes(os.urandom(4), 'big')}, step=0)\n"
    )
    luxmeter("init")
    run(sys.executable, "noisy.py")
    said = luxmeter("reproduce", "latest", code=1)
    assert "not reproduced. 1 of 1 metrics differ: loss" in said
    assert "did not take a" in luxmeter("rerun", "noisy", "a=2", "-q", code=1)  # the code sets it itself
