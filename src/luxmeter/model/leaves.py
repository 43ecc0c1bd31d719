"""Layers of torch that were seen before: with the same settings and shapes they cost and make the same.

A network calls few kinds of layers many times. What one did on tensors without data is remembered by all that its
forward looks at, and the next like it is not run: only its result is made. Anything out of the usual (gradients, hooks,
other modes, own forwards, weights that are not plain parameters) takes the ordinary way.

Without it an analysis of ResNet-50 on meta is about ten times as fast as torchinfo's run, the goal, and misses it in some
sittings; with it there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from luxmeter.flops import version
from luxmeter.model.counter import Counter
from luxmeter.model.watch import CallNode, shapes_of

# These are torch's own and may go: then everything takes the ordinary way.
_below_modes: Any = getattr(torch._C, "_DisableTorchDispatch", None)
_dispatch_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", None)
_function_modes: Any = getattr(torch._C, "_len_torch_function_stack", None)
_autocast: Any = getattr(torch._C, "_is_any_autocast_enabled", None)
_transforms: Any = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
ENABLED = all((_below_modes, _dispatch_modes, _function_modes, _autocast, _transforms))
_KEPT_MOST = 20_000
_PLAIN = (torch.Tensor, nn.Parameter)
_FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16, torch.float64))
_META = torch.device("meta")
_NOTHING: tuple[Any, ...] = ()
# Attributes of an instance that would take the place of what the class or the parameters give.
_SHADOWS = frozenset(
    ("forward", "_conv_forward", "_check_input_dim", "weight", "bias", "running_mean", "running_var")
)


class _Layer(NamedTuple):
    """What the forward of one class of layers looks at, beside its input."""

    settings: Callable[[dict[str, Any]], Any]
    params: tuple[str, ...]
    buffers: tuple[str, ...]
    only_in_evaluation: bool  # in training it changes buffers or is random
    methods: tuple[
        tuple[Any, str, Any], ...
    ]  # (holder, name, what is there): someone may put others in their place

    def is_unchanged(self) -> bool:
        return all(getattr(holder, name, None) is was for holder, name, was in self.methods)


class _Seen(NamedTuple):
    """What a layer did."""

    form: Any  # (shape, stride) of its result; None: the result is what came in
    dtype: Any
    size_bytes: int
    made_bytes: int
    rise_bytes: int  # how far memory rose above what was alive before
    costs: tuple[tuple[tuple[str, bool], tuple[int, int, int, int]], ...]
    shapes: Any


_seen: dict[Any, _Seen | None] = {}  # None: it cannot be told from outside
_seen_version = -1


class Leaves:
    """Stands between a model's layers and their forwards during one pass; `ready` while the pass is being counted."""

    def __init__(self, counter: Counter, *, modes: int) -> None:
        global _seen_version
        self.ready = False
        self._modes = modes  # torch function modes of our own
        self._watch = counter.watch
        self._lifetimes = counter.lifetimes
        self._counter = counter
        self._usual = {kind: ENABLED and layer.is_unchanged() for kind, layer in _LAYERS.items()}
        if _seen_version != version() or len(_seen) > _KEPT_MOST:
            _seen.clear()
            _seen_version = version()

    def wrap(self, index: int, module: nn.Module, attributes: dict[str, Any]) -> Callable[..., Any] | None:
        """In place of `module`'s forward; None where the ordinary way is the only one."""
        kind = type(module)
        if not self._usual.get(kind) or not attributes.keys().isdisjoint(_SHADOWS):
            return None
        ordinary = self._watch.wrap(index, module.forward)
        watch, lifetimes, seen = self._watch, self._lifetimes, _seen
        settings, params, buffers, only_in_evaluation, _ = _LAYERS[kind]

        def layer(*args: Any, **kwargs: Any) -> Any:
            if kwargs or len(args) != 1 or not self.ready or _is_grad_enabled():
                return ordinary(*args, **kwargs)
            x, attributes = args[0], module.__dict__
            if type(x) is not _Tensor or (only_in_evaluation and attributes["training"]) or self._elsewhere():
                return ordinary(x)
            try:
                key: Any = (kind, settings(attributes), x.shape, x.stride(), x.dtype, x.is_meta)
                if params:
                    held = attributes["_parameters"]
                    key += tuple([None if (t := held[n]) is None else _form(t) for n in params])
                    held = attributes["_buffers"]
                    key += tuple([None if (t := held[n]) is None else _form(t) for n in buffers])
                known = seen.get(key, _NOTHING)
            except (
                KeyError,
                TypeError,
                AttributeError,
                RuntimeError,
            ):  # not the usual attributes, or no plain tensors
                return ordinary(x)
            if known is None:
                return ordinary(x)
            if known is _NOTHING:
                return self._learned(key, index, ordinary, x)
            form, dtype, size_bytes, made_bytes, rise_bytes, costs, shapes = known
            node = watch.innermost().child(index)
            node.calls += 1
            node.made_bytes += made_bytes
            if node.costs:
                _add(node, costs)
            else:
                node.costs.update({name: [*values] for name, values in costs})
            if index not in watch.shapes:
                watch.shapes[index] = shapes
            if form is None:
                return x
            below = _below_modes()  # the new tensor is no operator of the model's
            out = _empty_strided(form[0], form[1], dtype=dtype, device=_META)
            del below
            lifetimes.fresh(out.untyped_storage(), size_bytes, made_bytes, rise_bytes)
            return out

        layer.__wrapped__ = module.forward  # type: ignore[attr-defined]
        return layer

    def _elsewhere(self) -> bool:
        """Whether others look on, or what is called is not simply run: user's modes, autocast, vmap."""
        return bool(
            _dispatch_modes() != 1
            or _function_modes() != self._modes
            or _autocast()
            or _transforms() is not None
        )

    def _unknown(self) -> int:
        return sum(len(unknown.calls) for unknown in self._counter.unknown.values())

    def _learned(self, key: Any, index: int, ordinary: Callable[..., Any], x: torch.Tensor) -> Any:
        """Run it the ordinary way and remember what it did, if that can be told."""
        lifetimes = self._lifetimes
        node = self._watch.innermost().child(index)
        costs = {name: tuple(values) for name, values in node.costs.items()}
        made_bytes, unknown, live_bytes = node.made_bytes, self._unknown(), lifetimes.live_bytes
        highest, lifetimes.peak_bytes = lifetimes.peak_bytes, live_bytes
        try:
            out = ordinary(x)
        finally:
            rise_bytes = lifetimes.peak_bytes - live_bytes
            lifetimes.peak_bytes = max(highest, lifetimes.peak_bytes)
        added = {
            name: [now - was for now, was in zip(values, costs.get(name, (0, 0, 0, 0)), strict=True)]
            for name, values in node.costs.items()
        }
        kept_bytes = lifetimes.live_bytes - live_bytes
        _seen[key] = None
        if self._unknown() == unknown and not node.children and _is_told(x, out, kept_bytes, rise_bytes):
            _seen[key] = _Seen(
                None if out is x else (out.shape, out.stride()), out.dtype, kept_bytes,
                node.made_bytes - made_bytes, rise_bytes,
                tuple((name, (v[0], v[1], v[2], v[3])) for name, v in added.items() if v[0]),
                (shapes_of(x), shapes_of(out)),
            )  # fmt: skip
        return out


