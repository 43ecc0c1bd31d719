"""Cells that are not MindSpore's own: where it has none for a module of torch, or none that runs on a CPU.

Each function is the cell's body, with the module's settings and weights in `m`; its target is `composed.<class>`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

import mindspore as ms
from luxmeter.operators.counterparts import compositions as c
from luxmeter.operators.counterparts.values import to_mindspore
from luxmeter.signature import ListOf, TensorSpec, module_of
from mindspore import ops


def _conv(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(m: Any, x: Any) -> Any:
        if m.padding_mode != "zeros":
            raise NotImplementedError(f"padding_mode={m.padding_mode!r}")
        return function(x, m.weight, m.bias, m.stride, m.padding, m.dilation, m.groups)

    return body


def _batch_norm(m: Any, x: Any) -> Any:
    batch = m.training or m.running_mean is None
    momentum = 0.1 if m.momentum is None else m.momentum
    return c.batch_norm(x, m.running_mean, m.running_var, m.weight, m.bias, batch, momentum, m.eps)


def _gelu(m: Any, x: Any) -> Any:
    return ops.gelu(x, m.approximate)


def _max_pool2d(m: Any, x: Any) -> Any:
    single = x.ndim == 3
    stride = m.kernel_size if m.stride is None else m.stride
    args = (m.kernel_size, stride, m.padding, m.dilation, m.return_indices, m.ceil_mode)
    out = ops.max_pool2d(x.expand_dims(0) if single else x, *args)
    return out.squeeze(0) if single else out


BODIES: dict[str, Callable[..., Any]] = {
    "Conv1d": _conv(c.conv1d),
    "Conv2d": _conv(c.conv2d),
    "Conv3d": _conv(c.conv3d),
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "BatchNorm3d": _batch_norm,
    "LayerNorm": lambda m, x: c.layer_norm(x, m.normalized_shape, m.weight, m.bias, m.eps),
    "RMSNorm": lambda m, x: c.rms_norm(x, m.normalized_shape, m.weight, m.eps),
    "GroupNorm": lambda m, x: ops.group_norm(x, m.num_groups, m.weight, m.bias, m.eps),
    "GELU": _gelu,
    "SELU": lambda m, x: ops.selu(x),
    "ELU": lambda m, x: ops.maximum(x, 0.0 * x) + ops.minimum(m.alpha * (ops.exp(x) - 1), 0.0 * x),
    "Softplus": lambda m, x: ms.mint.nn.functional.softplus(x, m.beta, m.threshold),
    "MaxPool1d": lambda m, x: c.max_pool1d(
        x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices
    ),
    "MaxPool2d": _max_pool2d,
    "AvgPool1d": lambda m, x: c.avg_pool1d(
        x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad
    ),
    "AvgPool2d": lambda m, x: c.avg_pool2d(
        x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad, m.divisor_override
    ),
    "CrossEntropyLoss": lambda m, x, y: ops.cross_entropy(
        x, y, m.weight, m.ignore_index, m.reduction, m.label_smoothing
    ),
    "SoftMarginLoss": lambda m, x, y: c.soft_margin_loss(x, y, reduction=m.reduction),
    "KLDivLoss": lambda m, x, y: _kl_div(m, x, y),
    "Identity": lambda m, x, *_: x,
    "Flatten": lambda m, x: ms.mint.flatten(x, m.start_dim, m.end_dim),
    "Dropout": lambda m, x: ops.dropout(x, m.p, m.training) if m.training else x,
    "PixelShuffle": lambda m, x: ops.pixel_shuffle(x, m.upscale_factor),
}


def _kl_div(m: Any, x: Any, y: Any) -> Any:
    """sum of y * (log y - x), 0 where y is 0"""
    if m.log_target:
        loss = ops.exp(y) * (y - x)
    else:
        loss = ops.select(
            y > 0, y * (ops.log(ops.maximum(y, ops.full_like(y, 1e-38))) - x), ops.zeros_like(y * x)
        )
    if m.reduction == "batchmean":
        return loss.sum() / (x.shape[0] if x.ndim else 1)
    return loss if m.reduction == "none" else loss.mean() if m.reduction == "mean" else loss.sum()


class Composed(ms.nn.Cell):  # type: ignore[misc]
    """A cell made of one of the bodies, with the module's parameters as its own."""

    def __init__(self, module: torch.nn.Module, body: Callable[..., Any]) -> None:
        super().__init__()
        held: dict[str, Any] = {"weight": None, "bias": None}
        for name, value in module_of(module).settings:
            if not isinstance(value, TensorSpec):
                held[name] = [*value.items] if isinstance(value, ListOf) else to_mindspore(value)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            held[name] = None if tensor is None else to_mindspore(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                held[name] = ms.Parameter(held[name], name=name, requires_grad=tensor.requires_grad)
                setattr(self, name, held[name])
        held["training"] = module.training
        self._body, self._held = body, SimpleNamespace(**held)

    def construct(self, *args: Any) -> Any:
        """The body with the module's settings."""
        return self._body(self._held, *args)
