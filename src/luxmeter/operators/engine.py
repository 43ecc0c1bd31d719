"""Jobs done in warm workers within one budget: rows as they come, kept, shared out, and the noise floor at the end."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from luxmeter import environment, verdict
from luxmeter.isolate import Pool
from luxmeter.operators.backends import preload_of
from luxmeter.operators.jobs import TRACED, Job
from luxmeter.operators.options import BenchOptions
from luxmeter.operators.results import (
    MEASURED,
    BenchResult,
    Row,
    load_benchmark,
    row_of,
    unscaled,
    with_speedup,
)
from luxmeter.progress import track

_SHORTEST_S = 0.02  # of measuring, even when the budget is spent (less if there are very many cases)
# So many rows are measured a second time, for half as long, what differs being the machine's noise: how far it spreads must be
# known well enough that of hundreds of rows none is called a change by it.
_AGAIN_LEAST, _AGAIN_MOST, _AGAIN_SHARE = 3, 48, 0.25
_RESTART_S = 20.0  # with less time in all, the second look is not worth a new worker's start,
_START_S = 2.5  # which takes so long
_QUICK_S = 1.0  # what takes longer to prepare is not looked at again
_SLOW_TO_PREPARE_S = {"compile": 3.0, "onnxruntime": 2.5}  # until one has been seen


class Pools:
    """Workers of every interpreter that is needed, started when first needed."""

    def __init__(self, options: BenchOptions, stack: ExitStack, *, preload: str) -> None:
        self._options, self._stack, self._preload = options, stack, preload
        self._pools: dict[str, Pool] = {}
        if options.pool is not None:
            self._pools[options.python if isinstance(options.python, str) else sys.executable] = options.pool

    def of(self, backend: str) -> Pool:
        """The pool a backend's cases run in."""
        python = self._options.python_for(backend)
        if python not in self._pools:
            setup = [self._options.setup] if self._options.setup else []
            pool = Pool(
                python=python,
                preload=[self._preload, *preload_of(backend), *setup],
                env=self._options.env,
                paths=[str(Path.cwd())] if setup else [],
            )
            self._pools[python] = self._stack.enter_context(pool)
        return self._pools[python]

    def renew(self) -> None:
        """Go on in new processes: what a process happens to be given (addresses, pages) is part of the noise."""
        for pool in self._pools.values():
            if pool is not self._options.pool:
                pool.renew()

    def versions(self) -> dict[str, Any]:
        """What other interpreters measured with: for the record, as `environment.collect` tells it of this one."""
        others = {python: pool for python, pool in self._pools.items() if python != sys.executable}
        said = {
            python: pool.run("luxmeter.operators.work:versions", timeout_s=60).value
            for python, pool in others.items()
        }
        told: dict[str, Any] = {"env": dict(self._options.env or {}), "setup": self._options.setup}
        told = {name: value for name, value in told.items() if value}
        if not said:
            return told
        asked = self._options.python
        instead = said.get(asked) if isinstance(asked, str) else None
        return {**told, "interpreters": said, **(instead or {})}


