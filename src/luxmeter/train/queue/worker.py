"""The worker: takes jobs when there is room for them, starts them, sees how they end. It is a program in the foreground.

It may die at any moment, and so may the machine that a job is on. Who takes a job writes that down first (its run's id with it); the job's process then says
which one it is before it becomes the program (begin.py). So the next worker knows of each job whose worker is gone
whether it lives (it is adopted), has ended (its run says how), is lost, or never began (it is queued again).
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from luxmeter.errors import LuxmeterError
from luxmeter.experiment import LaidOut, Order, lay_out, program_variables, stored_project, write_order
from luxmeter.process import Process
from luxmeter.store import ENDED, Job, JobChange, Run, layout
from luxmeter.train.queue.begin import claim, claimed_by
from luxmeter.train.queue.engines.engine import End, Engine, Going, Start
from luxmeter.train.queue.engines.on_node import ended_code
from luxmeter.train.queue.jobs import Queue, drop_unused_code, is_own_machine, settle

TICK_S = 0.1
_LOOK_S = 0.25  # between looks into the table
_RECOVER_S = 1.0  # between looks for jobs whose worker is gone
_PATIENCE_S = 10.0  # from asking a job to end to ending it
_NO_RUN_S = 60.0  # within which a program that begins on another machine makes its run


@dataclass
class _At:
    """A job at work here."""

    job: Job
    going: Going
    asked_at: float | None = None  # when it was asked to end
    why: str = ""


class Worker:
    """Works off the jobs of one lab, or of one group of them, through an engine.

    `told` hears of each job that began or ended. `stop()` takes no more jobs; `stop(now=True)` ends those that run.
    """

    def __init__(
        self,
        queue: Queue,
        engine: Engine,
        *,
        slots: int | None = None,
        group: str = "",
        told: Callable[[str, Job], None] = lambda event, job: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self.engine = engine
        self.slots = slots or engine.slots
        self.group = group
        self.waiting: dict[int, str] = {}  # why a job has not begun
        self.never: set[int] = set()  # those that this worker can never start
        self._told = told
        self._clock = clock
        self._me = Process.here()
        self._at: dict[int, _At] = {}
        self._looked = self._recovered = float("-inf")
        self._stops = self._ends = False
        self._left = True  # whether there was anything to do at the last look

    @property
    def running(self) -> list[Job]:
        """The jobs at work here."""
        return [one.job for one in self._at.values()]

    @property
    def is_stopping(self) -> bool:
        """Whether it takes no more jobs."""
        return self._stops

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here, and at the last look nothing waited that this worker could ever start."""
        return not self._at and (self._stops or not self._left)

    def look(self) -> None:
        """Have the next step look into the table, whenever the last one did: jobs were added."""
        self._looked, self._left = float("-inf"), True

    def stop(self, *, now: bool = False) -> None:
        """Take no more jobs; with `now` end those that run."""
        self._stops = True
        self._ends = self._ends or now

    def work(self, *, drain: bool = False, pause: Callable[[float], object] = time.sleep) -> None:
        """Go on until stopped; with `drain`, until nothing is left to do."""
        self._tidy()
        while True:
            self.step()
            if (drain or self._stops) and self.is_idle:
                return
            pause(TICK_S)

    def _tidy(self) -> None:
        """Remove what workers that were killed had no time to remove."""
        place = self.queue.folder / "going"
        found = list(place.iterdir()) if place.is_dir() else []
        in_use = {self.queue.going_folder(job) for job in self.queue.table.jobs("running")}
        for folder in found:
            if folder not in in_use:
                shutil.rmtree(folder, ignore_errors=True)

    def step(self) -> None:
        """See what ended, what is asked, what is left behind, and what can begin."""
        now = self._clock()
        ended = [
            (one, end)
            for one in self._at.values()
            if (end := one.going.poll()) is not None and not (end.code is None and self._lives(one.job))
        ]
        for one, end in ended:
            self._finish(one, end)
        if self._ends:
            for one in self._at.values():
                self._end(one, "ended with its worker")
        if not ended and now - self._looked < _LOOK_S:
            return
        self._looked = now
        jobs = self.queue.table.jobs("queued", "running")
        self._obey(jobs)
        if now - self._recovered >= _RECOVER_S:
            self._recovered = now
            if self._recover(jobs):
                jobs = self.queue.table.jobs("queued", "running")
        mine = [job for job in jobs if not self.group or job.group == self.group]
        waits = [job for job in mine if job.state == "queued"]
        if waits and not self._stops and len(self._at) < self.slots:
            self._begin_some()
        elsewhere = [job for job in mine if job.state == "running" and job.id not in self._at]
        for job in waits:  # what follows one that cannot begin here cannot either
            if any(number in self.never for number in job.after):
                self.never.add(job.id)
        self._left = any(job.id not in self.never for job in waits) or bool(elsewhere)

    # -- beginning --------------------------------------------------------------------------------------------------

    def _begin_some(self) -> None:
        while len(self._at) < self.slots:
            with self.queue.table.change() as change:
                job = self._take(change)
            if job is None:
                return
            self._start(job)

    def _take(self, change: JobChange) -> Job | None:
        """Write down that the next job is ours. One that waits for room holds back those behind it, or it would wait for ever."""
        known = settle(change)
        jobs = list(known.values())
        here = [
            job
            for job in jobs
            if job.state == "running" and job.worker and job.worker.is_here and job.engine == self.engine.name
        ]
        queued = [j for j in jobs if j.state == "queued" and (not self.group or j.group == self.group)]
        for job in sorted(queued, key=lambda job: (-job.priority, job.id)):
            ahead = [number for number in job.after if number in known and known[number].state != "done"]
            if ahead:
                self.waiting[job.id] = f"waits for job {ahead[0]}"
                continue
            room = self.engine.room(job.needs, [self._known(other) for other in here])
            if room.never:
                self.waiting[job.id] = room.why
                self.never.add(job.id)
                continue
            if not room.free:
                self.waiting[job.id] = room.why
                return None
            self.waiting.pop(job.id, None)
            taken = replace(
                job, state="running", worker=self._me, process=None, engine=self.engine.name, place="", gpus=room.gpus,
                run=self.queue.lab.new_id(), attempt=job.attempt + 1, started_ns=time.time_ns(), ended_ns=None,
                exit_code=None, why="", asked="",
            )  # fmt: skip
            change.put(taken)
            return taken
        return None

    def _known(self, job: Job) -> Job:
        return replace(job, process=job.process or claimed_by(self._claim(job)))

    def _start(self, job: Job) -> None:
        try:
            going = self.engine.start(self._prepared(job))
        except (LuxmeterError, OSError) as error:
            why = error.what if isinstance(error, LuxmeterError) else f"it cannot be started: {error}"
            self._write_end(job, End(None, why), outcome="failed")
            return
        self._at[job.id] = _At(job, going)
        self._told("began", job)

    def _prepared(self, job: Job) -> Start:
        """Its code laid out, its orders written; what is not there any more is told."""
        cwd = Path(job.cwd)
        if not cwd.is_dir():
            raise FileNotFoundError(f"the folder {cwd} that it was queued in is gone")
        if not Path(job.python).exists():
            raise FileNotFoundError(f"the interpreter {job.python} that it was queued with is gone")
        folder = self.queue.going_folder(job)
        code = stored_project(self.queue.lab, job.code)
        project = folder / _folder_name(job.root)
        shutil.rmtree(folder, ignore_errors=True)
        lay_out(self.queue.lab, code, project)
        order = folder / "order"
        laid = LaidOut(project, job.root, dict(code.git) if code.git else None)
        tags = (job.group,) if job.group else ()
        write_order(order, Order(None, "", False, run_id=job.run, tags=tags, code=laid))
        log = self.queue.log_file(job)
        log.parent.mkdir(exist_ok=True)
        verb = ["run"] if job.kind == "script" else ["train"]
        program = [job.python, "-m", "luxmeter", *verb, str(project / job.program), *job.arguments]
        paths = [str(project / path) for path in code.paths]
        variables = program_variables(self.queue.lab, paths, order)
        words = [job.python, "-m", "luxmeter.train.queue.begin", str(self._claim(job)), *program]
        return Start(job, words, cwd, variables, log, folder)

    def _claim(self, job: Job) -> Path:
        return self.queue.going_folder(job) / "began.json"

    # -- ending -----------------------------------------------------------------------------------------------------

    def _obey(self, jobs: list[Job]) -> None:
        """End the jobs that somebody cancelled, and write down which processes ours are."""
        known = {job.id: job for job in jobs}
        for one in list(self._at.values()):
            now = known.get(one.job.id)
            if now is None or now.attempt != one.job.attempt:  # cancelled by force: it is nobody's any more
                one.going.end("kill")
                del self._at[one.job.id]
            elif now.asked == "cancel":
                self._end(one, now.why or "cancelled")
            elif now.process is None and (process := claimed_by(self._claim(now))) is not None:
                one.job = self._note(one.job.id, process, one.going.place)

    def _note(self, number: int, process: Process, place: str) -> Job:
        with self.queue.table.change() as change:
            job = change.get(number)
            assert job is not None
            job = replace(job, process=process, place=place, worker=self._me)
            change.put(job)
        return job

    def _end(self, one: _At, why: str) -> None:
        now = self._clock()
        if one.asked_at is None:
            one.asked_at, one.why = now, why
            one.going.end("ask")
        elif now - one.asked_at > _PATIENCE_S:
            one.going.end("kill")

    def _finish(self, one: _At, end: End) -> None:
        del self._at[one.job.id]
        self._write_end(one.job, end, why=one.why, outcome="failed" if end.refused else "")

    def _write_end(self, job: Job, end: End, *, why: str = "", outcome: str = "") -> None:
        """What became of it (`outcome`: of one that never began, so that there is no run); it is queued again if it may be."""
        code, ended_ns = end.code, time.time_ns()
        if code is None and not outcome:
            code, ended_ns = self._found_end(job)
        with self.queue.table.change() as change:
            now = change.get(job.id)
            if now is None or now.state != "running" or now.attempt != job.attempt:
                return  # cancelled by force
            state = outcome or ("lost" if code is None else "done" if code == 0 else "failed")
            reason = why or end.why or _FAILED.get(state, "")
            again = False
            if now.asked == "cancel":
                state, reason = "cancelled", now.why
            elif state != "done" and now.attempt <= now.retries:
                again, reason = True, f"attempt {now.attempt}: {reason or f'{state} with exit code {code}'}"
            elif state != "done" and why:  # we ended it
                state = "cancelled"
            ended = replace(
                now, state="queued" if again else state, exit_code=code, run="" if outcome else now.run, why=reason if state != "done" or again else "",
                ended_ns=None if again else ended_ns, worker=None, gpus=() if again else now.gpus,
            )  # fmt: skip
            change.put(ended)
            waited = {other.id for other in change.jobs("queued")}
            after = [
                other
                for other in settle(change).values()
                if other.state == "cancelled" and other.id in waited
            ]
        shutil.rmtree(self.queue.going_folder(job), ignore_errors=True)
        if ended.state in ENDED:
            drop_unused_code(self.queue)
        self._told("again" if again else "ended", ended)
        for other in after:
            self._told("ended", other)

    def _lives(self, job: Job) -> bool:
        """Whether a program that its engine knows nothing of any more may still be at work: it must not run twice at once.

        On this machine its process tells; of another machine the run does, which is touched every few seconds.
        """
        if claim(self._claim(job), {}):
            return False  # it has not begun, and now never will
        process = job.process or claimed_by(self._claim(job))
        if process is None or is_own_machine(process):
            return process is not None and process.is_here and process.runs_here()
        folder = self.queue.lab.folder / layout.RUNS / job.run
        with contextlib.suppress(LuxmeterError, OSError):
            if folder.is_dir():
                return Run(folder).state == "running"
            began = self._claim(job).stat().st_mtime  # it may have begun and not made its run yet
            return time.time() - began < _NO_RUN_S
        return False

    def _found_end(self, job: Job) -> tuple[int | None, int]:
        """The exit code of a process that was none of our children, and when it ended: as was written down, or as its run tells."""
        code, ended_ns = ended_code(self.queue.going_folder(job)), time.time_ns()
        folder = self.queue.lab.folder / layout.RUNS / job.run
        with contextlib.suppress(LuxmeterError, OSError):
            run = Run(folder) if job.run and folder.is_dir() else None
            if run is not None and run.state in ("finished", "failed", "interrupted"):
                ended_ns = run.ended_ns or ended_ns
                if code is None:
                    told = run.ending.exit_code if run.ending else None
                    code = 0 if run.state == "finished" else told or 1
        return code, ended_ns

    # -- what other workers left --------------------------------------------------------------------------------------

    def end_left(self, job: Job, *, pause: Callable[[float], object] = time.sleep) -> None:
        """End a job that was cancelled, if its worker is gone; nothing if that lives, or lived elsewhere."""
        if not was_left(job):
            return
        self._adopt(job)
        while one := self._at.get(job.id):
            end = one.going.poll()
            if end is None or (end.code is None and self._lives(one.job)):
                self._end(one, "cancelled")
                pause(TICK_S)
            else:
                self._finish(one, end)

    def _recover(self, jobs: list[Job]) -> bool:
        """Take care of running jobs whose worker is gone; whether there were any."""
        left = [
            job
            for job in jobs
            if job.state == "running" and job.id not in self._at and job.engine == self.engine.name and was_left(job)
        ]  # fmt: skip
        for job in left:
            self._adopt(job)
        return bool(left)

    def _adopt(self, job: Job) -> None:
        folder = self.queue.going_folder(job)
        going = self.engine.adopt(self._known(job), folder)
        with self.queue.table.change() as change:
            now = change.get(job.id)
            if (
                now is None
                or now.state != "running"
                or now.worker != job.worker
                or now.attempt != job.attempt
            ):
                return  # another worker was first
            # Nobody can begin any more once this file is there. What waits in the engine's own queue shall.
            folder.mkdir(parents=True, exist_ok=True)
            never_began = going is None and claim(self._claim(now), {})
            process = now.process or claimed_by(self._claim(now))
            if never_began and now.asked == "cancel":
                left = replace(now, state="cancelled", worker=None, ended_ns=time.time_ns())
            elif never_began:
                left = replace(now, state="queued", attempt=now.attempt - 1, worker=None, run="", why="")
            else:
                now = left = replace(now, worker=self._me, process=process)
            change.put(left)
            settle(change)
        if never_began:
            shutil.rmtree(self.queue.going_folder(now), ignore_errors=True)
            if left.state in ENDED:
                drop_unused_code(self.queue)
                self._told("ended", left)
            else:
                self._told("again", replace(left, why="its worker was gone before it began"))
            return
        going = going or self.engine.adopt(now, folder)
        if going is None and not self._lives(now):
            self._write_end(now, End(None))
        else:
            self._at[now.id] = _At(now, going or _Left())
            self._told("adopted", now)


