"""The worker killed at random moments: no job runs twice at once, none is forgotten, and each that began is finished."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from queue_parts import project

from locked_jobs import LOCKED, noted
from luxmeter.train import JobOptions, Wanted, Worker, engine_named, open_queue


def work_until_killed() -> None:
    """In a process of its own: it never ends by itself."""
    os.setsid()
    queue = open_queue()
    Worker(queue, engine_named("local"), slots=2).work()


def kill_workers(folder: Path, *, kills: int, jobs: int, job_s: float, seed: int, workers: int = 1) -> None:
    """Each kill hits one of so many workers, and another takes its place."""
    script = project(folder / "project", script=LOCKED)
    draw = random.Random(seed)
    queue = open_queue(create=True)
    wanted = [Wanted([str(number), str(folder), str(job_s)]) for number in range(jobs)]
    queue.add(script, wanted, JobOptions(cpus=1, memory=1))
    fork = multiprocessing.get_context("fork")
    living = [fork.Process(target=work_until_killed) for _ in range(workers)]
    for worker in living:
        worker.start()
    for left in reversed(range(kills)):
        time.sleep(draw.uniform(0.0, 1.5 * job_s + 0.5))
        worker = living.pop(draw.randrange(len(living)))
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        worker.close()
        if left >= workers:
            living.append(fork.Process(target=work_until_killed))
            living[-1].start()
        if not queue.table.jobs("queued"):  # so that there is always one to be begun
            queue.add(script, [Wanted([str(jobs), str(folder), str(job_s)])], JobOptions(cpus=1, memory=1))
            jobs += 1
    Worker(queue, engine_named("local"), slots=2).work(drain=True)

    told = noted(folder)
    assert not [line for line in told if line.startswith("twice")]
    assert sorted(line for line in told if line.startswith("ended")) == sorted(
        f"ended {n}" for n in range(jobs)
    )
    assert [(job.id, job.state) for job in queue.table.jobs() if job.state != "done"] == []
    assert [job.attempt for job in queue.table.jobs()] == [1] * jobs
    runs = [path for path in (queue.lab.folder / "runs").iterdir() if (path / "run.json").is_file()]
    assert {path.name for path in runs} == {job.run for job in queue.table.jobs()}
    assert not list((queue.folder / "going").iterdir()) and not list((queue.folder / "code").iterdir())
    queue.close()


def test_a_few_kills_of_two_workers(tmp_path: Path) -> None:
    kill_workers(tmp_path, kills=5, jobs=4, job_s=0.3, seed=17, workers=2)


@pytest.mark.soak
def test_a_hundred_kills(tmp_path: Path) -> None:
    kill_workers(tmp_path, kills=100, jobs=20, job_s=0.5, seed=2026)


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_hundred_kills_of_three_workers(
    tmp_path: Path, database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database == "postgresql":
        url = request.getfixturevalue("postgres").new_database("killed")
        monkeypatch.setenv("LUXMETER_STORE_URL", url)
    kill_workers(tmp_path, kills=100, jobs=20, job_s=0.5, seed=7, workers=3)
