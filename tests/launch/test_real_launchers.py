"""`luxmeter train` and a plain script with a Trainer under a real mpirun and a real srun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from queued import LIMIT_S

from luxmeter.store import Run

pytestmark = pytest.mark.launch
TRAINER = """\
import os
import signal

import torch

import luxmeter as lux
from luxmeter.train import FakeData, dist


class Shared(lux.Trainer):
    def initial_trainer(self, params):
        self.model = torch.nn.Linear(6, 3)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.regist_databundler(train=torch.utils.data.DataLoader(FakeData(16, (6,), 3), batch_size=4))

    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        group = dist.current_group()
        total = dist.all_reduce(torch.tensor([group.rank + 1.0]))
        print(f"step {global_step} rank {group.rank} of {group.world_size} by {group.launcher}: {total.item():g}", flush=True)
        if FAILS and group.rank == 1 and global_step == 1:
            if FAILS == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"no such batch on rank {group.rank}")
        xs, ys = batch_data
        return torch.nn.functional.cross_entropy(self.model(xs), ys)


FAILS = os.environ.get("FAILS", "")
"""
CONFIG = f"{TRAINER}\nepoch = 1\ntrainer = dict(type=Shared)\n"
SCRIPT = f"{TRAINER}\nShared({{'epoch': 1}}).train()\n"
LUXMETER = str(Path(sys.executable).with_name("luxmeter"))
BY = {"mpirun": "openmpi", "srun": "slurm"}


@pytest.fixture(params=["mpirun", "srun"])
def launcher(request: pytest.FixtureRequest) -> list[str]:
    """The words that start two processes."""
    if request.param == "srun":
        request.getfixturevalue("slurm")
        return ["srun", "-n", "2"]
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [request.getfixturevalue("mpirun"), *as_root, "--oversubscribe", "-n", "2"]


def started(launcher: list[str], *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*launcher, *words], env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["config", "script"])
def test_two_ranks_train_together_and_make_one_run(launcher: list[str], kind: str, own_lab: Path) -> None:
    Path("config.py").write_text(CONFIG)
    Path("script.py").write_text(SCRIPT)
    words = [LUXMETER, "train", "config.py"] if kind == "config" else [sys.executable, "script.py"]
    done = started(launcher, *words)
    assert done.returncode == 0, done.stderr
    by = BY[Path(launcher[0]).name]
    for rank in (0, 1):
        assert f"step 1 rank {rank} of 2 by {by}: 3" in done.stdout, done
    (folder,) = (own_lab / "runs").iterdir()
    assert Run(folder).state == "finished"


@pytest.mark.parametrize("kind", ["config", "script"])
def test_a_rank_that_raises_is_shown_and_all_end(launcher: list[str], kind: str) -> None:
    Path("config.py").write_text(CONFIG)
    Path("script.py").write_text(SCRIPT)
    words = [LUXMETER, "train", "config.py"] if kind == "config" else [sys.executable, "script.py"]
    done = started(launcher, *words, FAILS="raises")  # that none is left the fixture of each test holds
    assert done.returncode != 0
    assert done.stderr.count("ValueError: no such batch on rank 1\n") == 1, done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr


def test_a_rank_that_is_killed_ends_all(launcher: list[str]) -> None:
    Path("config.py").write_text(CONFIG)
    done = started(launcher, LUXMETER, "train", "config.py", FAILS="killed")
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    assert "Killed" in done.stderr or "signal 9" in done.stderr, done.stderr