def _is_told(x: torch.Tensor, out: Any, kept_bytes: int, rise_bytes: int) -> bool:
    """Whether the result is what came in, or a new plain tensor that is all of the memory that was kept."""
    if not x.is_meta or x.dtype not in _FLOATS:
        return False
    if out is x:
        return kept_bytes == rise_bytes == 0
    plain = type(out) is _Tensor and out.is_meta and out.dtype in _FLOATS and out.storage_offset() == 0
    return plain and kept_bytes > 0 and out.untyped_storage().nbytes() == kept_bytes


def _form(tensor: Any) -> tuple[Any, ...]:
    if type(tensor) not in _PLAIN or not tensor.is_meta:
        raise TypeError
    return tensor.shape, tensor.stride(), tensor.dtype


def _add(node: CallNode, costs: Any) -> None:
    for name, values in costs:
        totals = node.costs.setdefault(name, [0, 0, 0, 0])
        for i, value in enumerate(values):
            totals[i] += value


_Tensor = torch.Tensor
_empty_strided = torch.empty_strided
_is_grad_enabled = torch.is_grad_enabled


def _layer(
    kind: Any,
    settings: str = "",
    *,
    calls: str,
    params: str = "",
    buffers: str = "",
    helper: str = "",
    evaluation: bool = False,
) -> dict[Any, _Layer]:
    names = settings.split()
    methods = [(kind, name, getattr(kind, name)) for name in ("forward", *helper.split())]
    methods += [(space, calls, there) for space in (F, torch) if (there := getattr(space, calls, None))]
    get: Any = itemgetter(*names) if names else lambda _: None
    return {kind: _Layer(get, tuple(params.split()), tuple(buffers.split()), evaluation, tuple(methods))}


