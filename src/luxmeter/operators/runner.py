"""Cases x scales x dtypes x backends, in warm workers, within one budget: `lux.bench`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Unpack

from luxmeter.operators.case import Case, Operators
from luxmeter.operators.engine import Engine, Pools
from luxmeter.operators.jobs import check, jobs_of
from luxmeter.operators.options import BenchSettings, make_options
from luxmeter.operators.results import BenchResult, put_benchmark
from luxmeter.supported import check_torch


def bench(ops: Operators | Case, **settings: Unpack[BenchSettings]) -> BenchResult:
    """Measure operators: each case, at each scale, in each dtype, on each backend.

    Settings are the fields of `BenchOptions`. A crash, a hang or an error is a row. Ctrl-C keeps what is done;
    `resume=FILE` goes on from there. Inside a run the result is put into it.

    >>> result = bench(load_operators("ops.jsonl").top(20), dtypes=["fp32", "bf16"])  # doctest: +SKIP
    """
    check_torch()
    options = make_options(settings)
    ops = Operators([ops]) if isinstance(ops, Case) else ops
    check(ops, options)
    with ExitStack() as stack:
        pools = Pools(options, stack, preload="luxmeter.operators.work")
        engine = Engine("luxmeter.operators.work:bench_one", options, pools)
        jobs = list(jobs_of(ops, options, pools.of("eager") if options.kernels else None))
        result = engine.run(jobs, whole=ops.known_whole)
    return put_benchmark(result)
