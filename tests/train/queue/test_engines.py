"""What runs jobs elsewhere, as far as that needs neither Ray nor Slurm: tests/launch has the rest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from in_process import Command
from queue_parts import DEAD, Clock, PretendedEngine

from luxmeter.process import Process
from luxmeter.store import Job, Needs
from luxmeter.train import JobOptions, Queue, Wanted, Worker
from luxmeter.train.queue.begin import claim
from luxmeter.train.queue.engines import on_node
from luxmeter.train.queue.engines.engine import End
from luxmeter.train.queue.engines.ray import resources, why_never
from luxmeter.train.queue.engines.slurm import Slurm, last_line, parameters


@pytest.mark.parametrize(
    ("on", "module", "slug", "extra"),
    [("ray", "ray", "no-ray", "ray"), ("slurm", "submitit", "no-submitit", "slurm")],
)
@pytest.mark.parametrize("verb", [("queue", "work"), ("sweep", "project/script.py", "--grid", "lr=1")])
def test_what_is_not_installed_is_told_in_a_line(
    command: Command,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    on: str,
    module: str,
    slug: str,
    extra: str,
    verb: Any,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    told = command.refused(*verb, "--on", on)
    assert f"[{slug}]" in told and f"pip install 'luxmeter[{extra}]'" in told


def test_without_slurms_commands_and_with_another_name(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", type(sys)("submitit"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch, squeue, scancel cannot be found. " in command.refused("queue", "work", "--on", "slurm")
    assert "Nothing called 'slrum' runs jobs. Did you mean 'slurm'?" in command.refused(
        "queue", "work", "--on", "slrum"
    )


def pretended_commands(folder: Path, monkeypatch: pytest.MonkeyPatch, squeue: str) -> None:
    """Slurm's commands, of which squeue does this."""
    monkeypatch.setitem(sys.modules, "submitit", type(sys)("submitit"))
    folder.mkdir(exist_ok=True)
    for name, text in {
        "sbatch": "exit 1",
        "scancel": f"echo $* >> {folder}/cancelled",
        "squeue": squeue,
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_a_slurm_that_does_not_answer_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: Queue
) -> None:
    bin_ = tmp_path / "bin"
    pretended_commands(
        bin_, monkeypatch, "echo 'RUNNING|None|luxmeter-a'\necho 'PENDING|PartitionConfig|luxmeter-b'"
    )
    slurm = Slurm(clock=Clock())
    (job,) = queue.add(Path("project/script.py"), [Wanted(())])
    folder = tmp_path / "going"
    folder.mkdir()
    one, two = (slurm.adopt(replace(job, run=run), folder) for run in "ab")
    assert slurm.adopt(replace(job, run="c"), folder) is None  # Slurm knows nothing of it
    assert one is not None and one.poll() is None
    assert two is not None and two.poll() == End(
        None, "Slurm would never start it: PartitionConfig", refused=True
    )
    assert (bin_ / "cancelled").read_text() == "--me --name=luxmeter-b\n"
    pretended_commands(
        bin_, monkeypatch, "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1"
    )
    assert one.poll() is None and slurm.adopt(replace(job, run="c"), folder) is not None
    room = slurm.room(Needs(), [])
    assert not room.free and room.why.endswith("does not answer: Unable to contact slurm controller")
    pretended_commands(bin_, monkeypatch, "echo 'OUT_OF_MEMORY|OutOfMemory|luxmeter-a'")
    assert one.poll() is None  # what the node wrote may not be seen here yet
    ends = [end for _ in range(12) if (end := one.poll()) is not None]
    assert ends[0] == End(None, "Slurm says OUT_OF_MEMORY")
    (folder / "ended.json").write_text('{"code": 3}')
    assert one.poll() == End(3)


def test_needs_in_the_words_of_slurm_and_of_ray() -> None:
    assert "mem" not in parameters(Needs()) and parameters(Needs())["cpus_per_task"] == 1
    said = parameters(Needs(memory_bytes=1 << 30, cpus=4, gpus=2))
    assert (said["mem"], said["cpus_per_task"], said["gpus_per_node"]) == ("1024M", 4, 2)
    assert parameters(Needs(memory_bytes=1 << 30, is_measured=True))["mem"] == "1280M"
    small, large = {"CPU": 2.0, "memory": 1e9}, {"CPU": 8.0, "memory": 4e9, "GPU": 1.0}
    assert resources(Needs(5, 2), [small]) == {"CPU": 2, "memory": 5}
    assert resources(Needs(), [small, large]) == {"CPU": 1, "GPU": 1}
    assert resources(Needs(gpus=0), [large]) == {"CPU": 1}
    assert why_never(Needs(cpus=2), [small]) == "" and why_never(Needs(cpus=8), [small, large]) == ""
    assert (
        why_never(Needs(cpus=9), [small, large]) == "needs 9 CPUs, the largest node of the Ray cluster has 8"
    )
    assert why_never(Needs(int(9e9)), [small, large]).endswith(
        "the largest node of the Ray cluster has 3.73 GiB"
    )
    split = [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}]
    assert (
        why_never(Needs(cpus=4, gpus=1), split)
        == "needs more together than any of the 2 nodes of the Ray cluster has"
    )
    assert last_line("sbatch: error: one\nsbatch: error: two\nbye") == "two"