def _layers() -> dict[Any, _Layer]:
    conv: dict[str, Any] = {
        "settings": "stride padding dilation groups padding_mode _reversed_padding_repeated_twice",
        "params": "weight bias",
        "helper": "_conv_forward",
    }
    norm: dict[str, Any] = {
        "settings": "training track_running_stats momentum eps",
        "params": "weight bias",
        "buffers": "running_mean running_var",
        "helper": "_check_input_dim",
        "evaluation": True,
    }
    return {
        **_layer(nn.Conv1d, calls="conv1d", **conv),
        **_layer(nn.Conv2d, calls="conv2d", **conv),
        **_layer(nn.Conv3d, calls="conv3d", **conv),
        **_layer(nn.BatchNorm1d, calls="batch_norm", **norm),
        **_layer(nn.BatchNorm2d, calls="batch_norm", **norm),
        **_layer(nn.BatchNorm3d, calls="batch_norm", **norm),
        **_layer(nn.LayerNorm, "normalized_shape eps", params="weight bias", calls="layer_norm"),
        **_layer(nn.GroupNorm, "num_groups eps", params="weight bias", calls="group_norm"),
        **_layer(nn.Linear, params="weight bias", calls="linear"),
        **_layer(nn.ReLU, "inplace", calls="relu"),
        **_layer(nn.ReLU6, "min_val max_val inplace", calls="hardtanh"),
        **_layer(nn.SiLU, "inplace", calls="silu"),
        **_layer(nn.GELU, "approximate", calls="gelu"),
        **_layer(nn.Hardswish, "inplace", calls="hardswish"),
        **_layer(nn.Hardsigmoid, "inplace", calls="hardsigmoid"),
        **_layer(nn.Sigmoid, calls="sigmoid"),
        **_layer(nn.Tanh, calls="tanh"),
        **_layer(nn.LeakyReLU, "negative_slope inplace", calls="leaky_relu"),
        **_layer(nn.ELU, "alpha inplace", calls="elu"),
        **_layer(nn.Dropout, "p training inplace", calls="dropout", evaluation=True),
        **_layer(
            nn.MaxPool2d, "kernel_size stride padding dilation ceil_mode return_indices", calls="max_pool2d"
        ),
        **_layer(
            nn.AvgPool2d,
            "kernel_size stride padding ceil_mode count_include_pad divisor_override",
            calls="avg_pool2d",
        ),
        **_layer(nn.AdaptiveAvgPool2d, "output_size", calls="adaptive_avg_pool2d"),
    }


_LAYERS = _layers()
