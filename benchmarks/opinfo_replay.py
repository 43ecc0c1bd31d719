"""How many of torch's own operator samples are captured by a trace, rebuilt from the saved form alone, and replayed.

Every float32 sample of torch.testing's OpInfo database that runs by itself is called once inside a trace. Its
operators are saved and loaded, and replayed with made-up inputs: right is what gives the same output shapes and dtypes.

    python benchmarks/opinfo_replay.py [--most 40] [--ops add,conv2d]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

import luxmeter as lux
from luxmeter.operators.case import Case, Operators, load_operators
from luxmeter.operators.inputs import outputs_of, replay


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=40, help="samples of one operator at most")
    parser.add_argument("--ops", help="only these, with commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.perf_counter()
    samples = [s for s in _samples(options.most, options.ops) if s is not None]
    print(f"{len(samples)} samples of {len({s[0] for s in samples})} operators run by themselves")
    with lux.trace(inside=False) as t:
        for number, (_, function, args, kwargs, _) in enumerate(samples):
            with t.section(str(number)), torch.no_grad():
                function(*args, **kwargs)
    cases = _cases_by_section(t)
    with tempfile.TemporaryDirectory() as folder:
        flat = [case for found in cases.values() for case in found]
        loaded = load_operators(Operators(flat).save(Path(folder) / "ops.jsonl"))
    saved = {repr(c.identity): c for c in loaded}  # by text: nan is not equal to itself
    right = captured = 0
    wrong: Counter[str] = Counter()
    why: dict[str, str] = {}
    for number, (name, _, _, _, expected) in enumerate(samples):
        found = cases.get(number, [])
        captured += bool(found)
        problem = _problem([saved[repr(c.identity)] for c in found], expected) if found else "not captured"
        if problem:
            wrong[name] += 1
            why.setdefault(name, problem)
        else:
            right += 1
    for name, n in wrong.most_common():
        print(f"  {name}: {n} ({why[name]})")
    print(f"captured {captured / len(samples):.2%}, replayed with the same shapes and dtypes {right / len(samples):.2%} "
          f"({right} of {len(samples)}) in {time.perf_counter() - start:.0f} s")  # fmt: skip


def _samples(most: int, only: str | None) -> Any:
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = set(only.split(",")) if only else None
    homes = _homes()
    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu") or (wanted and op.name not in wanted):
            continue
        try:
            found = list(op.sample_inputs("cpu", torch.float32))[:most]
        except Exception:
            continue
        for s in found:
            args, kwargs = (s.input, *s.args), dict(s.kwargs)
            try:
                with torch.no_grad():
                    yield op.name, _late(op.op, homes), args, kwargs, outputs_of(op.op(*args, **kwargs))
            except Exception:
                continue  # not one that runs by itself


def _homes() -> dict[int, tuple[Any, str]]:
    """Identity of a function of torch -> where a user's program would read it."""
    spaces = [
        torch.nn.functional,
        torch.linalg,
        torch.fft,
        torch.special,
        torch.signal.windows,
        torch,
        torch.Tensor,
    ]
    found: dict[int, tuple[Any, str]] = {}
    for space in spaces:
        for name in dir(space):
            value = getattr(space, name, None)
            if callable(value):
                found.setdefault(id(value), (space, name))
    return found


def _late(function: Any, homes: dict[int, tuple[Any, str]]) -> Any:
    """The database holds functions it took before the trace began; a program reads them by name when it calls."""
    home = homes.get(id(function))
    if home is None:
        return function
    return lambda *args, **kwargs: getattr(*home)(*args, **kwargs)


def _cases_by_section(t: Any) -> dict[int, list[Case]]:
    """Number of the sample -> the cases recorded in its section, in order."""
    from luxmeter.operators.extract import case_of

    recording = t.result.recording
    e = recording.events
    cases: dict[int, list[Case]] = {}
    for i in np.argsort(e["start_ns"], kind="stable").tolist():
        section, signature = int(e["section"][i]), int(e["signature"][i])
        if not section or not signature or e["flags"][i] & 35:
            continue
        case = case_of(recording, signature)
        if case is not None:
            cases.setdefault(int(recording.callables[section].name), []).append(case)
    return cases


def _problem(cases: list[Case], expected: list[str]) -> str:
    """Empty if all calls of a sample replay and one of them gives what the sample gave."""
    outputs = []
    for case in cases:
        try:
            with torch.no_grad():
                outputs.append(outputs_of(replay(case)))
        except Exception as error:
            return f"{case.op}: {type(error).__name__}: {str(error)[:100]}"
    # Some samples give a part of what their operator gave.
    return (
        ""
        if any(made[: len(expected)] == expected for made in outputs)
        else f"{outputs[-1]} instead of {expected}"
    )


if __name__ == "__main__":
    main()
