"""`analyze`: everything a model costs, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.model.inputs import CallArguments, arguments_for, batch_of, dtype_named
from luxmeter.model.misfit import explain
from luxmeter.model.optimizers import OptimizerCost, Weight, cost_of_optimizer
from luxmeter.model.passes import Pass, run
from luxmeter.model.records import Memory, ModelCost
from luxmeter.model.tree import module_rows, operator_rows, sums_of, unknown_rows
from luxmeter.model.watch import shapes_of, tensors_in


def analyze(
    model: nn.Module,
    inputs: Any = None,
    *,
    input_size: Any = None,
    input_dtype: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    backward: bool = True,
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
    `backward` counts a training step too; `optimizer` is a name, class or instance whose state memory is added.
    `latency=True` measures forward passes in evaluation; `latency=[1, 8, 32]` for each of these batch sizes.
    The model, its gradients, hooks, buffers and mode, and the process's random state stay as they were.
    """
    started = time.perf_counter()
    inner = unwrapped(model)
    if device not in ("auto", "meta", "cpu"):
        raise UsageError(
            "bad-device", f"device={device!r} is not known here.", "Say 'auto', 'meta' or 'cpu'."
        )
    call = arguments_for(inner, inputs, kwargs=kwargs, input_size=input_size, input_dtype=input_dtype)
    wanted = None if dtype is None else dtype_named(dtype)
    notes: list[str] = []
    forward = _somewhere(inner, call, device, notes, training=False, dtype=wanted)
    training, step = None, None
    if backward:
        training = _training(inner, call, forward, notes, dtype=wanted, loss=loss)
        step = cost_of_optimizer(forward.params.values(), optimizer) if optimizer is not None else None
    cost = _assembled(inner, call, forward, training, step, name or type(inner).__name__, wanted, notes)
    if latency:
        from luxmeter.model.latency import measured

        sizes = () if latency is True else tuple(latency)
        outer = inner if isinstance(inner, _FunctionModel) else model
        cost = measured(cost, inner, outer, call, batch_sizes=sizes, dtype=wanted)
    object.__setattr__(cost, "seconds", time.perf_counter() - started)
    return cost


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
    return any(
        isinstance(m, torch.jit.ScriptModule)
        or "_packed_params" in m.__dict__
        or "_packed_params" in m._modules
        or type(m).__module__.startswith("torch.ao.nn.q")
        for m in model.modules()
    )


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


def _training(
    model: nn.Module,
    call: CallArguments,
    forward: Pass,
    notes: list[str],
    *,
    dtype: torch.dtype | None,
    loss: Any,
) -> Pass | None:
    """A training step on the same tensors as the forward pass; in evaluation mode if training mode does not run."""
    try:
        result = run(model, call, training=True, on_meta=forward.on_meta, dtype=dtype, loss=loss)
    except LuxmeterError:
        raise
    except Exception as problem:  # noqa: BLE001 - a user's model may raise anything; it is noted
        try:
            result = run(
                model, call, training=True, on_meta=forward.on_meta, dtype=dtype, loss=loss, train_mode=False
            )
        except Exception as second:  # noqa: BLE001 - likewise
            notes.append(
                f"backward is not counted: {type(second).__name__}: {str(second).splitlines()[0][:160]}"
            )
            return None
        notes.append(
            f"backward is counted in evaluation mode: in training mode {str(problem).splitlines()[0][:160]}"
        )
    if not result.has_gradients:
        notes.append("backward is not counted: no result of the model has a gradient")
        return None
    return result


def _assembled(
    model: nn.Module,
    call: CallArguments,
    forward: Pass,
    training: Pass | None,
    step: OptimizerCost | None,
    name: str,
    dtype: torch.dtype | None,
    notes: list[str],
) -> ModelCost:
    sums = sums_of(forward.watch.root, backward=False)
    back = sums_of(training.watch.root, backward=True) if training is not None else None
    _, macs, flops, moved = sums.total[-1]
    weights = list({w.key: w for w in forward.params.values()}.values())
    return ModelCost(
        name=name,
        params=sum(w.size for w in weights),
        trainable_params=sum(w.size for w in weights if w.trains),
        buffers=sum(dict(forward.buffers.values()).values()),
        macs=macs,
        flops=flops,
        backward_macs=back.total[-1][1] if back is not None else None,
        backward_flops=back.total[-1][2] if back is not None else None,
        optimizer_flops=step.flops if step is not None else None,
        moved_bytes=moved,
        memory=_memory(weights, forward, training, step),
        modules=module_rows(model, forward, sums, training, back),
        operators=operator_rows(forward, training),
        unknown_ops=unknown_rows(model, forward, training),
        device="meta" if forward.on_meta else "cpu",
        dtype=str(dtype or _dtype_of(model)).removeprefix("torch."),
        batch=batch_of(call),
        input_shapes=shapes_of((call.args, call.kwargs)),
        output_shapes=forward.output_shapes,
        notes=tuple(notes),
    )


def _memory(
    weights: list[Weight], forward: Pass, training: Pass | None, step: OptimizerCost | None
) -> Memory:
    weight_bytes = sum(w.size_bytes for w in weights)
    at_rest = weight_bytes + forward.buffer_bytes + forward.input_bytes
    state_bytes = step.state_bytes if step is not None else 0
    gradient_bytes = sum(w.size_bytes for w in weights if w.trains)
    peak = None
    if training is not None:
        stepping = gradient_bytes + (step.step_peak_bytes if step is not None else 0)
        peak = at_rest + state_bytes + max(training.peak_bytes, stepping)
    return Memory(
        weight_bytes=weight_bytes,
        buffer_bytes=forward.buffer_bytes,
        input_bytes=forward.input_bytes,
        gradient_bytes=gradient_bytes,
        optimizer=step.name if step is not None else "",
        optimizer_bytes=state_bytes,
        forward_activation_bytes=forward.made_bytes,
        forward_peak_bytes=at_rest + forward.peak_bytes,
        training_activation_bytes=training.saved_bytes if training is not None else None,
        training_peak_bytes=peak,
        trained_tensors=sum(w.trains for w in weights),
    )


def _dtype_of(model: nn.Module) -> torch.dtype:
    found = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    return found or next(
        (b.dtype for b in tensors_in(list(model.buffers())) if b.is_floating_point()), torch.float32
    )


analyze_model = analyze
