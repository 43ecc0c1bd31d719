"""Which jobs are taken when, and what becomes of them: the worker over an engine that only pretends."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from queue_parts import DEAD, Clock, PretendedEngine

from luxmeter.errors import UsageError
from luxmeter.process import Process
from luxmeter.store import Job
from luxmeter.train import JobOptions, Queue, Wanted, Worker
from luxmeter.train.queue.begin import claim
from luxmeter.train.queue.jobs import is_config
from luxmeter.view.text.jobs import job_table


def add(queue: Queue, *arguments: str, **options: Any) -> Job:
    return queue.add(Path("project/script.py"), [Wanted(arguments)], JobOptions(**options))[0]


def worker(queue: Queue, engine: PretendedEngine, **options: Any) -> Worker:
    return Worker(queue, engine, clock=Clock(), **options)


def states(queue: Queue) -> list[str]:
    return [job.state for job in queue.table.jobs()]


def test_jobs_begin_by_priority_then_in_order_as_slots_come_free(queue: Queue) -> None:
    for number in range(4):
        add(queue, priority=5 if number == 2 else 0)
    engine = PretendedEngine()
    at_work = worker(queue, engine, slots=2)
    at_work.step()
    assert engine.order == [3, 1]
    at_work.step()
    assert engine.order == [3, 1]
    engine.end(1)
    at_work.step()  # the same step that sees the end begins the next
    assert engine.order == [3, 1, 2]
    assert states(queue) == ["done", "running", "running", "queued"]


def test_a_job_waits_for_room_and_holds_back_those_behind_it(queue: Queue) -> None:
    add(queue, cpus=1)
    add(queue, cpus=2)
    add(queue, cpus=1)
    engine = PretendedEngine(cpus=2)
    at_work = worker(queue, engine)
    at_work.step()
    assert engine.order == [1] and at_work.waiting == {2: "waits for 2 CPUs"}
    engine.end(1)
    at_work.step()
    assert engine.order == [1, 2]


def test_what_needs_more_than_there_is_is_left_to_others_and_ends_no_drain(queue: Queue) -> None:
    add(queue, cpus=9)
    add(queue, after=(1,))
    add(queue)
    engine = PretendedEngine()
    at_work = worker(queue, engine)
    at_work.step()
    assert engine.order == [3] and at_work.waiting[1] == "needs 9 CPUs"
    engine.end(3)
    at_work.step()
    assert at_work.is_idle and states(queue) == ["queued", "queued", "done"]


def test_a_job_follows_one_that_is_done_and_is_cancelled_with_one_that_failed(queue: Queue) -> None:
    first = add(queue)
    add(queue, after=(first.id,))
    add(queue, after=(2,))
    add(queue, after=(3,))
    engine = PretendedEngine()
    at_work = worker(queue, engine)
    at_work.step()
    assert engine.order == [1] and at_work.waiting[2] == "waits for job 1"
    engine.end(1)
    at_work.step()
    assert engine.order == [1, 2]
    engine.end(2, 3)
    at_work.step()
    assert states(queue) == ["done", "failed", "cancelled", "cancelled"]
    assert queue.find(3).why == "job 2, which it was to follow, has failed"
    with pytest.raises(UsageError, match="after-a-failed-job"):
        add(queue, after=(2,))
    with pytest.raises(UsageError, match="unknown-job"):
        add(queue, after=(5,))  # its own number: nothing can follow what is not there yet


def test_a_failed_job_is_started_again_while_it_has_retries(queue: Queue) -> None:
    add(queue, retries=1)
    engine = PretendedEngine()
    at_work = worker(queue, engine)
    at_work.step()
    first = engine.started[1].start.job
    engine.end(1, 1)
    at_work.step()
    again = queue.find(1)
    assert again.state == "running" and again.attempt == 2 and again.run != first.run
    engine.end(1, 4)
    at_work.step()
    ended = queue.find(1)
    assert (ended.state, ended.exit_code, ended.attempt) == ("failed", 4, 2)


def test_a_job_that_cannot_be_started_fails_with_the_reason(queue: Queue, tmp_path: Path) -> None:
    add(queue)
    engine = PretendedEngine()
    engine.refuses = PermissionError(13, "Permission denied")
    worker(queue, engine).step()
    assert queue.find(1).state == "failed" and "Permission denied" in queue.find(1).why

    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    queue.add(tmp_path / "project/script.py", [Wanted(())])
    os.chdir(tmp_path)
    (tmp_path / "gone").rmdir()
    worker(queue, PretendedEngine()).step()
    assert queue.find(2).state == "failed" and "gone" in queue.find(2).why

    add(queue)
    shutil.rmtree(queue.folder / "code")
    worker(queue, PretendedEngine()).step()
    assert queue.find(3).state == "failed" and "is not in" in queue.find(3).why


def test_cancelling(queue: Queue) -> None:
    add(queue)
    add(queue)
    engine = PretendedEngine(cpus=1)
    at_work = worker(queue, engine)
    at_work.step()
    assert queue.cancel(queue.find(2)).state == "cancelled"
    assert queue.cancel(queue.find(1), why="enough").state == "running"
    at_work.step()
    assert engine.started[1].asked == ["ask"]
    for _ in range(15):  # it does not listen
        at_work.step()
    assert engine.started[1].asked[:2] == ["ask", "kill"]
    assert (queue.find(1).state, queue.find(1).why) == ("cancelled", "enough")
    with pytest.raises(UsageError, match="job-ended"):
        queue.cancel(queue.find(1))
    assert not list((queue.folder / "code").iterdir()) and not list((queue.folder / "going").iterdir())


def test_a_cancelled_job_is_not_started_again_though_it_has_retries(queue: Queue) -> None:
    add(queue, retries=3)
    engine = PretendedEngine()
    at_work = worker(queue, engine)
    at_work.step()
    queue.cancel(queue.find(1))
    engine.end(1, 143)
    at_work.step()
    assert queue.find(1).state == "cancelled"


def test_stopping_takes_no_more_and_stopping_now_ends_what_runs(queue: Queue) -> None:
    add(queue)
    add(queue, retries=1)
    add(queue)
    engine = PretendedEngine(cpus=2)
    at_work = worker(queue, engine, slots=2)
    at_work.step()
    at_work.stop()
    engine.end(1)
    at_work.step()
    assert engine.order == [1, 2] and not at_work.is_idle
    at_work.stop(now=True)
    at_work.step()
    assert engine.started[2].asked == ["ask"]
    engine.end(2, 143)
    at_work.step()
    assert at_work.is_idle
    assert states(queue) == ["done", "queued", "queued"]  # it has a retry left
    at_work = worker(queue, engine := PretendedEngine(cpus=2))
    at_work.step()
    at_work.stop(now=True)
    at_work.step()
    engine.end(2, 143)
    engine.end(3, 143)
    at_work.step()
    assert (
        states(queue) == ["done", "cancelled", "cancelled"] and queue.find(3).why == "ended with its worker"
    )


def test_two_workers_take_each_job_once(queue: Queue) -> None:
    for _ in range(6):
        add(queue)
    one, two = PretendedEngine(cpus=8), PretendedEngine(cpus=8)
    first, second = worker(queue, one, slots=3), worker(queue, two, slots=3)
    second._me = replace(second._me, pid=1, started=psutil_started(1))  # a process that lives
    first.step()
    second.step()
    assert sorted(one.order + two.order) == [1, 2, 3, 4, 5, 6] and len(one.order) == 3


def psutil_started(pid: int) -> float:
    import psutil

    return psutil.Process(pid).create_time()


def left_by(queue: Queue, dead: Process, **changes: Any) -> Job:
    """A job that runs as far as the table says; its worker is gone."""
    with queue.table.change() as change:
        job = replace(
            queue.find(1),
            state="running",
            worker=dead,
            engine="local",
            attempt=1,
            run=queue.lab.new_id(),
            **changes,
        )
        change.put(job)
    return job


def test_a_job_that_never_began_is_queued_again(queue: Queue) -> None:
    add(queue)
    job = left_by(queue, DEAD)
    engine = PretendedEngine()
    told: list[tuple[str, int]] = []
    at_work = worker(queue, engine, told=lambda event, one: told.append((event, one.id)))
    at_work.step()
    assert told[0] == ("again", 1) and engine.order == [1]
    assert queue.find(1).attempt == 1 and queue.find(1).run != job.run
    assert not claim(
        queue.going_folder(job) / "began.json", {}
    )  # the process of the first worker comes too late


def test_what_was_cancelled_after_its_worker_died_is_not_begun(queue: Queue) -> None:
    add(queue)
    left_by(queue, DEAD)
    assert queue.cancel(queue.find(1), why="enough").state == "running"
    engine = PretendedEngine()
    worker(queue, engine).end_left(queue.find(1))
    assert queue.find(1).state == "cancelled" and queue.find(1).why == "enough" and not engine.order


@pytest.mark.parametrize(("retries", "state"), [(0, "lost"), (1, "running")])
def test_a_dead_job_is_lost_and_started_again_only_with_retries(
    queue: Queue, retries: int, state: str
) -> None:
    add(queue, retries=retries)
    job = left_by(queue, DEAD)
    queue.going_folder(job).mkdir(parents=True)
    assert claim(queue.going_folder(job) / "began.json", vars(DEAD))
    engine = PretendedEngine()
    worker(queue, engine).step()
    assert queue.find(1).state == state and queue.find(1).attempt == 1 + retries
    assert not queue.going_folder(job).exists()


def test_a_job_that_ended_without_its_worker_ended_when_its_run_did(queue: Queue) -> None:
    add(queue)
    job = left_by(queue, DEAD, started_ns=1)
    queue.lab.create_run("script", run_id=job.run).finish()
    queue.going_folder(job).mkdir(parents=True)
    assert claim(queue.going_folder(job) / "began.json", vars(DEAD))
    status = queue.lab.folder / "runs" / job.run / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "ended_ns": 3_000_000_001}))
    worker(queue, PretendedEngine()).step()
    assert queue.find(1).state == "done" and queue.find(1).ended_ns == 3_000_000_001


def test_what_runs_on_another_machine_is_left_alone_but_not_after_a_restart_of_this_one(queue: Queue) -> None:
    add(queue)
    left_by(queue, replace(DEAD, host="elsewhere", machine="other/boot"))
    worker(queue, PretendedEngine()).step()
    assert queue.find(1).state == "running"
    assert queue.cancel(queue.find(1), force=True).state == "cancelled"
    with queue.table.change() as change:
        change.put(replace(queue.find(1), worker=replace(DEAD, machine="before/boot"), state="running"))
    queue.going_folder(queue.find(1)).mkdir(parents=True, exist_ok=True)
    claim(queue.going_folder(queue.find(1)) / "began.json", vars(replace(DEAD, machine="before/boot")))
    worker(queue, PretendedEngine()).step()
    assert queue.find(1).state == "lost"


def test_a_job_needs_what_its_last_run_used(queue: Queue) -> None:
    with queue.lab.create_run("script") as run:
        run.log({"system/process_memory_bytes": 3e9, "system/process_cpu_percent": 210.0}, step=1)
    assert add(queue).needs.memory_bytes == 3_000_000_000 and queue.find(1).needs.cpus == 2
    assert add(queue, memory=5, cpus=1).needs.memory_bytes == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'doc'\nimport x\nlr = 0.1\ntask = dict(type='TaskFlow')\n", True),
        ("from base import *\nlr = 0.2\n", True),
        ("lr = 0.1\n", False),
        ("task = 1\nprint(task)\n", False),
        ("import x\ntask = 1\nif __name__ == '__main__':\n    main()\n", False),
        ("task = (", False),
    ],
)
def test_a_config_is_told_from_a_script(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "file.py").write_text(text)
    assert is_config(tmp_path / "file.py") is expected


def test_what_followed_a_job_that_failed_is_told(queue: Queue) -> None:
    first = add(queue)
    add(queue, after=(first.id,))
    told: list[tuple[str, int, str]] = []
    engine = PretendedEngine()
    at_work = worker(queue, engine, told=lambda event, job: told.append((event, job.id, job.state)))
    at_work.step()
    engine.end(first.id, 1)
    at_work.step()
    assert told == [("began", 1, "running"), ("ended", 1, "failed"), ("ended", 2, "cancelled")]


def test_a_job_that_never_began_names_no_run(queue: Queue) -> None:
    add(queue)
    engine = PretendedEngine()
    engine.refuses = OSError("no room for a process")
    worker(queue, engine).step()
    (job,) = queue.table.jobs()
    assert (job.state, job.run) == ("failed", "") and "no room for a process" in job.why
    (row,) = job_table([job], now_ns=0).rows
    assert row[-1] == job.why


def test_how_a_program_ended_stands_in_the_list(queue: Queue) -> None:
    add(queue)
    engine = PretendedEngine()
    at_work = worker(queue, engine)
    at_work.step()
    engine.end(1, 3)
    at_work.step()
    (row,) = job_table(queue.table.jobs(), now_ns=0).rows
    assert row[1] == "failed" and row[-1] == "exit code 3"
