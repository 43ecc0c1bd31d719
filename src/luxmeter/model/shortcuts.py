"""Result shapes of the operators that networks are made of, without asking torch.

torch's own shape functions for these are written in Python and take up to 5 ms a call; these take microseconds.
Each answers only for plain dense arguments and gives None for anything else, so that torch is asked.
The form of a result is (0, shape, stride, dtype), of several ("several", (form or None, ...)).

What they are needed for is the first analysis of a model, which takes two to three times as long with the corrections
alone (`_embedding`, `_grouped_mm`, `_attention_backward`); the next finds every form in the counter's memory. Rules for other
operators (products, sums, softmax, copies) saved nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_strides

_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_HALVES = (torch.bfloat16, torch.float16)
Form = tuple[Any, ...]


def _dense(shape: Any, dtype: Any) -> Form:
    stride, step = [0] * len(shape), 1
    for i in range(len(shape) - 1, -1, -1):
        stride[i] = step
        step *= max(int(shape[i]), 1)
    return (0, tuple(shape), tuple(stride), dtype)


def _plain(*tensors: Any) -> bool:
    """Whether all are contiguous and of one floating type."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype and t.is_contiguous() for t in tensors)


def _same(*args: Any, **_: Any) -> Form | None:
    """Element-wise on one floating type: the shape of the widest argument, when the others broadcast to it."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if not tensors or any(isinstance(a, complex | list | tuple) for a in args):
        return None
    shape, dtype = tensors[0].shape, tensors[0].dtype
    if dtype not in _FLOATS or any(t.dtype is not dtype for t in tensors):
        return None
    if any(t.shape != shape for t in tensors):
        if any(t.dim() == 0 for t in tensors):
            return None
        shape = torch.broadcast_shapes(*(t.shape for t in tensors))  # type: ignore[no-untyped-call]
    if all(t.is_contiguous() and t.dim() == len(shape) for t in tensors):
        return _dense(shape, dtype)  # a dimension of length one may have any stride and be contiguous
    # torch's rule for mixed layouts; called directly, since the way around it imports the whole compiler.
    return (0, shape, tuple(compute_elementwise_output_strides(*(t.expand(shape) for t in tensors))), dtype)


def _embedding(_weight: Any, indices: Any, *_: Any, **__: Any) -> None:
    if (
        indices.is_floating_point() or indices.is_complex()
    ):  # some versions of torch look only where there is data
        raise RuntimeError(f"embedding wants indices of whole numbers, got {indices.dtype}")


def _convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    extra: Any,
    groups: Any,
) -> Form | None:
    dims = weight.dim() - 2
    if (
        transposed
        or x.dim() != dims + 2
        or x.dtype is not weight.dtype
        or x.shape[1] != weight.shape[1] * groups
    ):
        return None
    if (
        not x.numel()
        or not weight.numel()
        or weight.shape[0] % groups
        or not len(stride) == len(padding) == dims
    ):
        return None
    if len(dilation) != dims:
        return None
    shape = [x.shape[0], weight.shape[0]]
    for i in range(dims):
        reach = dilation[i] * (weight.shape[i + 2] - 1) + 1
        room = x.shape[i + 2] + 2 * padding[i] - reach
        if room < 0:
            return None  # torch says it better
        shape.append(room // stride[i] + 1)
    return _dense(shape, x.dtype)


def _convolution_backward(grad: Any, x: Any, weight: Any, bias_sizes: Any, *rest: Any) -> Form | None:
    mask = rest[-1]
    if not _plain(grad, x, weight):
        return None
    bias = _dense((weight.shape[0],), x.dtype) if mask[2] and bias_sizes and not rest[3] else None
    if mask[2] and bias is None:
        return None
    return (
        "several",
        (
            _dense(x.shape, x.dtype) if mask[0] else None,
            _dense(weight.shape, x.dtype) if mask[1] else None,
            bias,
        ),
    )


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: Any, *_: Any) -> Form | None:
    if weight is None or not _plain(x, weight) or x.dim() < 2 or x.dtype in _HALVES:
        return None  # in half precision statistics are kept in single
    kept = _dense((x.shape[1],) if training else (0,), x.dtype)
    return ("several", (_dense(x.shape, x.dtype), kept, kept))


def _batch_norm_backward(grad: Any, x: Any, weight: Any, *rest: Any) -> Form | None:
    if weight is None or not _plain(grad, x, weight) or list(rest[-1]) != [True, True, True]:
        return None
    channels = _dense((x.shape[1],), x.dtype)
    return ("several", (_dense(x.shape, x.dtype), channels, channels))


def _layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: Any) -> Form | None:
    if weight is None or not _plain(x, weight) or x.dtype in _HALVES:
        return None
    if list(x.shape[x.dim() - len(normalized) :]) != list(normalized):
        return None
    kept = _dense((*x.shape[: x.dim() - len(normalized)], *[1] * len(normalized)), x.dtype)
    return ("several", (_dense(x.shape, x.dtype), kept, kept))


def _layer_norm_backward(
    grad: Any, x: Any, normalized: Any, mean: Any, rstd: Any, weight: Any, *rest: Any
) -> Form | None:
    if weight is None or not _plain(grad, x, weight) or list(rest[-1]) != [True, True, True]:
        return None
    width = _dense(normalized, x.dtype)
    return ("several", (_dense(x.shape, x.dtype), width, width))


def _addmm(bias: Any, left: Any, right: Any, **_: Any) -> Form | None:
    if (
        left.shape[1] != right.shape[0]
        or left.dtype not in _FLOATS
        or not left.dtype is right.dtype is bias.dtype
    ):
        return None
    if bias.dim() != 1 or bias.shape[0] != right.shape[1]:
        return None
    return _dense((left.shape[0], right.shape[1]), left.dtype)


def _attention_backward(_grad: Any, *given: Any, **__: Any) -> Form:
    """Gradients as large as what they belong to: torch 2.8 makes too many heads where queries share keys and values."""
    return ("several", tuple(_heads_inside(t) for t in given[:3]))


def _heads_inside(t: Any) -> Form:
    _, heads, length, width = t.shape
    dense = (heads * length * width, width, heads * width, 1)
    return (0, tuple(t.shape), dense, t.dtype)


def _grouped_mm(left: Any, right: Any, offs: Any = None, *_: Any, **__: Any) -> Form | None:
    """Asked for shapes only: torch's own insists on bfloat16, which its CPU kernel does not."""
    if left.dim() == 2 and right.dim() == 3:
        return _dense((left.shape[0], right.shape[2]), left.dtype)
    if left.dim() == 3 and right.dim() == 2:
        return _dense((left.shape[1], right.shape[1]), left.dtype)
    groups = left.shape[0] if left.dim() == 3 else offs.shape[0]
    return _dense((groups, left.shape[-2], right.shape[-1]), left.dtype)


