"""What a benchmark has to do: cases x scales x dtypes x devices x threads x backends, one job each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.isolate import Outcome, Pool
from luxmeter.operators.backends import BACKENDS
from luxmeter.operators.case import Case, Operators, case_from_json, case_to_json
from luxmeter.operators.dtypes import float_dtype
from luxmeter.operators.options import BenchOptions
from luxmeter.operators.scales import Scaled, check_names, scaled, sweep

_FEW_LINES = 3  # that a row names
TRACED = ("traced_calls", "traced_ns", "traced_at")  # of a whole operator; its kernels are parts of it


@dataclass(frozen=True)
class Job:
    """One row to be: what names it, and what the worker needs. `beforehand` is what it gives, where that is known already.

    `work` names the worker's function, where it is another one than the other jobs'. `unscaled` says which of the sizes that were asked for it does not have.
    """

    base: dict[str, Any]
    args: dict[str, Any] = field(repr=False)
    beforehand: dict[str, Any] | None = None
    unscaled: str = ""
    work: str = ""

    @property
    def key(self) -> str:
        """The same for the same work in the same interpreter."""
        return str(self.base["key"])


def check(ops: Operators, options: BenchOptions) -> None:
    """Refuse what cannot be measured before anything is."""
    for dtype in options.dtypes:
        float_dtype(dtype)
    for backend in options.backends:
        BACKENDS.get(backend)
        options.python_for(backend)
    for count in options.thread_counts:
        if type(count) is not int or count < 1:
            raise UsageError(
                "bad-threads", f"Cannot run with {count!r} threads.", "Give whole numbers above 0."
            )
    if options.pool is not None and (options.env or options.setup):
        raise UsageError(
            "bad-bench-option",
            "env and setup are for workers that bench() starts; pool= has workers already.",
            "Give them to the pool: Pool(env=..., preload=[...]).",
        )
    if options.scales:
        check_names(ops, options.scales, options.dims)
    if not len(ops):
        raise UsageError("nothing-to-bench", "There are no operators to benchmark.", "Loosen the filter.")


def jobs_of(ops: Operators, options: BenchOptions, pool: Pool | None) -> Iterator[Job]:
    """All jobs, those of one case together. With `kernels`, `pool` finds each case's kernels.

    A job's scale names only the dimensions that its case has; combinations that differ in others are one job. Cases that have become
    equal at a scale are one job there, counted together, as equal ones of a trace are.
    """
    for name, found in _at_scales(ops, options):
        for job in _jobs_at(found.case, name, found.sizes, options, None if found.failed else pool):
            known = {"status": "unscaled", "reason": found.failed} if found.failed else job.beforehand
            yield replace(job, beforehand=known, unscaled=found.lacking)


def _at_scales(ops: Operators, options: BenchOptions) -> list[tuple[str, Scaled]]:
    """Every case at every scale that it has, each once, with the name of the (first) case that it was."""
    together: dict[Any, tuple[str, Scaled]] = {}
    for case in ops:
        name = short_hash(_plain(case))[:8]
        seen: set[tuple[tuple[str, int], ...]] = set()
        for wanted in sweep(options.scales):
            found = scaled(case, wanted, dims=options.dims)
            sizes = tuple(found.sizes.items())
            if sizes in seen:
                continue
            seen.add(sizes)
            key = (found.case.identity, sizes, found.lacking, found.failed)
            if key in together:
                name_of_first, first = together[key]
                both = Operators([first.case, found.case])[0]
                together[key] = name_of_first, replace(first, case=both)
            else:
                together[key] = name, found
    return list(together.values())


def _jobs_at(
    case: Case, name: str, sizes: dict[str, int], options: BenchOptions, pool: Pool | None
) -> Iterator[Job]:
    for dtype in options.dtypes:
        for device in options.devices:
            for threads in options.thread_counts:
                for backend in options.backends:
                    yield _job(case, name, sizes, dtype, backend, device, threads, options)
                if pool is not None and options.kernels:
                    yield from _kernel_jobs(pool, case, name, sizes, dtype, device, threads, options)


def _job(
    case: Case, name: str, sizes: dict[str, int], dtype: str, backend: str, device: str, threads: int,
    options: BenchOptions,
) -> Job:  # fmt: skip
    said = _plain(case)
    args = {"case": said, "dtype": dtype, "backend": backend, "backward": options.backward, "device": device,
            "threads": threads, "seed": options.seed}  # fmt: skip
    where: list[Any] = [options.python_for(backend)]
    where += [dict(options.env or {}), options.setup] if options.env or options.setup else []
    key = short_hash([args, sizes, *where])
    base = {"op": case.op, "signature": str(case.signature), "scale": ",".join(f"{k}={v}" for k, v in sizes.items()),
            "dtype": dtype, "backend": backend, "mode": "forward+backward" if options.backward else "forward",
            "device": device, "threads": threads, "case": name, "key": key,
            "traced_calls": case.count, "traced_ns": case.total_ns, "traced_at": ", ".join(case.lines[:_FEW_LINES])}  # fmt: skip
    return Job(base, {**args, "case": {**said, "outputs": case.outputs}})


def _kernel_jobs(
    pool: Pool, case: Case, name: str, sizes: dict[str, int], dtype: str, device: str, threads: int,
    options: BenchOptions,
) -> Iterator[Job]:  # fmt: skip
    """A job for each aten kernel that one call runs (backward's too, if that is measured), and for each of ONNX Runtime's."""
    asked = {"case": case_to_json(case), "dtype": dtype, "seed": options.seed}
    outcome = pool.run(
        "luxmeter.operators.work:kernels_of",
        {**asked, "backward": options.backward},
        timeout_s=options.patience_s,
    )
    whole = _job(case, name, sizes, dtype, "eager", device, threads, options)
    yield from aten_kernel_jobs(whole, outcome)
    if "onnxruntime" in options.backends and not options.backward:
        own = _job(case, name, sizes, dtype, "onnxruntime", device, threads, options)
        outcome = pool.run(
            "luxmeter.operators.work:onnx_kernels_of",
            {**asked, "threads": threads},
            timeout_s=options.patience_s,
        )
        yield from onnx_kernel_jobs(own, outcome)


def aten_kernel_jobs(whole: Job, outcome: Outcome) -> Iterator[Job]:
    """A job for each aten kernel that the worker found in one call of `whole`; equal ones are one, with their number."""
    mark = short_hash([whole.key, "kernel"])
    if outcome.status != "ok":
        yield _without_kernels(whole, mark, outcome)
        return
    base = {k: v for k, v in whole.base.items() if k not in ("mode", *TRACED)}
    for kernel in Operators(map(case_from_json, outcome.value)):
        args = {"case": _plain(kernel), "dtype": "recorded", "backend": "eager", "backward": False,
                "device": base.get("device", "cpu"), "threads": base["threads"], "seed": whole.args.get("seed", 0)}  # fmt: skip
        named = {"kernel": kernel.op, "calls": kernel.count, "signature": str(kernel.signature),
                 "key": f"{short_hash([args, base['scale']])}-{mark}"}  # fmt: skip
        yield Job({**base, **named}, args, work="luxmeter.operators.work:bench_one")


def onnx_kernel_jobs(whole: Job, outcome: Outcome) -> Iterator[Job]:
    """A row for each kernel of ONNX Runtime, as its own profiler timed it in the runs of the whole graph."""
    mark = short_hash([whole.key, "kernel"])
    if outcome.status != "ok" or isinstance(outcome.value, str):
        yield _without_kernels(whole, mark, outcome)
        return
    for number, found in enumerate(outcome.value):
        named = {k: found.pop(k) for k in ("kernel", "calls", "signature")}
        base = {k: v for k, v in whole.base.items() if k not in TRACED}
        yield Job({**base, **named, "key": f"{mark}-{number}"}, {}, found)


def _without_kernels(whole: Job, mark: str, outcome: Outcome) -> Job:
    said = {"status": outcome.status, "reason": outcome.reason.strip().partition("\n")[0]}
    if isinstance(outcome.value, str):
        said = {"status": "unsupported", "reason": outcome.value}
    base = {k: v for k, v in whole.base.items() if k not in TRACED}
    return Job({**base, "kernel": "(its kernels)", "key": mark}, {}, said)


def _plain(case: Case) -> dict[str, Any]:
    """What the operator is given, without how often and from where, and what it gave."""
    return case_to_json(replace(case, count=1, total_ns=None, where=(), lines=(), source="", outputs=None))


def short_hash(value: Any) -> str:
    """Sixteen characters that name a plain value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
