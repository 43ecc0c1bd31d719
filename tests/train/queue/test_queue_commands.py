"""luxmeter queue with real processes: added, run with the code of then, listed, logged, waited for, cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from in_process import Command
from queue_parts import project

from locked_jobs import LOCKED, noted
from luxmeter.errors import StoreError, UsageError
from luxmeter.store import Lab, Run
from luxmeter.train import JobOptions, Queue, SweepOptions, Wanted, WorkerOptions, engine_named, open_queue
from luxmeter.view.cli.queue import WorkerLine, working

SCRIPT = """
import argparse, helper
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
print("value", helper.VALUE, "lr", parser.parse_args().lr)
"""
CONFIG = """
from small_base import *
lr = 0.5
"""
BASE = """
epoch, lr, steps = 1, 0.1, 1
task = dict(type="TaskFlow", sub_module_cfg=dict(net=dict(type="Linear", in_features=4, out_features=2, outputs="logits")),
            loss_cfg=dict(ce=dict(type="CrossEntropyLoss", inputs=dict(input="logits", target="labels"))))
data = dict(train=dict(dataset=dict(type="FakeData", image_size=(4,), num_classes=2, size=8), batch_size=4))
optimizer = dict(type="SGD", lr=lr)
"""


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_job_runs_with_the_code_as_it_was_and_its_run_says_so(
    command: Command, tmp_path: Path, own_lab: Path
) -> None:
    folder = tmp_path / "project"
    project(folder, script=SCRIPT, helper="VALUE = 1\n", fails="raise SystemExit(3)\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "helper.py").write_text("VALUE = 2\n")  # not committed: that is the code of now
    assert (
        command("queue", "add", folder / "script.py", "--lr", "0.5").out
        == "job 1 queued: script.py --lr 0.5\n"
    )
    assert command("queue", "add", "--after", 1, "--retries", 1, folder / "fails.py").code == 0
    added = json.loads(command("queue", "add", "--json", "--after", "2", folder / "script.py").out)
    assert added["after"] == [2] and added["state"] == "queued"
    (folder / "helper.py").write_text("VALUE = 3\n")
    before = git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD")

    worked = command("queue", "work", "--drain", "--slots", 2)
    assert worked.code == 0 and worked.out == "1 done, 1 failed, 1 cancelled\n", worked
    assert "job 2 is queued again: attempt 1: failed with exit code 3" in worked.err
    assert command("queue", "log", 1).out.startswith("value 2 lr 0.5\n")
    waited = command("queue", "wait", 1, 2, 3)
    assert waited.code == 1 and waited.out.splitlines() == [
        "job 1 done", "job 2 failed with exit code 3: luxmeter queue log 2 shows what it printed", "job 3 cancelled: job 2, which it was to follow, has failed"
    ]  # fmt: skip
    listed = command("queue", "list").out
    assert listed.splitlines()[0].split() == ["job", "state", "what", "after", "tries", "run", "for", "why"]
    assert "2 of 2" in listed and [j["state"] for j in json.loads(command("queue", "list", "--json").out)] == [
        "done", "failed", "cancelled"
    ]  # fmt: skip

    lab = Lab.open(own_lab)
    job = open_queue().find(1)
    run = Run(own_lab / "runs" / job.run, own_lab)
    assert run.state == "finished" and run.flat_params == {"lr": 0.5}
    assert run.command is not None and run.command.argv == ("project/script.py", "--lr", "0.5")
    assert run.snapshot is not None and run.snapshot.root == str(folder) and run.snapshot.git is not None
    assert run.code["helper.py"] == "VALUE = 2\n"
    assert git(folder, "show", f"refs/luxmeter/{run.id}:helper.py") == "VALUE = 2\n"
    refs = git(folder, "for-each-ref", "--format=%(refname)", "refs/luxmeter").split()
    assert len(refs) == 3 and not any("queue" in ref for ref in refs)  # a run of job 1, two of job 2
    assert (git(folder, "status", "--porcelain"), git(folder, "rev-parse", "HEAD")) == before
    assert len(lab.runs()) == 3
    lab.close()


def test_a_config_is_queued_with_what_it_takes_over(command: Command, tmp_path: Path, own_lab: Path) -> None:
    project(tmp_path / "project", config=CONFIG, small_base=BASE)
    os.chdir(tmp_path / "project")
    assert command("queue", "add", "config.py", "lr=0.25").out == "job 1 queued: config.py lr=0.25\n"
    assert "override-form" in command("queue", "add", "config.py", "--fast").err
    (tmp_path / "project/small_base.py").write_text("task = None\n")
    worked = command("queue", "work", "--drain")
    assert worked.out == "1 done\n", command("queue", "log", 1).out
    run = Run(own_lab / "runs" / open_queue().find(1).run, own_lab)
    assert run.flat_params["lr"] == 0.25 and run.command is not None
    assert run.command.argv[1:] == ("train", "config.py", "lr=0.25")


def test_cancelling_a_job_that_runs_and_one_whose_worker_is_gone(
    command: Command, tmp_path: Path, own_lab: Path
) -> None:
    sleeps = "import time\nprint('began', flush=True)\ntime.sleep(600)\n"
    project(tmp_path / "project", script=sleeps)
    for _ in range(2):
        assert command("queue", "add", "project/script.py").code == 0
    queue = open_queue()
    words = [sys.executable, "-m", "luxmeter", "queue", "work", "--slots", "2"]
    worker = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _until(
            lambda: all(
                queue.log_file(job).is_file() and queue.log_file(job).read_text()
                for job in queue.table.jobs()
            )
        )
        assert command("queue", "cancel", 1).out == "job 1 will be ended by its worker\n"
        assert command("queue", "wait", 1).out == "job 1 cancelled: cancelled by hand\n"
        second = queue.find(2)
        assert second.process is not None and second.process.runs_here()
    finally:
        worker.kill()
        worker.communicate()
    assert second.process.runs_here()  # a job outlives its worker
    assert command("queue", "cancel", 2).out == "job 2 cancelled\n"
    assert not second.process.runs_here()
    assert Run(own_lab / "runs" / second.run).state == "interrupted"
    queue.close()


def test_ctrl_c_waits_for_what_runs_and_a_second_one_ends_it(command: Command, tmp_path: Path) -> None:
    project(tmp_path / "project", script="import time\nprint('began', flush=True)\ntime.sleep(600)\n")
    for _ in range(2):
        command("queue", "add", "project/script.py")
    queue = open_queue()
    words = [sys.executable, "-m", "luxmeter", "queue", "work"]
    worker = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _until(lambda: queue.log_file(queue.find(1)).is_file() and queue.log_file(queue.find(1)).read_text())
        worker.send_signal(signal.SIGINT)
        assert worker.stdout is not None
        lines = iter(worker.stdout.readline, "")
        assert any(line.startswith("no more jobs are taken; waiting for 1") for line in lines)
        worker.send_signal(signal.SIGINT)
        rest = worker.communicate(timeout=60)[0]
    finally:
        worker.kill()
        worker.communicate()
    assert "ending 1 job\n" in rest and "1 cancelled" in rest and worker.returncode == 0
    assert [(job.state, job.why) for job in queue.table.jobs()] == [
        ("cancelled", "ended with its worker"), ("queued", "")
    ]  # fmt: skip
    queue.close()


def test_what_cannot_be_queued(command: Command, tmp_path: Path) -> None:
    assert "queue add" not in command("queue", "list").out and "no-lab" in command("queue", "list").err
    assert "no-script" in command("queue", "add", "nothing.py").err
    project(tmp_path / "project")
    for words, slug in {
        ("add", "--memory", "much", "project/script.py"): "bad-job-option",
        ("add", "--after", "x", "project/script.py"): "bad-job-option",
        ("add", "--kind", "song", "project/script.py"): "bad-job-option",
        ("add", "--after", "7", "project/script.py"): "unknown-job",
        ("list", "--state", "gone"): "unknown-job-state",
        ("cancel", "12"): "unknown-job",
    }.items():
        said = command("queue", *words)
        assert said.code == 2 and slug in said.err, said
    assert command("queue", "list").out == "No job is queued.\n"
    assert command("queue", "work", "--drain").out == "no job ended\n"
    git(tmp_path / "project", "init", "-q")
    (tmp_path / "project/.gitignore").write_text("script.py\n")
    assert "script-not-kept" in command("queue", "add", "project/script.py").err


def _until(true: object, most_s: float = 60.0) -> None:
    end = time.monotonic() + most_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def test_the_local_engine_counts_what_is_there() -> None:
    from luxmeter.store import Needs

    with pytest.raises(UsageError, match="unknown-engine"):
        engine_named("locall")
    engine = engine_named("local")
    assert engine.room(Needs(cpus=10_000), []).never and engine.room(Needs(memory_bytes=1 << 60), []).never
    assert engine.room(Needs(gpus=64), []).why.startswith("needs 64 GPUs")
    assert engine.room(Needs(gpus=0), []).free


def test_options_from_python_are_read_and_checked_as_on_the_command_line() -> None:
    given: dict[str, Any] = {"memory": "8GB", "after": ["3", "4"], "retries": 1}
    made = JobOptions(**given)
    assert (made.memory, made.after, replace(made, cpus=2).memory) == (8 << 30, (3, 4), 8 << 30)
    bad: list[tuple[Any, dict[str, Any], str]] = [
        (JobOptions, {"memory": "much"}, "A job cannot use memory='much'. Give a size such as 8GB or 500M."),
        (JobOptions, {"priority": "high"}, "A job cannot use priority='high'. Give a whole number."),
        (WorkerOptions, {"slots": 0}, "A worker cannot use slots=0. Give 1 or more."),
        (SweepOptions, {"mode": "most"}, "A sweep cannot use mode='most'. Give min or max."),
    ]
    for kind, values, said in bad:
        with pytest.raises(UsageError, match=r"\[bad-(job|worker|sweep)-option\]") as caught:
            kind(**values)
        assert str(caught.value).startswith(said)


def test_a_worker_whose_database_goes_away_says_what_it_leaves(
    queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("project/script.py").write_text(LOCKED)
    queue.add(Path("project/script.py"), [Wanted(["1", str(tmp_path)])], JobOptions(cpus=1, memory=0))
    with (
        pytest.raises(StoreError, match="it is away"),
        working(queue, WorkerOptions(), WorkerLine(), "") as worker,
    ):
        worker.step()
        raise StoreError("index-unreachable", "it is away", "Wait.")
    assert capsys.readouterr().err.endswith(
        "1 job of this worker: the next one finds out what became of it\n"
    )
    (tmp_path / "go").touch()
    worker.work(drain=True)
    assert noted(tmp_path) == ["began 1", "ended 1"]
