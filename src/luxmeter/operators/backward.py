"""What backward needs: the aten operators that the backward pass of each case runs, as cases of their own.

Autograd calls them from C++, where a trace of Python calls does not see them. So each case that was given something
to be differentiated is run once, forward and backward, with made-up inputs, in a worker; what backward calls is
written down with its shapes, counted as often as the case was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from luxmeter.isolate import Pool
from luxmeter.operators.case import Case, Operators, case_from_json, case_to_json

_TIMEOUT_S = 60.0


def backward_cases(ops: Operators, *, seed: int = 0, pool: Pool | None = None) -> Operators:
    """The operators of the backward passes; cases without a gradient, or that cannot be replayed, have none."""
    wanted = [case for case in ops if has_gradient(case)]
    if not wanted:
        return Operators()
    if pool is not None:
        return Operators(_found(wanted, seed, pool))
    with Pool(preload=["luxmeter.operators.work"]) as own:
        return Operators(_found(wanted, seed, own))


def has_gradient(case: Case) -> bool:
    """Whether any input or parameter of the case wanted a gradient."""
    return any(t.requires_grad for t in case.signature.tensors())


def _found(cases: list[Case], seed: int, pool: Pool) -> Iterator[Case]:
    items = ({"case": case_to_json(case), "backward": True, "forward": False, "seed": seed} for case in cases)
    for number, outcome in pool.map("luxmeter.operators.work:kernels_of", items, timeout_s=_TIMEOUT_S):
        case = cases[number]
        for said in outcome.value or ():
            inner = case_from_json(said)
            yield replace(
                inner, count=inner.count * case.count, where=case.where, source=f"backward of {case.op}"
            )