def _named(names: str, rule: Callable[..., Form | None]) -> dict[str, Callable[..., Form | None]]:
    return {f"aten::{name}": rule for name in names.split()}


SHORTCUTS: dict[str, Callable[..., Form | None]] = {
    **_named("convolution", _convolution),
    **_named("convolution_backward", _convolution_backward),
    **_named("native_batch_norm", _batch_norm),
    **_named("native_batch_norm_backward", _batch_norm_backward),
    **_named("native_layer_norm", _layer_norm),
    **_named("native_layer_norm_backward", _layer_norm_backward),
    **_named("addmm", _addmm),
    **_named("_grouped_mm", _grouped_mm),
    **_named("embedding", _embedding),
    **_named("_scaled_dot_product_flash_attention_for_cpu_backward", _attention_backward),
    **_named(
        "add sub mul div neg abs exp log sqrt rsqrt reciprocal sin cos pow square relu gelu silu sigmoid tanh"
        " hardswish hardsigmoid hardtanh leaky_relu elu mish softplus clamp clamp_min clamp_max minimum maximum"
        " threshold_backward gelu_backward silu_backward sigmoid_backward tanh_backward hardswish_backward"
        " hardsigmoid_backward hardtanh_backward leaky_relu_backward elu_backward mish_backward",
        _same,
    ),
}
