"""`--on slurm` over a real Slurm of one node."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from queued import LIMIT_S, jobs, luxmeter, states, sweep_on, until, worker

from locked_jobs import LOCKED, noted
from luxmeter.store import Run

pytestmark = [pytest.mark.launch, pytest.mark.usefixtures("slurm")]
SCRIPT = """
import os, sys, helper
print("value", helper.VALUE, "cpus", os.environ["SLURM_CPUS_PER_TASK"], "job", os.environ["SLURM_JOB_NAME"])
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


def in_slurm() -> list[str]:
    """The names of the jobs that Slurm runs or will run."""
    asked = subprocess.run(
        ["squeue", "--noheader", "--format=%j"], capture_output=True, text=True, check=True
    )
    return asked.stdout.split()


def test_jobs_run_as_batch_jobs_with_the_code_of_then(own_lab: Path) -> None:
    Path("script.py").write_text(SCRIPT)
    Path("helper.py").write_text("VALUE = 1\n")
    luxmeter("queue", "add", "--cpus", 2, "--memory", "100MB", "script.py")
    luxmeter("queue", "add", "--retries", 1, "script.py", 3)
    luxmeter("queue", "add", "--cpus", 64, "script.py")
    luxmeter("queue", "add", "--memory", "900GB", "script.py")
    Path("helper.py").write_text("VALUE = 2\n")
    worked = luxmeter("queue", "work", "--on", "slurm", "--drain")
    first, second, third, fourth = jobs()
    assert first["state"] == "done" and first["engine"] == "slurm" and first["place"].startswith("slurm "), (
        worked
    )
    assert luxmeter("queue", "log", 1).stdout.startswith(f"value 1 cpus 2 job luxmeter-{first['run']}\n")
    assert Run(own_lab / "runs" / first["run"]).state == "finished"
    assert (second["state"], second["exit_code"], second["attempt"]) == ("failed", 3, 2)
    assert (third["state"], third["why"]) == ("failed", "Slurm would never start it: PartitionConfig")
    assert fourth["state"] == "failed" and fourth["why"].startswith("Slurm does not take it: "), fourth
    assert all(line.startswith("job ") for line in worked.stderr.splitlines()), worked.stderr
    assert not in_slurm() and not list((own_lab / "queue/going").iterdir())


def test_a_job_is_cancelled_in_slurm_whether_it_runs_or_waits(tmp_path: Path) -> None:
    Path("script.py").write_text(LOCKED)
    for number in (1, 2):
        luxmeter("queue", "add", "--cpus", 2, "script.py", number, tmp_path)
    with worker("--on", "slurm", "--drain") as at_work:
        until(
            lambda: noted(tmp_path) and len(in_slurm()) == 2, "one job that runs and one that waits in Slurm"
        )
        luxmeter("queue", "cancel", 2)
        until(lambda: states()[1] == "cancelled", "the end of the one that waits")
        luxmeter("queue", "cancel", 1)
        assert at_work.wait(LIMIT_S) == 0
    assert states() == ["cancelled", "cancelled"] and noted(tmp_path) == ["began 1"]
    until(lambda: not in_slurm(), "an empty Slurm")


def test_the_next_worker_goes_on_with_what_runs_and_what_waits_in_slurm(tmp_path: Path) -> None:
    Path("script.py").write_text(LOCKED)
    for number in (1, 2):
        luxmeter("queue", "add", "--cpus", 2, "script.py", number, tmp_path)
    with worker("--on", "slurm") as killed:
        until(
            lambda: noted(tmp_path) and len(in_slurm()) == 2, "one job that runs and one that waits in Slurm"
        )
        os.kill(killed.pid, signal.SIGKILL)
    before = {job["id"]: job["run"] for job in jobs()}
    with worker("--on", "slurm", "--drain") as second:
        until(lambda: Path("worker.out").read_text().count("goes on") == 2, "adoption")
        os.kill(second.pid, signal.SIGKILL)
    (tmp_path / "go").touch()  # one ends while no worker is there
    until(lambda: "ended 2" in noted(tmp_path), "the end of both")
    until(lambda: not in_slurm(), "an empty Slurm")
    luxmeter("queue", "work", "--on", "slurm", "--drain")
    assert noted(tmp_path) == ["began 1", "ended 1", "began 2", "ended 2"]
    assert {job["id"]: job["run"] for job in jobs()} == before
    assert [(job["state"], job["attempt"], job["exit_code"]) for job in jobs()] == [("done", 1, 0)] * 2


def test_what_slurm_ends_is_lost_and_started_again_only_with_retries(tmp_path: Path) -> None:
    Path("script.py").write_text(LOCKED)
    luxmeter("queue", "add", "script.py", 1, tmp_path)
    luxmeter("queue", "add", "--retries", 1, "script.py", 2, tmp_path)
    with worker("--on", "slurm", "--drain") as at_work:
        until(lambda: sorted(noted(tmp_path)) == ["began 1", "began 2"], "both")
        subprocess.run(
            ["scancel", "--signal=KILL", "--full", *(f"--name={name}" for name in in_slurm()[:1])], check=True
        )
        subprocess.run(
            ["scancel", "--signal=KILL", "--full", *(f"--name={name}" for name in in_slurm()[-1:])],
            check=True,
        )
        until(lambda: noted(tmp_path).count("began 2") == 2, "another attempt")
        (tmp_path / "go").touch()
        assert at_work.wait(LIMIT_S) == 0
    assert noted(tmp_path)[2:] == ["began 2", "ended 2"]
    first, second = jobs()  # whether the program or what waits for it was killed first is Slurm's affair
    assert first["state"] == "lost" or (first["state"] == "failed" and first["exit_code"] < 0), first
    assert (second["state"], second["attempt"]) == ("done", 2)


def test_a_sweep() -> None:
    sweep_on("slurm")


def test_a_worker_whose_slurm_is_gone_says_so_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("script.py").write_text("print('hello')\n")
    luxmeter("queue", "add", "script.py")
    (tmp_path / "slurm.conf").write_text(
        Path(os.environ["SLURM_CONF"]).read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #")
    )
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    worked = luxmeter("queue", "work", "--on", "slurm", "--drain", expected=2)
    assert (
        worked.stderr.startswith("luxmeter: Slurm does not answer: ") and "[slurm-silent]" in worked.stderr
    ), worked
    assert worked.stderr.count("\n") == 1 and states() == ["queued"]
