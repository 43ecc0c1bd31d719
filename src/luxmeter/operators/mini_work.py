"""The worker's part of `bench_model`: build the model, make its inputs, measure."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import torch

from luxmeter.operators.agreeing import Judged, judge, restorer
from luxmeter.operators.backends import BACKENDS, Unsupported
from luxmeter.operators.backends.onnxruntime import kernels
from luxmeter.operators.dtypes import float_dtype
from luxmeter.operators.inputs import Call
from luxmeter.operators.work import TORCH_BACKENDS, aten_kernels, costs_of, differences, timed


def bench_mini(
    place: dict[str, str], init: list[int], shapes: list[list[int]], integers: dict[str, int], dtype: str, backend: str,
    budget_s: float, target_ci: float = 0.02, threads: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Measure one model at one scale in one configuration."""
    torch.set_num_threads(threads)
    with torch.no_grad():
        call, reference = _call(place, init, shapes, integers, dtype)
        found = costs_of(call)
        try:
            prepared = BACKENDS.get(backend)().prepare(call, backward=False, threads=threads)
            errors = differences(prepared.outputs(), reference)
            judged = (
                Judged()
                if backend == "eager"
                else judge(call, prepared, call.run, restorer(call), seed=0, exact=reference)
            )
            if judged.random:
                errors = {}
            if judged.differs:
                return {
                    **found,
                    **errors,
                    "status": "differs",
                    "reason": judged.differs,
                    "prepare_s": prepared.prepare_s,
                }
            memory = backend in TORCH_BACKENDS
            times = timed(prepared, [judged.note], budget_s=budget_s, target_ci=target_ci, memory=memory)
        except Unsupported as reason:
            return {**found, "status": "unsupported", "reason": str(reason)}
    return {**found, **errors, **times}


def kernels_of_mini(
    place: dict[str, str], init: list[int], shapes: list[list[int]], integers: dict[str, int], dtype: str, threads: int = 1,
    backend: str = "eager",
) -> list[dict[str, Any]] | str:  # fmt: skip
    """The aten kernels of one call, as cases; of ONNX Runtime, its kernels with their times. Text is why there are none."""
    torch.set_num_threads(threads)
    with torch.no_grad():
        call, _ = _call(place, init, shapes, integers, dtype)
        if backend == "eager":
            return aten_kernels(call)
        if backend != "onnxruntime":
            return f"{backend} fuses kernels: they cannot be told apart"
        try:
            return kernels(call, threads=threads)
        except Unsupported as reason:
            return str(reason)


def _call(
    place: dict[str, str], init: list[int], shapes: list[list[int]], integers: dict[str, int], dtype: str
) -> tuple[Call, Any]:
    """The model in `dtype` with its inputs, and what it gives in fp32."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed imports all of dynamo
    wanted = getattr(torch, float_dtype(dtype))
    model = _class(place)(*init)
    inputs = [
        torch.randint(0, integers[str(i)], shape) if str(i) in integers else torch.rand(shape)
        for i, shape in enumerate(shapes)
    ]
    model = model.eval() if isinstance(model, torch.nn.Module) else model
    reference = model(*inputs)
    if isinstance(model, torch.nn.Module):
        model = model.to(wanted)
    return Call(_run, (model, *(t.to(wanted) if t.is_floating_point() else t for t in inputs)), {}), reference


def _run(model: Any, *inputs: Any) -> Any:
    return model(*inputs)


def _class(place: dict[str, str]) -> Any:
    if "source" not in place:
        found: Any = importlib.import_module(place["module"])
        for part in place["name"].split("."):
            found = getattr(found, part)
        return found
    # The user's own class, sent by the user's own process: its text is code as any import would be.
    module = types.ModuleType("luxmeter_users_script")
    sys.modules[module.__name__] = module
    exec(compile(place["source"], "<script>", "exec"), module.__dict__)  # noqa: S102
    return getattr(module, place["name"])
