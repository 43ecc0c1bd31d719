"""`analyze`: everything a model costs, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.model.inputs import CallArguments, arguments_for, batch_of, explain, torch_dtype
from luxmeter.model.latency import batch_sizes_in, measured
from luxmeter.model.optimizers import OptimizerCost, cost_of_optimizer
from luxmeter.model.passes import Pass, run
from luxmeter.model.records import Memory, ModelCost, put_cost
from luxmeter.model.training import TrainingStep
from luxmeter.model.tree import module_rows, operator_rows, sums_of, unknown_rows
from luxmeter.model.watch import every_module, shapes_of
from luxmeter.operators import without_collecting
from luxmeter.store import without_results
from luxmeter.supported import check_torch


def analyze(
    model: nn.Module,
    inputs: Any = None,
    *,
    input_size: Any = None,
    input_dtype: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    backward: bool | None = None,
    optimizer: Any = "adamw",
    loss: Callable[[Any], torch.Tensor] | None = None,
    dtype: Any = None,
    device: str = "auto",
    latency: bool | Sequence[int] = False,
    name: str | None = None,
) -> ModelCost:
    """What `model` costs for one call: parameters, MACs, FLOPs, memory, and on request measured latency.

    `inputs` is what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments;
    `input_size` gives sizes instead (`input_dtype` their type). Nothing is computed: the model runs on tensors
    without data (`device="meta"`), and for real only where it looks at values (`device="auto"`) or on `"cpu"`.
    FLOPs are twice the MACs and element-wise work. `dtype` analyses the model as if its weights had that type.
    The forward pass is counted. `backward=True` counts a training step too, and takes four times as long;
    `cost.with_training()` does that later, and until then the result holds on to the model; `backward=False` leaves it
    out for good, and the optimizer. `optimizer`, a name, class or instance, adds its state; `loss` turns the result into
    what backward starts from, and counts the training step.
    `latency=True` measures forward passes in evaluation; `latency=[1, 8, 32]` for each of these batch sizes.
    The model, its gradients, hooks, buffers and mode, and the process's random state stay as they were.
    Inside a run the result is put into it.
    """
    check_torch()  # before an old one fails in the model, and the inputs are blamed
    started = time.perf_counter()
    inner = unwrapped(model)
    if device not in ("auto", "meta", "cpu"):
        raise UsageError(
            "bad-device", f"device={device!r} is not known here.", "Say 'auto', 'meta' or 'cpu'."
        )
    if latency and device == "meta":
        raise UsageError(
            "latency-without-data",
            "Latency was asked for with device='meta', which never computes.",
            "Leave the device out, or the latency.",
        )
    if loss is not None and (not callable(loss) or backward is False):
        raise UsageError(
            "bad-loss",
            f"loss={loss!r:.80} is no function."
            if not callable(loss)
            else "A loss was given, and backward=False counts no backward pass.",
            "Give a function of the model's result that returns a tensor with one element, or no loss.",
        )
    call = arguments_for(inner, inputs, kwargs=kwargs, input_size=input_size, input_dtype=input_dtype)
    wanted = None if dtype is None else torch_dtype(dtype)
    notes: list[str] = []
    with without_collecting():
        forward = _somewhere(inner, call, device, notes, training=False, dtype=wanted)
        step = None
        if backward is not False and optimizer is not None:
            step = cost_of_optimizer(forward.params.values(), optimizer)
        cost = _counted(inner, call, forward, step, name or type(inner).__name__, wanted, notes)
        if backward is not False:
            cost = replace(cost, training_step=TrainingStep(inner, call, wanted, loss, forward, step))
    if backward or loss is not None:
        with without_results():  # the whole is one
            cost = cost.with_training()
    if latency:
        sizes = () if latency is True else batch_sizes_in(latency)
        outer = inner if isinstance(inner, _FunctionModel) else model
        cost = measured(cost, inner, outer, call, batch_sizes=sizes, dtype=wanted)
    cost = replace(cost, seconds=time.perf_counter() - started)
    return put_cost(cost)


def unwrapped(model: Any) -> nn.Module:
    """The model inside torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if hasattr(model, "_orig_mod") and isinstance(model._orig_mod, nn.Module):
            model = model._orig_mod
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            break
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise UsageError(
            "not-a-model", f"{model.__name__} is a class, not a model.", f"Pass {model.__name__}(...)."
        )
    if callable(model):
        return _FunctionModel(model)
    raise UsageError(
        "not-a-model",
        f"analyze was given {type(model).__name__} {model!r:.80}.",
        "Pass a torch.nn.Module or a function of tensors.",
    )


