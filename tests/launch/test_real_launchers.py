"""`luxmeter train` and a plain script with a Trainer under a real mpirun and a real srun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from queued import LIMIT_S

from luxmeter.store import Run
from shared_training import SHARED_CONFIG, SHARED_SCRIPT

pytestmark = pytest.mark.launch
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
    Path("config.py").write_text(SHARED_CONFIG)
    Path("script.py").write_text(SHARED_SCRIPT)
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
    Path("config.py").write_text(SHARED_CONFIG)
    Path("script.py").write_text(SHARED_SCRIPT)
    words = [LUXMETER, "train", "config.py"] if kind == "config" else [sys.executable, "script.py"]
    done = started(launcher, *words, FAILS="raises")  # that none is left the fixture of each test holds
    assert done.returncode != 0
    assert done.stderr.count("ValueError: no such batch on rank 1, 3 in all\n") == 1, done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr


def test_a_rank_that_is_killed_ends_all(launcher: list[str]) -> None:
    Path("config.py").write_text(SHARED_CONFIG)
    done = started(launcher, LUXMETER, "train", "config.py", FAILS="killed")
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    assert "Killed" in done.stderr or "signal 9" in done.stderr, done.stderr
