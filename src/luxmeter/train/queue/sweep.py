"""A sweep: one program with many values, each a job of a group; which values come next may depend on what came of the last."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.experiment import changed_arguments
from luxmeter.store import ENDED, Job, Lab, Run, layout
from luxmeter.train.queue.jobs import Queue, Wanted, kind_of
from luxmeter.train.queue.options import JobOptions, SweepOptions
from luxmeter.train.queue.space import Axis, grid_points, read_grid, read_space, texts_of, told_by
from luxmeter.train.queue.worker import TICK_S, Worker

_LOOK_S = 1.0  # between looks into the metrics of trials that run


@dataclass
class Trial:
    """One point, with a job for each seed."""

    number: int
    point: Mapping[str, Any]
    jobs: list[Job] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # of each run that has the metric

    @property
    def mean(self) -> float | None:
        """Of its runs."""
        return fmean(self.values) if self.values else None

    @property
    def state(self) -> str:
        """done when all its jobs are; otherwise the one that says most."""
        states = [job.state for job in self.jobs]
        return next(
            (one for one in ("running", "failed", "lost", "cancelled", "queued") if one in states), "done"
        )


class Search(Protocol):
    """Who says what is tried next."""

    def next_points(self, room: int) -> list[Mapping[str, Any]]:
        """Points to be tried now; `room` for so many trials is free."""

    def is_over(self) -> bool:
        """Whether no more will come."""

    def told(self, number: int, value: float | None) -> None:
        """What came of the trial of this number; None: nothing."""

    def reported(self, number: int, steps: Mapping[int, float]) -> None:
        """What a trial has logged so far, by step."""

    def is_hopeless(self, number: int) -> bool:
        """Whether a trial is to be ended, by what it has reported."""


class Listed:
    """Points that are known beforehand: all of them at once."""

    def __init__(self, points: Sequence[Mapping[str, Any]]) -> None:
        self._points = list(points)

    def next_points(self, room: int) -> list[Mapping[str, Any]]:
        """All, once."""
        points, self._points = self._points, []
        return points

    def is_over(self) -> bool:
        """After the first question."""
        return not self._points

    def told(self, number: int, value: float | None) -> None:
        """Nothing follows from it."""

    def reported(self, number: int, steps: Mapping[int, float]) -> None:
        """Nothing follows from it."""

    def is_hopeless(self, number: int) -> bool:
        """Never."""
        return False


class Sweep:
    """The trials of one sweep and the queue they are in."""

    def __init__(
        self,
        queue: Queue,
        program: Path,
        arguments: Sequence[str],
        options: SweepOptions,
        job_options: JobOptions | None = None,
    ) -> None:
        self.queue = queue
        self.options = options
        self.name = options.name or _free_name(queue)
        if queue.table.jobs(group=self.name):
            raise UsageError(
                "sweep-exists", f"There is a sweep {self.name} already.", "Choose another --name."
            )
        self.trials: list[Trial] = []
        self._program = program
        self._arguments = list(arguments)
        self._job_options = job_options or JobOptions()
        self._is_config = kind_of(program, self._job_options) == "config"
        self.search = self._make_search()
        self._code = ""
        self._looked = 0.0
        self._ended: set[int] = set()

    def _make_search(self) -> Search:
        options = self.options
        if bool(options.grid) == bool(options.search):
            raise UsageError(
                "sweep-what",
                "A sweep needs a grid or a number of points to search.",
                "Say --grid lr=0.1,0.01 or --search 20, one of the two.",
            )
        if options.grid:
            if options.space or options.prune or options.sampler:
                raise UsageError(
                    "sweep-what",
                    "--space, --sampler and --prune belong to --search.",
                    "Leave them out with --grid.",
                )
            return Listed(list(grid_points(read_grid(options.grid))))
        space = read_space(options.space)
        if not space:
            if self._is_config:
                raise UsageError(
                    "sweep-no-space",
                    f"The config {self._program} has no bounds.",
                    "Say --space lr=0.001:0.1.",
                )
            space = told_by(self._program, self._arguments, self.queue.lab)
        if not space:
            raise UsageError(
                "sweep-no-space",
                f"The Params of {self._program} have neither choices nor a range with two ends.",
                'Give them some, such as params.arange("lr", 0.1, 0.001, 1.0), or say --space lr=0.001:1.0.',
            )
        return self._searched(space)

    def _searched(self, space: Mapping[str, Axis]) -> Search:
        from luxmeter.train.queue.optuna_search import OptunaSearch, has_optuna

        options = self.options
        learns = options.sampler == "optuna" or options.prune or (
            options.sampler is None and bool(options.metric) and has_optuna()
        )  # fmt: skip
        if learns:
            if not options.metric:
                raise UsageError(
                    "sweep-no-metric",
                    "Optuna learns from a metric, and none is named.",
                    "Say --metric eval/acc.",
                )
            return OptunaSearch(
                space, options.search, mode=options.mode, seed=options.draw_seed, prune=options.prune
            )
        draws = random.Random(options.draw_seed)
        points = [{name: axis.draw(draws) for name, axis in space.items()} for _ in range(options.search)]
        return Listed(points)

    # -- trials ---------------------------------------------------------------------------------------------------

    def add_trials(self, room: int) -> None:
        """Queue what is to be tried now."""
        points = self.search.next_points(room)
        if not points:
            return
        made = [Trial(len(self.trials) + n, point) for n, point in enumerate(points)]
        seeds: list[int | None] = [None] if self.options.seeds == 1 else list(range(self.options.seeds))
        wanted = [self._wanted(trial, seed) for trial in made for seed in seeds]
        jobs = iter(self.queue.add(self._program, wanted, self._job_options, code=self._code))
        for trial in made:
            trial.jobs = [next(jobs) for _ in seeds]
        self._code = made[0].jobs[0].code
        self.trials += made

    def _wanted(self, trial: Trial, seed: int | None) -> Wanted:
        texts = texts_of({**trial.point, **({} if seed is None else {"seed": seed})})
        if self._is_config:
            arguments = [*self._arguments, *(f"{name}={text}" for name, text in texts.items())]
        else:
            source = self._program.read_text(encoding="utf-8", errors="replace")
            arguments = changed_arguments(self._arguments, texts, params={}, sources=[source])
        facts = {"number": trial.number, "point": dict(trial.point), "seed": seed, "metric": self.options.metric, "mode": self.options.mode}  # fmt: skip
        return Wanted(arguments, self.name, facts)

    def refresh(self) -> None:
        """Bring trials up to date with the queue; tell the search what ended, and end what is hopeless."""
        jobs = {job.id: job for job in self.queue.table.jobs(group=self.name)}
        for trial in self.trials:
            trial.jobs = [jobs.get(job.id, job) for job in trial.jobs]
            if trial.number in self._ended:
                continue
            trial.values = [v for job in trial.jobs if (v := value_of(self.queue.lab, job)) is not None]
            if all(job.state in ENDED for job in trial.jobs):
                self._ended.add(trial.number)
                self._report(trial)
                self.search.told(trial.number, trial.mean)
            elif self.options.prune:
                self._prune(trial)

    def _report(self, trial: Trial) -> int:
        """Tell the search what the first run of a trial has logged; its last step, -1 without one."""
        steps = steps_of(self.queue.lab, trial.jobs[0], self.options.metric) if self.options.prune else {}
        if steps:
            self.search.reported(trial.number, steps)
        return max(steps, default=-1)

    def _prune(self, trial: Trial) -> None:
        if trial.jobs[0].state != "running" or trial.jobs[0].asked:
            return
        step = self._report(trial)
        if step >= 0 and self.search.is_hopeless(trial.number):
            for job in trial.jobs:
                with contextlib.suppress(UsageError):  # it has ended meanwhile
                    self.queue.cancel(job, why=f"pruned at step {step}")

    def run(
        self,
        worker: Worker,
        *,
        shown: Callable[[Sweep], object],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Work until all trials have ended, or the worker is stopped; what waits then stays in the queue."""
        with self.queue.holding() as hold:
            self.add_trials(worker.slots)
            hold(self._code)
            while True:
                worker.step()
                now = time.monotonic()
                if now - self._looked >= _LOOK_S or worker.is_idle:
                    self._looked = now
                    self.refresh()
                    shown(self)
                    busy = sum(trial.number not in self._ended for trial in self.trials)
                    if not worker.is_stopping and not self.search.is_over() and busy < worker.slots:
                        self.add_trials(worker.slots - busy)
                        worker.look()
                        continue
                    if worker.is_idle:
                        return
                pause(TICK_S)

    @property
    def ranked(self) -> list[Trial]:
        """The best first; those without a value last, in their order."""
        return rank(self.trials, self.options.mode)