class _FunctionModel(nn.Module):
    """A function of tensors, as a model without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = getattr(function, "_torchdynamo_orig_callable", function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _has_data(model: nn.Module) -> bool:
    tensors = [*model.parameters(), *model.buffers()]
    return not any(t.is_meta or type(t).__name__ == "FakeTensor" for t in tensors)


def _needs_data(model: nn.Module) -> bool:
    """Whether parts of the model cannot run without data: scripts and packed (quantised) weights."""
    modules = [module for _, module in every_module(model)]
    return any(
        issubclass(kind, torch.jit.ScriptModule) or kind.__module__.startswith("torch.ao.nn.q")
        for kind in set(map(type, modules))
    ) or any("_packed_params" in (own := m.__dict__) or "_packed_params" in own["_modules"] for m in modules)


def _somewhere(
    model: nn.Module,
    call: CallArguments,
    device: str,
    notes: list[str],
    *,
    training: bool,
    dtype: torch.dtype | None,
) -> Pass:
    """The forward pass on meta; for real where that is asked, or where values are needed and there are some."""
    on_meta = device == "meta" or (device == "auto" and not (_needs_data(model) and _has_data(model)))
    try:
        return run(model, call, training=training, on_meta=on_meta, dtype=dtype)
    except LuxmeterError:
        raise
    except Exception as problem:
        if not on_meta or device == "meta" or not _has_data(model):
            raise explain(model, problem) from problem
        first = problem
    try:
        result = run(model, call, training=training, on_meta=False, dtype=dtype)
    except LuxmeterError:
        raise
    except Exception as problem:
        raise explain(model, problem) from problem
    notes.append(
        f"ran for real: without data it stopped at {type(first).__name__}: {str(first).splitlines()[0][:120]}"
    )
    return result


def _counted(
    model: nn.Module,
    call: CallArguments,
    forward: Pass,
    step: OptimizerCost | None,
    name: str,
    dtype: torch.dtype | None,
    notes: list[str],
) -> ModelCost:
    """All that the forward pass tells."""
    sums = sums_of(forward.watch.root, backward=False)
    _, macs, flops, moved = sums.total[-1]
    weights = list({w.key: w for w in forward.params.values()}.values())
    weight_bytes = sum(w.size_bytes for w in weights)
    memory = Memory(
        weight_bytes=weight_bytes,
        buffer_bytes=forward.buffer_bytes,
        input_bytes=forward.input_bytes,
        gradient_bytes=sum(w.size_bytes for w in weights if w.trains),
        optimizer=step.name if step is not None else "",
        optimizer_bytes=step.state_bytes if step is not None else 0,
        forward_activation_bytes=forward.made_bytes,
        forward_peak_bytes=weight_bytes + forward.buffer_bytes + forward.input_bytes + forward.peak_bytes,
        trained_tensors=sum(w.trains for w in weights),
    )
    return ModelCost(
        name=name,
        params=sum(w.size for w in weights),
        trainable_params=sum(w.size for w in weights if w.trains),
        buffers=sum(dict(forward.buffers.values()).values()),
        macs=macs,
        flops=flops,
        backward_macs=None,
        backward_flops=None,
        optimizer_flops=step.flops if step is not None else None,
        moved_bytes=moved,
        memory=memory,
        modules=module_rows(forward, sums),
        operators=operator_rows(forward),
        unknown_ops=unknown_rows(forward),
        device="meta" if forward.on_meta else "cpu",
        dtype=str(dtype or _dtype_of(model)).removeprefix("torch."),
        batch=batch_of(call),
        input_shapes=shapes_of((call.args, call.kwargs)),
        output_shapes=forward.output_shapes,
        notes=tuple(notes),
    )


def _dtype_of(model: nn.Module) -> torch.dtype:
    found = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    return found or next((b.dtype for b in model.buffers() if b.is_floating_point()), torch.float32)


analyze_model = analyze
