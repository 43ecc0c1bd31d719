"""Run a case once with made-up inputs, and tell what came out."""

from __future__ import annotations

from typing import Any

from luxmeter.operators.case import Case
from luxmeter.operators.inputs import make_call
from luxmeter.operators.rebuild import check_outputs
from luxmeter.signature import describe, tensors_in


def replay(case: Case, *, seed: int = 0, device: str = "cpu") -> Any:
    """The operator's result on inputs made for this case."""
    result = make_call(case, seed=seed, device=device).run()
    check_outputs(case, result)
    return result


def outputs_of(result: Any) -> list[str]:
    """The shapes and dtypes of a result's tensors, in order: `f32[2,3]`."""
    return [str(t) for t in tensors_in(describe((result,)).args)]
