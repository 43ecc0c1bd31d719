"""One run of a model on stand-ins: forward as in inference, or a training step. Counts come back, nothing stays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from luxmeter.model.counter import AttentionSeen, Counter, Unknown
from luxmeter.model.inputs import CallArguments, prepared
from luxmeter.model.leaves import Leaves
from luxmeter.model.lifetimes import Lifetimes
from luxmeter.model.optimizers import Weight
from luxmeter.model.standin import is_lazy, process_as_it_was, standing_in
from luxmeter.model.watch import NamedModules, Watch, every_module, shapes_of
from luxmeter.nested import tensors_of


@dataclass
class Pass:
    """What one run counted."""

    watch: Watch
    on_meta: bool
    unknown: dict[str, Unknown] = field(default_factory=dict)
    weight_bytes: int = 0
    buffer_bytes: int = 0
    input_bytes: int = 0
    made_bytes: int = 0
    peak_bytes: int = 0
    saved_bytes: int = 0
    output_shapes: tuple[tuple[int, ...], ...] = ()
    params: dict[str, Weight] = field(default_factory=dict)
    buffers: dict[str, tuple[int, int]] = field(default_factory=dict)
    has_gradients: bool = False
    modules: NamedModules = field(default_factory=list)  # every name of every module


def run(
    model: nn.Module,
    call: CallArguments,
    *,
    training: bool,
    on_meta: bool,
    dtype: torch.dtype | None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    train_mode: bool | None = None,
) -> Pass:
    """Run `model` once (and backward, if `training`) and count. The model and the process are left as they were."""
    options: dict[str, Any] = {
        "training": training, "on_meta": on_meta, "dtype": dtype, "loss": loss,
        "train_mode": train_mode,
    }  # fmt: skip
    try:
        return _run(model, call, fused=False, **options)
    except AttentionSeen:
        return _run(model, call, fused=True, **options)


def _run(
    model: nn.Module, call: CallArguments, *, training: bool, on_meta: bool, dtype: torch.dtype | None,
    loss: Callable[[Any], torch.Tensor] | None, train_mode: bool | None, fused: bool,
) -> Pass:  # fmt: skip
    watch = Watch()
    result = Pass(watch, on_meta)
    lifetimes = Lifetimes()
    in_training = training if train_mode is None else train_mode
    counter = Counter(watch, lifetimes, stop_at_attention=on_meta and not fused)
    leaves = Leaves(counter, modes=int(fused)) if on_meta and not training else None
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(process_as_it_was())
        twins = stack.enter_context(
            standing_in(
                model,
                watch,
                on_meta=on_meta,
                training=in_training,
                dtype=dtype,
                gradients=training,
                leaves=leaves,
            )
        )
        torch.set_grad_enabled(training)
        watch.begin()
        ready = prepared(call, on_meta=on_meta, dtype=dtype)
        if any(is_lazy(t) for t in twins.values()):  # they take their sizes from a first call
            with torch.no_grad(), Counter(Watch(), Lifetimes()):
                model(*ready.args, **ready.kwargs)
        weights = [t for t in twins.values() if type(t) is nn.Parameter or isinstance(t, nn.Parameter)]
        result.weight_bytes = lifetimes.leave_out(weights or model.parameters())
        result.buffer_bytes = lifetimes.leave_out(twins.values())
        result.input_bytes = lifetimes.leave_out(tensors_of((ready.args, ready.kwargs), in_objects=True))
        watch.begin()
        if fused:
            stack.enter_context(_FusedAttention())
        with counter:
            if leaves is not None:
                leaves.ready = True
            output = model(*ready.args, **ready.kwargs)
            result.output_shapes = shapes_of(output)
            result.saved_bytes = lifetimes.live_bytes
            result.made_bytes = lifetimes.made_bytes
            if training:
                result.has_gradients = _backward(output, watch, counter, loss)
        result.peak_bytes = lifetimes.peak_bytes
        result.unknown = counter.unknown
        _note_tensors(model, result)
    return result


def _note_tensors(model: nn.Module, result: Pass) -> None:
    """Sizes of parameters and buffers as they are after the run: lazy ones exist only now."""
    result.modules = every_module(model)
    params, buffers = result.params, result.buffers
    kinds = {type(module) for _, module in result.modules}
    scripts = {kind for kind in kinds if issubclass(kind, torch.jit.ScriptModule)}
    packed = {kind for kind in kinds if kind.__module__.startswith("torch.ao.nn.quantized")}
    for prefix, module in result.modules:
        dotted = f"{prefix}." if prefix else ""
        if type(module) in scripts:
            _note_script(module, dotted, result)
            continue
        attributes = module.__dict__
        for name, p in attributes["_parameters"].items():
            if p is not None:
                params[dotted + name] = Weight(id(p), tuple(p.shape), p.dtype, p.requires_grad)
        for name, b in attributes["_buffers"].items():
            if b is not None:
                buffers[dotted + name] = (id(b), b.numel())
        if type(module) in packed:
            _note_packed(module, dotted, result)


def _note_packed(module: nn.Module, dotted: str, result: Pass) -> None:
    """Quantised weights are packed away: methods give them."""
    for number, name in enumerate(("weight", "bias")):
        packed = getattr(module, name, None)
        value = packed() if callable(packed) else None
        if isinstance(value, torch.Tensor):
            key = id(module) + number
            result.params[dotted + name] = Weight(key, tuple(value.shape), value.dtype, False)


def _note_script(module: nn.Module, dotted: str, result: Pass) -> None:
    for name, p in module.named_parameters(recurse=False):
        result.params[dotted + name] = Weight(p.data_ptr() or id(p), tuple(p.shape), p.dtype, p.requires_grad)
    for name, b in module.named_buffers(recurse=False):
        result.buffers[dotted + name] = (b.data_ptr() or id(b), b.numel())


def _backward(
    output: Any, watch: Watch, counter: Counter, loss: Callable[[Any], torch.Tensor] | None
) -> bool:
    """Backward from the loss if there is one, else from every result that has a gradient."""
    target = loss(output) if loss is not None else _loss_in(output)
    ends = [
        t
        for t in ([target] if target is not None else tensors_of(output, in_objects=True))
        if t.requires_grad
    ]
    if not ends:
        return False
    counter.paused = True
    starts = [
        torch.empty(t.shape, dtype=t.dtype, device="meta") if t.is_meta else torch.ones_like(t) for t in ends
    ]
    counter.paused = False
    watch.backward = True
    torch.autograd.backward(ends, starts)
    watch.backward = False
    return True


def _loss_in(output: Any) -> torch.Tensor | None:
    found = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    return found if isinstance(found, torch.Tensor) and found.requires_grad else None


class _FusedAttention(TorchFunctionMode):
    """On meta, attention takes the fused way where the CPU would: else its peak memory would hold every score."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.scaled_dot_product_attention:
            fused = _fused(*args, **(kwargs or {}))
            if fused is not None:
                return fused
        return func(*args, **(kwargs or {}))


def _fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """The fused result, or None where the CPU's fused kernel does not apply."""
    three = (query, key, value)
    if not all(t.is_meta and t.dim() == 4 and t.numel() and t.stride(-1) == 1 for t in three) or dropout_p:
        return None
    if not query.dtype == key.dtype == value.dtype or not query.is_floating_point():
        return None
    if not query.shape[-1] == key.shape[-1] == value.shape[-1] or key.shape[:3] != value.shape[:3]:
        return None
    heads_fit = query.shape[1] == key.shape[1] or (enable_gqa and query.shape[1] % key.shape[1] == 0)
    if query.shape[0] != key.shape[0] or not heads_fit:
        return None
    if attn_mask is not None and (attn_mask.requires_grad or attn_mask.dim() not in (2, 4) or is_causal):
        return None
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.empty(attn_mask.shape, dtype=query.dtype, device="meta")  # what torch turns it into
    made: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return made
