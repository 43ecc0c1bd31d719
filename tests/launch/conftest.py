"""Real launchers and engines: each test has a lab of its own, and leaves no process running."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from slurm_cluster import MARK, SlurmCluster, why_not


@pytest.fixture(autouse=True)
def own_lab(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The lab lies in the test's folder. What the test started has ended when it ends."""
    mark = secrets.token_hex(8)
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "lab"
    end = time.monotonic() + 20
    while left := marked(mark):
        if time.monotonic() > end:
            break
        time.sleep(0.2)
    for process in left:
        process.kill()
    assert not left, f"still running: {left}"


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that a test started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != psutil.Process().pid]


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A Slurm of one node with two CPUs, for all tests."""
    if why := why_not():
        pytest.skip(why)
    folder = tempfile.mkdtemp(prefix="ls-", dir="/tmp")  # not among the files of the test that asks first
    cluster = SlurmCluster(Path(folder))
    cluster.start()
    yield cluster
    cluster.end()


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, own_lab: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """Slurm's commands find it."""
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.conf))
    return slurm_cluster


@pytest.fixture
def mpirun(own_lab: Path) -> str:
    """Where it is."""
    found = shutil.which("mpirun")
    if found is None:
        pytest.skip("no mpirun here (Debian's openmpi-bin has it)")
    return found
