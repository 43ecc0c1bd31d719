"""`--on ray` over a real Ray: one of the worker's own, and a cluster of several nodes of which one is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from queued import LIMIT_S, jobs, luxmeter, states, sweep_on, until, worker
from slurm_cluster import MARK

from conftest import marked
from locked_jobs import LOCKED, noted
from luxmeter import scratch
from luxmeter.store import Run

pytestmark = pytest.mark.launch
SCRIPT = """
import os, signal, sys, helper
print("value", helper.VALUE, "held back", signal.pthread_sigmask(signal.SIG_BLOCK, ()))
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture(autouse=True)
def has_ray() -> None:
    if find_spec("ray") is None:  # it is not imported here: it would change the process
        pytest.skip("no Ray here")


@contextmanager
def ray_nodes(count: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A cluster of a head without CPUs and so many nodes with one; its first line is its address."""
    words = [sys.executable, str(Path(__file__).with_name("ray_nodes.py")), str(count), str(folder)]
    with (folder / "nodes.err").open("w") as err:
        made = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        yield made
    finally:
        assert made.stdin is not None and made.stdout is not None
        made.stdin.close()
        assert made.wait(LIMIT_S) == 0, (folder / "nodes.err").read_text()
        made.stdout.close()
        shutil.rmtree(
            Path(tempfile.gettempdir()) / "ray", ignore_errors=True
        )  # where a cluster writes its logs


def test_jobs_run_as_tasks_and_nothing_is_left(own_lab: Path, temporary_files: Path) -> None:
    Path("script.py").write_text(SCRIPT)
    Path("helper.py").write_text("VALUE = 1\n")
    luxmeter("queue", "add", "--memory", "100MB", "script.py")
    luxmeter("queue", "add", "--retries", 1, "script.py", 3)
    luxmeter("queue", "add", "--cpus", 640, "script.py")
    Path("helper.py").write_text("VALUE = 2\n")
    worked = luxmeter("queue", "work", "--on", "ray", "--drain")
    first, second, third = jobs()
    assert first["state"] == "done" and first["engine"] == "ray" and first["place"].startswith("ray "), worked
    assert luxmeter("queue", "log", 1).stdout.startswith("value 1 held back set()\n")
    assert Run(own_lab / "runs" / first["run"]).state == "finished"
    assert (second["state"], second["exit_code"], second["attempt"]) == ("failed", 3, 2)
    assert third["state"] == "queued"
    assert "job 3 needs 640 CPUs, the largest node of the Ray cluster has " in worked.stdout
    assert all(line.startswith("job ") for line in worked.stderr.splitlines()), (
        worked.stderr
    )  # nothing of Ray's
    assert not list((own_lab / "queue/going").iterdir()) and not list(temporary_files.glob("luxmeter-ray*"))


def test_a_job_is_cancelled_and_a_second_interrupt_ends_what_runs(tmp_path: Path) -> None:
    Path("script.py").write_text(LOCKED)
    luxmeter("queue", "add", "script.py", 1, tmp_path)
    luxmeter("queue", "add", "--retries", 1, "script.py", 2, tmp_path)
    with worker("--on", "ray", "--slots", 2) as at_work:
        until(lambda: len(noted(tmp_path)) == 2, "both")
        luxmeter("queue", "cancel", 1)
        until(lambda: states()[0] == "cancelled", "its end")
        at_work.send_signal(signal.SIGINT)
        until(lambda: "no more jobs are taken" in Path("worker.out").read_text(), "an answer")
        at_work.send_signal(signal.SIGINT)
        assert at_work.wait(LIMIT_S) == 0, Path("worker.out").read_text()
    assert states() == ["cancelled", "queued"] and jobs()[1]["why"] == "attempt 1: ended with its worker"
    assert not [line for line in noted(tmp_path) if not line.startswith("began")]


def test_a_worker_does_not_join_the_cluster_of_another_which_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("script.py").write_text(LOCKED)
    luxmeter("queue", "add", "--cpus", 1, "script.py", 1, tmp_path)
    with worker("--on", "ray", "--slots", 1) as first:
        until(lambda: "began 1" in noted(tmp_path), "the first")
        monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "other"))
        luxmeter("queue", "add", "--cpus", 1, "script.py", 2, tmp_path)
        with worker("--on", "ray", "--slots", 1, "--drain") as second:
            until(lambda: "began 2" in noted(tmp_path), "the second")
            first.kill()
            first.wait()
            (tmp_path / "go").touch()
            assert second.wait(LIMIT_S) == 0
    assert states() == ["done"], Path("worker.out").read_text()
    until(lambda: not marked(os.environ[MARK]), "the end of the first one's Ray")
    scratch.remove_left()


def test_a_sweep() -> None:
    sweep_on("ray")


def test_a_job_whose_node_is_killed_is_lost_and_started_again_only_with_retries(tmp_path: Path) -> None:
    Path("script.py").write_text(LOCKED)
    luxmeter("queue", "add", "--retries", 1, "script.py", 1, tmp_path)
    luxmeter("queue", "add", "script.py", 2, tmp_path)
    luxmeter("queue", "add", "script.py", 3, tmp_path)
    with ray_nodes(3, tmp_path) as nodes:
        assert nodes.stdin is not None and nodes.stdout is not None
        address = nodes.stdout.readline().strip()
        with worker("--on", "ray", "--drain", RAY_ADDRESS=address) as at_work:
            until(lambda: len(noted(tmp_path)) == 3 and all(job["process"] for job in jobs()), "all three")
            for job in jobs()[:2]:
                nodes.stdin.write(f"{job['process']['pid']}\n")
                nodes.stdin.flush()
                assert nodes.stdout.readline() == "killed\n"
            until(lambda: states() == ["queued", "lost", "running"], "two that are lost")
            (tmp_path / "go").touch()  # the node that is left has room, then
            assert at_work.wait(LIMIT_S) == 0, Path("worker.out").read_text()
    lines = noted(tmp_path)
    assert sorted(lines[:3]) == ["began 1", "began 2", "began 3"] and lines[3:] == [
        "ended 3",
        "began 1",
        "ended 1",
    ]
    assert [(job["state"], job["attempt"]) for job in jobs()] == [("done", 2), ("lost", 1), ("done", 1)]
    assert "NodeDied" in jobs()[1]["why"] or "its process is gone" in jobs()[1]["why"], jobs()[1]


def test_tasks_end_with_a_worker_that_is_killed_and_are_not_run_twice_at_once(tmp_path: Path) -> None:
    Path("script.py").write_text(LOCKED)
    luxmeter("queue", "add", "script.py", 1, tmp_path)
    luxmeter("queue", "add", "--retries", 1, "script.py", 2, tmp_path)
    with ray_nodes(2, tmp_path) as nodes:
        assert nodes.stdout is not None
        address = nodes.stdout.readline().strip()
        with worker("--on", "ray", RAY_ADDRESS=address) as killed:
            until(lambda: len(noted(tmp_path)) == 2, "both")
            os.kill(killed.pid, signal.SIGKILL)
        with worker("--on", "ray", "--drain", RAY_ADDRESS=address) as at_work:
            until(lambda: noted(tmp_path).count("began 2") == 2, "another attempt")
            (tmp_path / "go").touch()
            assert at_work.wait(LIMIT_S) == 0, Path("worker.out").read_text()
    assert sorted(noted(tmp_path)) == ["began 1", "began 2", "began 2", "ended 2"]
    assert states() == ["lost", "done"]


def test_a_worker_that_is_killed_with_a_ray_of_its_own_leaves_nothing_running(
    tmp_path: Path, temporary_files: Path
) -> None:
    Path("script.py").write_text(LOCKED)
    luxmeter("queue", "add", "script.py", 1, tmp_path)
    with worker("--on", "ray") as killed:
        until(lambda: noted(tmp_path), "the job")
        os.kill(killed.pid, signal.SIGKILL)
    until(lambda: not marked(os.environ[MARK]), "the end of Ray and of the job")
    scratch.remove_left()  # as whoever needs a temporary folder next does
    assert not list(temporary_files.glob("luxmeter-ray*"))
    assert luxmeter("queue", "cancel", 1).stdout == "job 1 cancelled\n"  # without starting a Ray for it
    assert states() == ["cancelled"]


def test_an_address_where_no_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("script.py").write_text("print('hello')\n")
    luxmeter("queue", "add", "script.py")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    said = luxmeter("queue", "work", "--on", "ray", "--drain", expected=2).stderr
    assert (
        said.startswith("luxmeter: There is no Ray cluster at 127.0.0.1:1 (RAY_ADDRESS)")
        and said.count("\n") == 1
    )
    assert states() == ["queued"]
