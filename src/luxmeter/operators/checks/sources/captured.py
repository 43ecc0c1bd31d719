"""Operators that a trace captured, or a file of them holds: made-up inputs that fit what was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from luxmeter.operators.case import Case, case_from_json, case_to_json
from luxmeter.operators.checks.sources.opinfo import written_as
from luxmeter.operators.checks.trial import Trial
from luxmeter.operators.dtypes import in_dtype
from luxmeter.operators.inputs import Call, make_call


def cases(found: Iterable[Case]) -> list[dict[str, Any]]:
    """The recorded operators as cases of a check."""
    return [
        {
            "source": "operator",
            "api": case.op,
            "name": f"{case.op}({case.signature})",
            "case": case_to_json(case),
        }
        for case in found
    ]


def dtype_of(case: dict[str, Any], dtype: str, device: str) -> str:
    """Any dtype that operators run in."""
    return dtype


def trials_of(case: dict[str, Any], *, dtype: str, seed: int, device: str) -> Iterator[Trial]:
    """One trial: the recorded call with other values."""
    call = make_call(in_dtype(case_from_json(case["case"]), dtype), seed=seed)
    yield Trial(case["api"], call.function, call.args, call.kwargs, written=_written(case["api"], call))


def _written(api: str, call: Call) -> str:
    if call.args and isinstance(call.args[0], torch.nn.Module):
        return "(lambda module, *args, **kwargs: module(*args, **kwargs))"
    home = "torch." if api.startswith("Tensor.") else "torch.ops." if api.startswith("aten.") else ""
    return written_as(home + api, call.function)
