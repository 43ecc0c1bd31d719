"""The queue: jobs added, found, cancelled and waited for. Workers take them (worker.py)."""

from __future__ import annotations

import ast
import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError, StoreError, UsageError, near_names
from luxmeter.experiment import drop_project, keep_project, stored_names, stored_project
from luxmeter.files import read_json, write_json
from luxmeter.process import Process
from luxmeter.store import ENDED, Job, JobChange, JobTable, Lab, Needs, Run, layout, records
from luxmeter.train.queue.options import JobOptions

_PARTS = {"task", "data", "optimizer", "scheduler", "evaluators", "callbacks", "trainer", "epoch"}
_BAD_ENDS = ("failed", "cancelled", "lost")


@dataclass(frozen=True)
class Wanted:
    """A job to be added: one of several that share a program and its code."""

    arguments: Sequence[str]
    group: str = ""
    trial: Mapping[str, Any] = field(default_factory=dict)


class Queue:
    """The jobs of one lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.table = JobTable(lab.folder, lab.id)
        self.folder = lab.folder / layout.QUEUE
        self._own = Process.here()

    def close(self) -> None:
        """Let go of the database."""
        self.table.close()

    # -- adding ---------------------------------------------------------------------------------------------------

    def add(
        self, program: Path, jobs: Sequence[Wanted], options: JobOptions | None = None, *, code: str = ""
    ) -> list[Job]:
        """Queue a script or config with the code around it as it is now, once for each of `jobs`.

        `code`: with that of an earlier job, which somebody holds.
        """
        options = options or JobOptions()
        path = program.absolute()
        kind = kind_of(program, options)
        if kind == "config":
            _check_overrides(program, jobs)
        self._check_after(options.after)
        added: list[Job] = []
        with self.table.change() as change:  # alone: nobody forgets the code before the jobs are there
            project = stored_project(self.lab, code) if code else keep_project(self.lab, path.parent)
            name = path.relative_to(project.root).as_posix()
            needs = self._needs(change, name, project.root, path.stem, options)
            for one in jobs if name in project.files else ():
                job = Job(
                    id=change.next_id(), program=name, kind=kind, arguments=tuple(one.arguments), cwd=str(Path.cwd()),
                    root=project.root, code=project.name, python=sys.executable, created_ns=time.time_ns(), needs=needs,
                    priority=options.priority, retries=options.retries, after=tuple(options.after),
                    group=one.group, trial=dict(one.trial),
                )  # fmt: skip
                change.put(job)
                added.append(job)
        if name not in project.files:
            drop_unused_code(self)
            raise UsageError(
                "script-not-kept",
                f"{program} is not among the code that is kept of {project.root}: git ignores it, or it is too large.",
                "Have git not ignore it, or move it.",
            )
        return added

    def _check_after(self, after: Iterable[int]) -> None:
        # A job can follow only one that is there already: so they cannot wait for each other in a circle.
        for number in after:
            job = self.find(number)
            if job.state in _BAD_ENDS:
                raise UsageError(
                    "after-a-failed-job",
                    f"Job {number} {_ended(job)}: what is to follow it would never start.",
                    "Queue that one again first.",
                )

    def _needs(self, change: JobChange, program: str, root: str, name: str, options: JobOptions) -> Needs:
        memory, cpus = options.memory, options.cpus
        if memory is None or cpus is None:
            used = self._last_use(change, program, root, name)
            memory = used.memory_bytes if memory is None else memory
            cpus = used.cpus if cpus is None else cpus
        return Needs(memory, cpus, options.gpus, is_measured=options.memory is None)

    def _last_use(self, change: JobChange, program: str, root: str, name: str) -> Needs:
        """What the last run of the same program used: of a job, else one that has the script's name."""
        try:
            before = [job for job in change.jobs("done") if (job.program, job.root) == (program, root)]
            run = Run(self.lab.folder / layout.RUNS / before[-1].run) if before else None
            if run is None:
                rows = self.lab.runs(f"state = finished and name = {name!r}", limit=1)
                run = Run(self.lab.folder / layout.RUNS / rows[0].id) if rows else None
            metrics = {} if run is None else run.metrics
            memory = metrics.get(f"{records.SYSTEM}process_memory_bytes", {}).get("max") or 0
            percent = metrics.get(f"{records.SYSTEM}process_cpu_percent", {}).get("max") or 0
        except LuxmeterError:  # removed or damaged since: then nobody knows
            return Needs()
        return Needs(int(memory), max(1, round(percent / 100)))

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[str], None]]:
        """Inside, code that is named is not forgotten, though no job with it waits."""
        held: list[Path] = []

        def hold(code: str) -> None:
            file = self.folder / "code" / layout.named("file", code) / f"held-{self._own.pid}.json"
            write_json(file, vars(self._own))
            held.append(file)

        try:
            yield hold
        finally:
            for file in held:
                file.unlink(missing_ok=True)
            drop_unused_code(self)

    # -- asking ---------------------------------------------------------------------------------------------------

    def find(self, reference: int | str) -> Job:
        """The job of this number."""
        jobs = self.table.jobs()
        for job in jobs:
            if str(reference).removeprefix("#") == str(job.id):
                return job
        if jobs:
            known = [*dict.fromkeys(job.group for job in jobs if job.group), *(str(job.id) for job in jobs)]
            next_step = near_names(str(reference), known) or f"The last is {jobs[-1].id}."
            next_step += " luxmeter queue list --all shows them."
        else:
            next_step = "The queue is empty: luxmeter queue add SCRIPT adds one."
        raise UsageError("unknown-job", f"There is no job {reference}.", next_step)

    def find_several(self, references: Iterable[str]) -> list[Job]:
        """Jobs by number, or all of a group by its name."""
        found: dict[int, Job] = {}
        for reference in references:
            group = self.table.jobs(group=reference) if not reference.isdecimal() else []
            found |= {job.id: job for job in group or [self.find(reference)]}
        return list(found.values())

    def log_file(self, job: Job) -> Path:
        """Where its output goes, of all its attempts."""
        return self.folder / "logs" / f"{job.id}.log"

    def going_folder(self, job: Job) -> Path:
        """Where its code and orders lie while it runs."""
        return self.folder / "going" / f"{job.id}-{job.run}"

    def wait(self, ids: Iterable[int], *, pause: Callable[[float], object] = time.sleep) -> list[Job]:
        """Wait until these have ended."""
        wanted = set(ids)
        while True:
            jobs = [job for job in self.table.jobs() if job.id in wanted]
            if all(job.state in ENDED for job in jobs):
                return jobs
            pause(0.2)

    # -- cancelling -----------------------------------------------------------------------------------------------

    def cancel(self, job: Job, *, why: str = "", force: bool = False) -> Job:
        """End a job: one that waits, at once; of one that runs its worker is told. `force`: forget it, whatever it does."""
        with self.table.change() as change:
            now = change.get(job.id) or job
            if now.state in ENDED:
                raise UsageError("job-ended", f"Job {now.id} {_ended(now)}.", "Nothing is left to cancel.")
            if now.state == "queued" or force:
                now = replace(now, state="cancelled", why=why, ended_ns=time.time_ns())
            else:
                now = replace(now, asked="cancel", why=why)
            change.put(now)
            settle(change)
        if now.state in ENDED:
            shutil.rmtree(self.going_folder(now), ignore_errors=True)
            drop_unused_code(self)
        return now


