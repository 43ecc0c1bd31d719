"""Is a check to be trusted? No false failure of the CPU against itself, and a small fault found in operators drawn by a seed.

    python benchmarks/check_quality.py clean [--rounds 3] [--inputs 0] all of torch's OpInfo database through luxmeter.operators.check
    python benchmarks/check_quality.py faults [--draw 50] [--seed 18] each with a relative error of 1e-3, 0 draws all of them

`clean` also says what was excused, how long it took and how much processor time. `faults` multiplies every floating-point
result of the operator by 1.001 in float32, one operator at a time, and asks whether any sample of any round then fails.
Drawn are operators with a floating-point result that neither draw random numbers nor give out unfilled memory.
"""

from __future__ import annotations

import argparse
import functools
import random
import resource
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

import torch

from luxmeter.operators import check
from luxmeter.operators.checks.excuses import DRAWS, REFUSED, UNFILLED
from luxmeter.operators.checks.judging import Where, judge
from luxmeter.operators.checks.runner import seed_of
from luxmeter.operators.checks.sources import opinfo
from luxmeter.operators.checks.trial import Trial

ERROR = 1e-3
SEED = 18


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["clean", "faults"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--draw", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--inputs", type=int, default=0, help="seed of the inputs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.exit(clean(options.rounds, options.inputs) if options.what == "clean" else faults(options))


def clean(rounds: int, seed: int) -> int:
    """The CPU against itself: nothing may fail."""
    start = time.perf_counter()
    result = check("opinfo", rounds=rounds, seed=seed)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(result)
    print(
        f"{sum(r.samples for r in result)} samples of {len(result)} cases in {time.perf_counter() - start:.0f} s, "
        f"{used.ru_utime + used.ru_stime:.0f} s of processor time, {len(result.wrong())} wrong"
    )
    return bool(result.wrong())


def faults(options: argparse.Namespace) -> int:
    """How many of the drawn operators are found to be wrong."""
    torch.set_num_threads(1)
    cases = opinfo.cases()
    random.Random(options.seed).shuffle(cases)
    found, missed = [], []
    for case in cases:
        if options.draw and len(found) + len(missed) == options.draw:
            break
        answer = is_found(case, rounds=options.rounds)
        if answer is not None:
            (found if answer else missed).append(case["name"])
    print(
        f"seed {options.seed}: {len(found)} of {len(found) + len(missed)} found; not found: {', '.join(missed) or 'none'}"
    )
    return bool(missed)


def is_found(case: dict[str, Any], *, rounds: int) -> bool | None:
    """Whether the fault is found in one of the rounds; None: there is nothing to put it into."""
    dtype = opinfo.dtype_of(case, "float32", "cpu")
    if dtype not in ("float32", "complex64"):
        return None
    touched = False
    for number in range(rounds):
        seed = seed_of(0, case["name"], number)
        for at, trial in enumerate(opinfo.trials_of(case, dtype=dtype, seed=seed, device="cpu")):
            marks: list[bool] = []
            judged = judge(faulty(trial, marks), Where(), seed=seed + at)
            if judged.excused in (DRAWS, UNFILLED):
                return None
            touched |= bool(marks) and judged.excused != REFUSED
            if judged.status == "failed":
                return True
    return False if touched else None


def faulty(trial: Trial, marks: list[bool]) -> Trial:
    """The trial with results a little too large in single precision."""
    return replace(trial, function=functools.partial(_wrong, trial.function, marks))


def _wrong(function: Any, marks: list[bool], *args: Any, **kwargs: Any) -> Any:
    return _scaled(function(*args, **kwargs), marks)


def _scaled(value: Any, marks: list[bool]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype in (torch.float32, torch.complex64) and value.layout is torch.strided:
            marks += [True] * bool((value.detach().isfinite() & (value.detach() != 0)).any())
            return value * (1 + ERROR)
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_scaled(v, marks) for v in value))
    if type(value) in (list, tuple):
        return type(value)(_scaled(v, marks) for v in value)
    if hasattr(value, "n_fields"):  # torch.return_types
        return tuple(_scaled(v, marks) for v in value)
    return value


if __name__ == "__main__":
    main()
