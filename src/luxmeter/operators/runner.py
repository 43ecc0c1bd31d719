"""Cases x scales x dtypes x backends, in warm workers, within one budget: `lux.bench`; and on two sides in turns: `bench_against`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Unpack

from luxmeter.errors import UsageError
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.engine import Engine, Pools
from luxmeter.operators.jobs import check, jobs_of
from luxmeter.operators.options import BenchSettings, make_options, other_side
from luxmeter.operators.results import BenchResult, put_benchmark
from luxmeter.operators.turns import FIND, Side, TurnsEngine
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


def bench_against(
    ops: Operators | Case, against: BenchSettings, *, find: float = FIND, **settings: Unpack[BenchSettings]
) -> tuple[BenchResult, BenchResult]:
    """Measure operators twice in turns, as `settings` say and with what `against` says instead: two benchmarks that know each other.

    `diff_benchmarks` compares them turn by turn, which finds changes that a noisy machine hides from two benchmarks taken one after the
    other. The sides may differ in python, env, setup, dtypes, backends, device and threads. Rounds go on, until the budget is used, for
    the rows that may still have changed by `find`; with 0 for all.

    >>> old, new = bench_against(ops, {"python": "new/bin/python"}, budget_s=300)  # doctest: +SKIP
    """
    check_torch()
    if not 0 <= find < 1:
        raise UsageError(
            "bad-find", f"A change of {find!r} cannot be looked for.", "Give a share, such as 0.05."
        )
    options_a = make_options(settings)
    ops = Operators([ops]) if isinstance(ops, Case) else ops
    with ExitStack() as stack:
        sides = []
        for options in (options_a, other_side(options_a, against)):
            check(ops, options)
            pools = Pools(options, stack, preload="luxmeter.operators.work")
            sides.append(Side(options, pools, list(jobs_of(ops, options, None))))
        _check_alike(*sides)
        found = TurnsEngine((sides[0], sides[1]), find=find).run(whole=ops.known_whole)
    return put_benchmark(found[0]), put_benchmark(found[1])


def _check_alike(a: Side, b: Side) -> None:
    """Refuse sides of which one does more than the other."""
    if len(a.jobs) != len(b.jobs):
        raise UsageError(
            "bad-against",
            f"One side has {len(a.jobs)} rows and the other {len(b.jobs)}.",
            "Give as many dtypes, backends, devices and numbers of threads on both.",
        )