def active_jobs(change: JobChange) -> dict[int, Job]:
    """The jobs that wait or run, and those that they are to follow."""
    jobs = {job.id: job for job in change.jobs("queued", "running")}
    for number in {number for job in jobs.values() for number in job.after if number not in jobs}:
        ahead = change.get(number)
        if ahead is not None:
            jobs[number] = ahead
    return jobs


def settle(change: JobChange) -> dict[int, Job]:
    """Cancel what was to follow a job that did not get done; the active jobs as they are then."""
    jobs = active_jobs(change)
    for job in sorted(jobs.values(), key=lambda job: job.id):  # each follows only earlier ones
        bad = next((jobs[n] for n in job.after if n in jobs and jobs[n].state in _BAD_ENDS), None)
        if job.state == "queued" and bad is not None:
            why = f"job {bad.id}, which it was to follow, {_ended(bad)}"
            jobs[job.id] = replace(job, state="cancelled", why=why, ended_ns=time.time_ns())
            change.put(jobs[job.id])
    return jobs


def drop_unused_code(queue: Queue) -> None:
    """Forget the code of jobs that have all ended."""
    with queue.table.change() as change:  # alone: nobody adds a job with that code meanwhile
        used = {job.code for job in change.jobs("queued", "running")}
        for name in stored_names(queue.lab):
            if name not in used and not any(map(_holds, (queue.folder / "code" / name).glob("held-*.json"))):
                drop_project(queue.lab, name)


def _holds(file: Path) -> bool:
    """Whether who made this file still wants the code: a process of another machine may, and one that it does not tell."""
    try:
        told = read_json(file)
        holder = None if told is None else Process.of(told)
    except (StoreError, ValueError, KeyError, TypeError, AttributeError):
        return True
    return holder is not None and (not is_own_machine(holder) or holder.runs_here())


def kind_of(program: Path, options: JobOptions) -> str:
    """script or config; what is neither a file nor there is refused."""
    if not program.is_file():
        what = f"{program} is a folder." if program.is_dir() else f"There is no script {program}."
        raise UsageError("no-script", what, "Check the path of the script or config.")
    return options.kind or ("config" if is_config(program) else "script")


def is_config(path: Path) -> bool:
    """Whether a Python file is a config: it only gives names to values, and some are what a training is made of."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return False
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names):
            names.add("task")  # of a config that it takes over
        elif not isinstance(node, _GIVES_NAMES) and not _is_text(node):
            return False
    return bool(names & _PARTS)


_GIVES_NAMES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Delete)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_own_machine(process: Process) -> bool:
    """Whether a process can be looked for here; also one of this machine before it was started anew, which is gone."""
    here = Process.here()
    return process.machine == here.machine or (process.host == here.host and process.boot != here.boot)


def _ended(job: Job) -> str:
    word = {"done": "is done", "failed": "has failed", "cancelled": "was cancelled", "lost": "was lost"}
    return word.get(job.state, job.state)


def _check_overrides(program: Path, jobs: Sequence[Wanted]) -> None:
    for word in (word for one in jobs for word in one.arguments):
        if "=" not in word:
            raise UsageError(
                "override-form",
                f"{word!r} is no KEY=VALUE for the config {program}.",
                "Write lr=0.1; if the file is a script, say --kind script.",
            )


def open_queue(*, create: bool = False) -> Queue:
    """The queue of the lab that holds here; with `create` the lab is made if need be."""
    return Queue(Lab.open(create=create))
