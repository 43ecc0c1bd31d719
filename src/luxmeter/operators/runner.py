"""Cases x scales x dtypes x backends, in warm workers, within one budget: `lux.bench`."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from luxmeter import environment, verdict
from luxmeter.errors import UsageError
from luxmeter.isolate import Pool
from luxmeter.operators.backends import BACKENDS
from luxmeter.operators.case import Case, Operators, case_from_json, case_to_json
from luxmeter.operators.dtypes import dtype_named
from luxmeter.operators.rows import BenchResult, Row, load_benchmark, row_of, with_speedup
from luxmeter.operators.scales import at_scale, check_names, sweep
from luxmeter.progress import track

_WORK = "luxmeter.operators.work:bench_one"
_SHORTEST_S = 0.02  # a case gets at least this, whatever the budget


class BenchSettings(TypedDict, total=False):
    """The settings of `bench`, see `BenchOptions`."""

    dtypes: Sequence[str]
    backends: Sequence[str]
    scales: Mapping[str, Sequence[int]] | None
    names: Mapping[str, int] | None
    budget_s: float
    target_ci: float
    backward: bool
    kernels: bool
    threads: int
    seed: int
    python: str
    timeout_s: float
    resume: str | Path | None
    quiet: bool
    pool: Pool | None


@dataclass(frozen=True)
class BenchOptions:
    """How to benchmark.

    `budget_s` is for the whole call. `scales` are sizes of named dimensions; `names` gives names of your own to
    recorded sizes. `python` is the interpreter whose torch is measured. `resume` is a JSON file that keeps every row
    as it is done: what it already holds is not measured again. `kernels` adds a row for each aten kernel. `pool` is
    one of your own whose workers stay warm for the next call.
    """

    dtypes: Sequence[str] = ("fp32",)
    backends: Sequence[str] = ("eager",)
    scales: Mapping[str, Sequence[int]] | None = None
    names: Mapping[str, int] | None = None
    budget_s: float = 60.0
    target_ci: float = 0.02
    backward: bool = False
    kernels: bool = False
    threads: int = 1
    seed: int = 0
    python: str = sys.executable
    timeout_s: float = 300.0
    resume: str | Path | None = None
    quiet: bool = False
    pool: Pool | None = None


@dataclass(frozen=True)
class _Job:
    base: dict[str, Any]
    args: dict[str, Any] = field(repr=False)


def bench(ops: Operators | Case, **settings: Unpack[BenchSettings]) -> BenchResult:
    """Measure operators: each case, at each scale, in each dtype, on each backend.

    A crash, a hang or an error is a row. Ctrl-C keeps what is done; `resume=FILE` goes on from there.

    >>> result = bench(load_operators("ops.jsonl").top(20), dtypes=["fp32", "bf16"])  # doctest: +SKIP
    """
    options = BenchOptions(**settings)
    ops = Operators([ops]) if isinstance(ops, Case) else ops
    _check(ops, options)
    if options.pool is not None:
        return _bench(ops, options, options.pool)
    with Pool(python=options.python, preload=["luxmeter.operators.work"]) as pool:
        return _bench(ops, options, pool)


def _bench(ops: Operators, options: BenchOptions, pool: Pool) -> BenchResult:
    known = _resumed(options)
    rows: list[Row] = []
    repeats: list[list[float]] = []
    deadline = time.monotonic() + options.budget_s
    jobs = list(_jobs(ops, options, pool))
    progress = track(jobs, "benchmarking", quiet=options.quiet)
    left = len(jobs)
    for job in progress:
        progress.note(f"{job.base['op']} {job.base['dtype']} {job.base['backend']}")
        if job.base["key"] in known:
            rows.append(known[job.base["key"]])
        else:
            share = max(_SHORTEST_S, (deadline - time.monotonic()) / left)
            found = _measured(pool, job, share, options)
            rows.append(row_of(job.base, found))
            if not repeats and rows[-1].status in ("ok", "doubtful"):
                # The same thing once more: what differs is the machine's noise.
                repeats = [
                    list(rows[-1].times_s),
                    _measured(pool, job, share / 2, options).get("times_s", []),
                ]
            _keep(rows, options)
        left -= 1
    floor = verdict.noise_floor(repeats) if len(repeats) == 2 and all(repeats) else None
    result = BenchResult(tuple(with_speedup(rows)), environment.collect(), floor, not progress.interrupted)
    if options.resume:
        result.to_json(options.resume)
    return result


def _jobs(ops: Operators, options: BenchOptions, pool: Pool) -> Iterator[_Job]:
    for case in ops:
        for sizes in sweep(options.scales):
            scaled = at_scale(case, sizes, names=options.names)
            for dtype in options.dtypes:
                for backend in options.backends:
                    yield _job(scaled, sizes, dtype, backend, options)
                if options.kernels:
                    found = pool.run(
                        "luxmeter.operators.work:kernels_of", {"case": case_to_json(scaled), "dtype": dtype},
                        timeout_s=options.timeout_s,
                    )  # fmt: skip
                    for kernel in found.value or []:
                        inner = case_from_json(kernel)
                        job = _job(inner, sizes, "recorded", "eager", options)
                        key = f"{job.base['key']}-{_short_hash([str(scaled), dtype])}"
                        base = {**job.base, "op": case.op, "kernel": inner.op, "dtype": dtype, "key": key}
                        yield _Job(base, job.args)


def _job(case: Case, sizes: dict[str, int], dtype: str, backend: str, options: BenchOptions) -> _Job:
    said = case_to_json(replace(case, count=1, total_ns=None, where=(), source=""))
    args = {"case": said, "dtype": dtype, "backend": backend, "backward": options.backward, "threads": options.threads,
            "seed": options.seed}  # fmt: skip
    key = _short_hash([args, sizes, options.python])
    base = {"op": case.op, "signature": str(case.signature), "scale": ",".join(f"{k}={v}" for k, v in sizes.items()),
            "dtype": dtype, "backend": backend, "mode": "forward+backward" if options.backward else "forward",
            "threads": options.threads, "key": key}  # fmt: skip
    return _Job(base, args)


def _short_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _measured(pool: Pool, job: _Job, share_s: float, options: BenchOptions) -> dict[str, Any]:
    args = {**job.args, "budget_s": share_s, "target_ci": options.target_ci}
    outcome = pool.run(_WORK, args, timeout_s=options.timeout_s)
    if outcome.status == "ok":
        found: dict[str, Any] = outcome.value
        return found
    return {
        "status": outcome.status,
        "reason": outcome.reason.strip().splitlines()[0] if outcome.reason else "",
    }


def _check(ops: Operators, options: BenchOptions) -> None:
    for dtype in options.dtypes:
        dtype_named(dtype)
    for backend in options.backends:
        BACKENDS.get(backend)
    if options.scales:
        check_names(ops, options.scales, options.names)
    if not len(ops):
        raise UsageError("nothing-to-bench", "There are no operators to benchmark.", "Loosen the filter.")


def _resumed(options: BenchOptions) -> dict[str, Row]:
    if options.resume is None or not Path(options.resume).exists():
        return {}
    return {
        row.key: row
        for row in load_benchmark(options.resume)
        if row.status in ("ok", "doubtful", "unsupported")
    }


def _keep(rows: list[Row], options: BenchOptions) -> None:
    if options.resume:
        BenchResult(tuple(rows), {}, None, complete=False).to_json(options.resume)