class Engine:
    """Does jobs: `work` names the worker's function, which takes a job's arguments, `budget_s` and `target_ci`."""

    def __init__(
        self, work: str, options: BenchOptions, pools: Pools, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work, self._options, self._pools, self._clock = work, options, pools, clock
        self._deadline = clock() + options.budget_s
        self._besides: dict[str, list[float]] = defaultdict(list)  # backend -> seconds beside measuring
        self._left: Counter[str] = Counter()  # backend -> jobs still to do
        self._least_s = 0.0
        self._reserve = 0.0  # shares for the second look, half as long
        self._given: list[float] = []  # seconds of measuring, of each job
        self._most_s = math.inf
        self._restarts = options.budget_s >= _RESTART_S
        self._deadline -= _START_S * self._restarts

    def run(self, jobs: Sequence[Job], *, whole: tuple[int, int] | None = None) -> BenchResult:
        """A row for each job; after Ctrl-C, for those that were done. `whole` is the traced run that they are a part of."""
        kept = _Resumed(self._options.resume)
        machine = environment.collect()
        self._left.update(j.args["backend"] for j in jobs if j.key not in kept.rows and j.beforehand is None)
        self._least_s = min(_SHORTEST_S, self._options.budget_s / max(1, self._left.total()))
        self._reserve = 0.5 * _second_looks(
            sum(n for backend, n in self._left.items() if self._expected_s(backend) < _QUICK_S)
        )
        rows: list[Row] = []
        floor = None
        begin = self._clock()
        for backend in (b for b in self._left if preload_of(b)):
            self._pools.of(backend).start()  # a framework of its own: its import is nobody's measuring time
        self._deadline += self._clock() - begin
        progress = track(jobs, "benchmarking", quiet=self._options.quiet)
        try:
            for job in progress:
                progress.note(" ".join(str(job.base[k]) for k in ("op", "dtype", "backend")))
                known = kept.rows.get(job.key)
                row = (
                    _with_weight(known, job)
                    if known is not None
                    else row_of(job.base, job.beforehand or self._done(job))
                )
                rows.append(unscaled(row, job.unscaled) if job.unscaled else row)
                kept.keep(rows)
            if not progress.interrupted:
                rows, floor = self._second_look(jobs, rows)
            machine = {**machine, **self._pools.versions()}
        except KeyboardInterrupt:  # the second one: the case at hand is given up, what is done is not
            progress.interrupted = True
        except BaseException:
            kept.keep(rows, now=True)
            raise
        complete = len(rows) == len(jobs)
        result = BenchResult(tuple(with_speedup(rows)), machine, floor, complete, whole)
        kept.finish(result)
        return result

    def _done(self, job: Job) -> dict[str, Any]:
        found = self._measured(job)
        self._left[job.args["backend"]] -= 1
        return found

    def _measured(self, job: Job) -> dict[str, Any]:
        backend = job.args["backend"]
        share = min(self._share(), self._most_s)
        self._given.append(share)
        args = {**job.args, "budget_s": share, "target_ci": self._options.target_ci}
        outcome = self._pools.of(backend).run(
            job.work or self._work, args, timeout_s=self._options.patience_s
        )
        found: dict[str, Any] = {
            "status": outcome.status,
            "reason": outcome.reason.strip().partition("\n")[0],
        }
        if outcome.status == "ok":
            found = outcome.value
        self._besides[backend].append(max(0.0, outcome.taken_s - found.get("measured_s", 0.0)))
        return found

    def _share(self) -> float:
        """What is left of the budget, less what preparing the rest will take, over the jobs still to do."""
        beside = sum(n * self._expected_s(backend) for backend, n in self._left.items())
        waiting = (self._left.total() or 1) + self._reserve
        return max(self._least_s, (self._deadline - self._clock() - beside) / waiting)

    def _expected_s(self, backend: str) -> float:
        seen = self._besides[backend]
        return float(np.median(seen)) if seen else _SLOW_TO_PREPARE_S.get(backend, 0.05)

    def _second_look(self, jobs: Sequence[Job], rows: list[Row]) -> tuple[list[Row], float | None]:
        """The rows, some with the times of a second look at the end in a new process; the difference that 95 % stay under."""
        good = [i for i, (j, r) in enumerate(zip(jobs, rows, strict=True))
                if r.status in MEASURED and r.n > 1 and j.beforehand is None]  # fmt: skip
        if not good:
            return rows, None
        places = sorted({round(i) for i in np.linspace(0, len(good) - 1, _second_looks(len(good)))})
        cheap = [good[i] for i in places if self._expected_s(jobs[good[i]].args["backend"]) < _QUICK_S]
        found, gaps = list(rows), []
        self._reserve, self._most_s = 0.0, float(np.median(self._given)) if self._given else math.inf
        self._left = Counter(jobs[i].args["backend"] for i in cheap)
        if self._restarts:
            self._deadline += _START_S
            self._pools.renew()
            for backend in self._left:
                self._pools.of(backend).start()
        for i in cheap:
            second = self._done(jobs[i])
            if second.get("times_s"):
                found[i] = replace(rows[i], again_s=tuple(second["times_s"]))
                gaps.append(verdict.noise_floor([rows[i].times_s, second["times_s"]]))
        return found, float(np.quantile(gaps, 0.95, method="higher")) if gaps else None


def _with_weight(row: Row, job: Job) -> Row:
    """A row that was kept; how often the program ran it is told by this call's operators, whoever measured it."""
    told: dict[str, Any] = {name: job.base.get(name, "" if name == "traced_at" else None) for name in TRACED}
    return replace(row, **told)


def _second_looks(rows: int) -> int:
    return min(rows, max(_AGAIN_LEAST, min(_AGAIN_MOST, round(_AGAIN_SHARE * rows))))


class _Resumed:
    """The file behind `resume`: rows are never lost, and keeping them takes little of the time."""

    def __init__(self, path: str | Path | None) -> None:
        self._path = path
        self._all: dict[str, Row] = {}
        if path is not None and Path(path).exists():
            self._all = {row.key: row for row in load_benchmark(path)}
        self.rows = {k: r for k, r in self._all.items() if r.status in (*MEASURED, "unsupported", "differs")}
        self._next = 0.0

    def keep(self, rows: list[Row], *, now: bool = False) -> None:
        """Write all rows, those of earlier calls too; seldom, if there are many."""
        if self._path is None or (not now and time.monotonic() < self._next):
            return
        start = time.monotonic()
        self._write(BenchResult(tuple(rows), {}, None, complete=False))
        self._next = time.monotonic() + 20 * (time.monotonic() - start)

    def finish(self, result: BenchResult) -> None:
        """Write what this call found in full."""
        if self._path is not None:
            self._write(result)

    def _write(self, result: BenchResult) -> None:
        assert self._path is not None
        done = {row.key for row in result}
        others = tuple(row for key, row in self._all.items() if key not in done)
        replace(result, rows=(*result.rows, *others)).to_json(self._path)