def test_a_node_says_which_devices_a_job_sees_and_no_rank_of_the_worker_is_the_jobs() -> None:
    given = {"HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
    node = {"HOME": "/root", "CUDA_VISIBLE_DEVICES": "5", "SLURM_JOB_ID": "7"}
    assert on_node.of_node(given, node) == {"HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "5"}
    both = on_node.of_node(given, node, (*on_node.DEVICES, *on_node.LAUNCHERS))
    assert both == {"HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "5", "SLURM_JOB_ID": "7"}


def program(folder: Path, *words: str) -> on_node.Program:
    begin = [sys.executable, "-m", "luxmeter.train.queue.begin", str(folder / "began.json")]
    return on_node.Program(
        [*begin, sys.executable, *words], str(folder), dict(os.environ), str(folder / "log"), str(folder)
    )


def test_a_program_is_run_to_its_end_which_is_written_down(tmp_path: Path) -> None:
    assert on_node.ended_code(tmp_path) is None
    assert on_node.run_program(program(tmp_path, "-c", "import os; print('hello', os.environ.get('LUXMETER_JOB_PARENT')); exit(4)")) == 4  # fmt: skip
    assert on_node.ended_code(tmp_path) == 4 and (tmp_path / "log").read_text() == "hello None\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_program_ends_with_what_runs_it(tmp_path: Path) -> None:
    """As when the process of a Ray task is killed: nothing goes on that nobody watches."""
    runs = (
        "from pathlib import Path\nfrom test_engines import program\n"
        "from luxmeter.train.queue.engines.on_node import run_program\n"
        f"run_program(program(Path({str(tmp_path)!r}), '-c', 'import time; print(1, flush=True); time.sleep(600)'))\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent)])
    parent = subprocess.Popen([sys.executable, "-c", runs], env={**os.environ, "PYTHONPATH": paths})
    try:
        while not ((tmp_path / "log").is_file() and (tmp_path / "log").read_text()):
            assert parent.poll() is None
        process = on_node_process(tmp_path)
        assert process.runs_here()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        while process.runs_here():
            pass
    finally:
        parent.kill()
        parent.wait()
    assert on_node.ended_code(tmp_path) is None


def on_node_process(folder: Path) -> Process:
    from luxmeter.train.queue.begin import claimed_by

    process = claimed_by(folder / "began.json")
    assert process is not None
    return process


class Elsewhere(PretendedEngine):
    """An engine whose programs run on other machines."""

    name = "elsewhere"


OTHER = replace(Process.here(), host="elsewhere", machine="other/boot", pid=1)


def begun(queue: Queue, engine: Elsewhere, worker: Worker, **options: Any) -> Job:
    """A job that runs on another machine, and has made its run there."""
    queue.add(Path("project/script.py"), [Wanted(())], JobOptions(cpus=1, memory=0, **options))
    worker.step()
    job = queue.find(1)
    assert claim(queue.going_folder(job) / "began.json", vars(OTHER))
    run = queue.lab.create_run("script", run_id=job.run)
    run.finish()
    folder = queue.lab.folder / "runs" / job.run
    (folder / "status.json").unlink()  # it goes on there
    identity = (folder / "run.json").read_text()
    (folder / "run.json").write_text(identity.replace(Process.here().machine, OTHER.machine))
    (folder / "alive").touch()
    return job


def test_a_job_of_another_machine_is_not_lost_while_its_run_gives_signs(queue: Queue) -> None:
    engine = Elsewhere()
    worker = Worker(queue, engine, clock=Clock())
    job = begun(queue, engine, worker, retries=1)
    engine.end(1, None)  # its node is said to be gone
    worker.step()
    assert queue.find(1).state == "running" and queue.find(1).attempt == 1
    os.utime(queue.lab.folder / "runs" / job.run / "alive", (1, 1))
    worker.step()
    assert queue.find(1).attempt == 2  # and only now again


def test_a_job_that_its_engine_lost_before_it_began_never_begins(queue: Queue) -> None:
    engine = Elsewhere()
    worker = Worker(queue, engine, clock=Clock())
    queue.add(Path("project/script.py"), [Wanted(())], JobOptions(cpus=1, memory=0))
    worker.step()
    kept = queue.going_folder(queue.find(1)) / "began.json"
    engine.end(1, None)
    worker.step()
    assert queue.find(1).state == "lost" and not claim(kept, vars(OTHER))


def test_how_a_job_ended_is_learned_from_its_folder_if_its_worker_is_gone(queue: Queue) -> None:
    engine = Elsewhere()
    worker = Worker(queue, engine, clock=Clock())
    job = begun(queue, engine, worker)
    shutil.rmtree(queue.lab.folder / "runs" / job.run)
    os.utime(queue.going_folder(job) / "began.json", (1, 1))
    (queue.going_folder(job) / "ended.json").write_text('{"code": 5}')
    with queue.table.change() as change:
        change.put(replace(queue.find(1), worker=DEAD))
    Worker(queue, Elsewhere(), clock=Clock()).step()
    assert (queue.find(1).state, queue.find(1).exit_code) == ("failed", 5)