class _Left:
    """A program of another machine that its engine knows nothing of; the worker waits until its run is still."""

    place = ""

    def poll(self) -> End | None:
        """Nobody can tell."""
        return End(None)

    def end(self, how: Literal["ask", "kill"]) -> None:
        """Nobody can reach it."""


def was_left(job: Job) -> bool:
    """Whether the worker of a job is gone, as far as this machine can tell."""
    worker = job.worker
    return worker is not None and is_own_machine(worker) and not (worker.is_here and worker.runs_here())


_FAILED = {"lost": "its process is gone, and its run tells no end"}


def _folder_name(root: str) -> str:
    """The project folder's own name where it can be one."""
    name = Path(root).name
    return name if re.fullmatch(r"\w[\w. -]*", name) else "code"


def line_of_job(event: str, job: Job) -> str:
    """One line of what happened to a job."""
    what = " ".join(job.typed)
    if event == "began":
        return f"job {job.id} began as run {job.run}: {what}"
    if event == "adopted":
        return f"job {job.id} goes on, run {job.run}: its worker was gone"
    if event == "again":
        return f"job {job.id} is queued again: {job.why}"
    if job.state == "failed" and job.exit_code is not None:
        why = job.why or f"luxmeter queue log {job.id} shows what it printed"
        return f"job {job.id} failed with exit code {job.exit_code}: {why}"
    return f"job {job.id} {job.state}" + (f": {job.why}" if job.why else "")