def rank(trials: Sequence[Trial], mode: str) -> list[Trial]:
    """The best first; those without a value last."""
    sign = -1 if mode == "max" else 1
    return sorted(trials, key=lambda t: (t.mean is None, sign * (t.mean or 0.0), t.number))


def load_sweep(queue: Queue, name: str) -> tuple[list[Trial], str, str]:
    """The trials of a sweep as its jobs tell, the best first; its metric and mode."""
    trials: dict[int, Trial] = {}
    metric, mode = "", "max"
    for job in queue.table.jobs(group=name):
        if "number" not in job.trial:
            continue
        metric, mode = job.trial["metric"], job.trial["mode"]
        trial = trials.setdefault(job.trial["number"], Trial(job.trial["number"], job.trial["point"]))
        trial.jobs.append(job)
        if (value := value_of(queue.lab, job)) is not None:
            trial.values.append(value)
    return rank(list(trials.values()), mode), metric, mode


def value_of(lab: Lab, job: Job) -> float | None:
    """The best that a job's run reached in the metric of its sweep."""
    part = job.trial.get("mode", "max")
    with contextlib.suppress(LuxmeterError, OSError):
        if job.run and job.trial.get("metric"):
            found = _run(lab, job).metrics.get(job.trial["metric"], {}).get(part)
            return None if found is None or found != found else float(found)
    return None


def steps_of(lab: Lab, job: Job, metric: str) -> dict[int, float]:
    """What a run has logged of a metric so far, by step."""
    with contextlib.suppress(LuxmeterError, OSError):
        points = _run(lab, job).metric(metric)
        return {int(s): float(v) for s, v in zip(points.steps, points.values, strict=True) if v == v}
    return {}


def _run(lab: Lab, job: Job) -> Run:
    return Run(lab.folder / layout.RUNS / layout.named("run", job.run), lab.folder)


def _free_name(queue: Queue) -> str:
    used = {job.group for job in queue.table.jobs()}
    return next(name for n in range(1, len(used) + 2) if (name := f"sweep-{n}") not in used)
