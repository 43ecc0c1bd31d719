"""Run a case once with made-up inputs, here or in a worker, and tell what came out."""

from __future__ import annotations

from typing import Any

import torch

from luxmeter.operators.case import Case, case_from_json
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


def replay_in_worker(case: dict[str, Any], *, seed: int = 0, threads: int = 1) -> dict[str, Any]:
    """`replay` for `isolate`: the case as JSON, its outputs as text."""
    torch.set_num_threads(threads)
    read = case_from_json(case)
    grad = any(t.requires_grad for t in read.signature.tensors())
    with torch.set_grad_enabled(grad):
        return {"outputs": outputs_of(replay(read, seed=seed))}
