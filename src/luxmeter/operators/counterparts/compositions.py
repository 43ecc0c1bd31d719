"""What to write in MindSpore where no single API does what torch's does, or not on a CPU.

Each function takes torch's arguments, with MindSpore's tensors. Its target is called `composed.<name>`. Import this
only where MindSpore is.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import mint, ops


def _pair(value: Any, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value) * (n if len(value) == 1 else 1)


def _convolved(conv: Any, n: int, x: Any, weight: Any, bias: Any, given: tuple[Any, ...]) -> Any:
    stride, padding, dilation, groups = given
    single = x.ndim == n + 1
    x = x.expand_dims(0) if single else x
    mode, pad = (
        (padding, 0) if isinstance(padding, str) else ("pad", _pair(padding, n)[0 if n == 1 else slice(None)])
    )
    if n == 1:
        out = conv(x, weight, bias, _pair(stride, 1)[0], mode, pad, _pair(dilation, 1)[0], groups)
    else:
        out = conv(x, weight, bias, _pair(stride, n), mode, pad, _pair(dilation, n), groups)
    return out.squeeze(0) if single else out


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """ops.conv1d(x, weight, bias, stride, "pad", padding, dilation, groups)"""
    return _convolved(ops.conv1d, 1, input, weight, bias, (stride, padding, dilation, groups))


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """ops.conv2d(x, weight, bias, stride, "pad", padding, dilation, groups)"""
    return _convolved(ops.conv2d, 2, input, weight, bias, (stride, padding, dilation, groups))


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """ops.conv3d(x, weight, bias, stride, "pad", padding, dilation, groups)"""
    return _convolved(ops.conv3d, 3, input, weight, bias, (stride, padding, dilation, groups))


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    """ops.LayerNorm(axis, axis, eps)(x, weight, bias)[0]"""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    weight = ops.ones(shape, input.dtype) if weight is None else weight
    bias = ops.zeros(shape, input.dtype) if bias is None else bias
    axis = input.ndim - len(shape)
    return ops.LayerNorm(axis, axis, eps)(input, weight, bias)[0]


def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """x * rsqrt(mean(x * x, axes, keep_dims=True) + eps) * weight"""
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    eps = 1.1920928955078125e-07 if eps is None else eps
    out = input * ops.rsqrt((input * input).mean(axes, True) + eps)
    return out if weight is None else out * weight


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    """x / ops.maximum(ops.norm(x, p, dim, keepdim=True), eps)"""
    return input / ops.clamp(ops.norm(input, ord=p, dim=dim, keepdim=True), min=eps)


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """ops.batch_norm(x, mean, var, weight, bias, training, 1 - momentum, eps)"""
    n = input.shape[1]
    ones, zeros = ops.ones((n,), input.dtype), ops.zeros((n,), input.dtype)
    if training:
        axes = (0, *range(2, input.ndim))
        shape = (1, n, *(1,) * (input.ndim - 2))
        mean = input.mean(axes, True)
        var = ((input - mean) * (input - mean)).mean(axes, True)
        out = (input - mean) * ops.rsqrt(var + eps)
        return out * (ones if weight is None else weight).reshape(shape) + (
            zeros if bias is None else bias
        ).reshape(shape)
    args = (running_mean, running_var, ones if weight is None else weight, zeros if bias is None else bias)
    return ops.batch_norm(input, *args, False, min(max(1 - momentum, 0.0), 1.0), eps)


def dot(input: Any, tensor: Any) -> Any:
    """(x * y).sum()"""
    return (input * tensor).sum()


def clone(input: Any) -> Any:
    """x.copy()"""
    return input.copy()


def bitwise_not(input: Any) -> Any:
    """ops.invert(x) of an integer is -x - 1, of a mask logical_not"""
    return ops.logical_not(input) if input.dtype == ms.bool_ else -input - 1


def index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """ops.index_add(x, index.astype(int32), source, axis)"""
    return ops.index_add(ms.Parameter(input), index.astype(ms.int32), source * alpha, dim)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Any:
    """ops.index_fill(x, axis, index.astype(int32), value)"""
    return ops.index_fill(input, dim, index.astype(ms.int32), value)


def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """values, indices = ops.topk(x, k, dim, largest, sorted), indices to int64"""
    if input.ndim == 0:  # TopK leaves the process in ruins over it
        return input.copy(), ms.Tensor(0, ms.int64)
    values, indices = ops.topk(input, k, dim, largest, sorted)
    return values, indices.astype(ms.int64)


def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """values, indices = ops.sort(x, axis, descending), indices to int64"""
    values, indices = ops.sort(input, dim, descending)
    return values, indices.astype(ms.int64)


def cummin(input: Any, dim: int) -> Any:
    """values, indices = ops.cummin(x, axis), indices to int64"""
    values, indices = ops.cummin(input, dim)
    return values, indices.astype(ms.int64)


def median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """ops.median(x)[0], or ops.median(x, axis, keepdims)"""
    return ops.median(input)[0] if dim is None else ops.median(input, dim, keepdim)


def diag(input: Any, diagonal: int = 0) -> Any:
    """mint.diag on Ascend; here ops.diag_embed of a vector, ops.diagonal of a matrix"""
    return ops.diag_embed(input, diagonal) if input.ndim == 1 else input.diagonal(diagonal)


def roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """cat of the two parts, once a dimension"""
    if dims is None or dims == () or dims == []:
        return roll(input.reshape(-1), shifts if isinstance(shifts, int) else shifts[0], 0).reshape(
            input.shape
        )
    shifts, dims = ((v,) if isinstance(v, int) else tuple(v) for v in (shifts, dims))
    for shift, dim in zip(shifts, dims, strict=True):
        size = input.shape[dim]
        at = -shift % size
        if at:
            input = ops.cat([input.narrow(dim, at, size - at), input.narrow(dim, 0, at)], dim)
    return input


def soft_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    """ops.log1p(ops.exp(-target * x)).mean()"""
    return _reduced(ops.log1p(ops.exp(-target * input)), reduction)


def _reduced(loss: Any, reduction: str) -> Any:
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """ops.softmax(q @ k.T * scale + mask) @ v"""
    if dropout_p:
        raise ValueError("dropout in attention is random")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(times, -3) for t in (key, value))
    scores = ops.matmul(query, key.swapaxes(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = ops.tril(ops.ones(scores.shape[-2:], ms.float32)).astype(ms.bool_)
    if attn_mask is not None:
        if attn_mask.dtype == ms.bool_:
            scores = scores.masked_fill(ops.logical_not(attn_mask), float("-inf"))
        else:
            scores = scores + attn_mask
    return ops.matmul(ops.softmax(scores, -1), value)


def std_mean(input: Any, dim: Any = None, **given: Any) -> Any:
    """ops.std(x, axis, ddof, keepdims), x.mean(axis, keepdims)"""
    var, mean = var_mean(input, dim, **given)
    return ops.sqrt(var), mean


def var_mean(
    input: Any, dim: Any = None, *, unbiased: bool = True, correction: Any = None, keepdim: bool = False
) -> Any:
    """((x - mean) ** 2).sum(axis, keepdims) / (n - ddof), x.mean(axis, keepdims)"""
    axes = tuple(range(input.ndim)) if dim is None or dim == () or dim == [] else dim
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    n = 1
    for axis in axes:
        n *= input.shape[axis]
    ddof = (1 if unbiased else 0) if correction is None else correction
    mean = input.mean(axes, True)
    gap = input - mean
    var = (gap * gap).sum(axes, keepdims=keepdim) / max(n - ddof, 0)
    return var, input.mean(axes, keepdim)


def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None) -> Any:
    """ops.linspace(start, end, steps).astype(dtype)"""
    return ops.linspace(start, end, steps).astype(dtype or ms.float32)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """ops.leaky_relu(x, 0.01): its own default is 0.2"""
    return ops.leaky_relu(input, negative_slope)


def equal(input: Any, other: Any) -> bool:
    """input.shape == other.shape and ops.equal(x, y).all()"""
    return input.shape == other.shape and bool(ops.equal(input, other).all())


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """ops.adaptive_avg_pool1d takes an int"""
    return ops.adaptive_avg_pool1d(input, output_size if isinstance(output_size, int) else output_size[0])


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    """ops.avg_pool2d(x, kernel, stride, (top, bottom, left, right)): its own default stride is 1"""
    kernel = _pair(kernel_size, 2)
    stride = kernel if stride is None or stride == () or stride == [] else _pair(stride, 2)
    around = tuple(p for p in _pair(padding, 2) for _ in range(2))
    return ops.avg_pool2d(input, kernel, stride, around, ceil_mode, count_include_pad, divisor_override or 0)


def avg_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """ops.avg_pool1d(x, kernel, stride, padding): its own default stride is 1"""
    kernel = _pair(kernel_size, 1)[0]
    stride = kernel if stride is None or stride == () or stride == [] else _pair(stride, 1)[0]
    return ops.avg_pool1d(input, kernel, stride, _pair(padding, 1)[0], ceil_mode, count_include_pad)


def outer_added(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * x + alpha * ops.outer(v, w)"""
    added = alpha * mint.outer(vec1, vec2)
    return added.broadcast_to(input.shape) if beta == 0 else beta * input + added


def embedding(input: Any, weight: Any, padding_idx: Any = None, *_: Any, **__: Any) -> Any:
    """ops.gather(weight, ids, 0)"""
    return ops.gather(weight, input, 0)


def clamp_min(input: Any, min: Any) -> Any:
    """ops.clamp(x, min=min)"""
    return ops.clamp(input, min=min)


def clamp_max(input: Any, max: Any) -> Any:
    """ops.clamp(x, max=max)"""
    return ops.clamp(input, max=max)


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """other - alpha * x"""
    return other - alpha * input


def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """ops.gather_elements(x, axis, ids)"""
    if dim is None:
        return ops.gather_elements(input.reshape(-1), 0, indices.reshape(-1))
    return ops.gather_elements(input, dim, indices)


def scalar_tensor(value: Any, *, dtype: Any = None) -> Any:
    """Tensor(value, dtype)"""
    return ms.Tensor(value, dtype or ms.float32)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """(x[..., None] == values).any(-1)"""
    found = (elements.expand_dims(-1) == test_elements.reshape(-1)).any(-1)
    return ops.logical_not(found) if invert else found


def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> Any:
    """ops.pad(x, padding, "constant", value)"""
    return ops.pad(input, tuple(pad), "constant", value)


def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """ops.max_pool2d of x[:, :, None] with (1, kernel)"""
    kernel = (1, _pair(kernel_size, 1)[0])
    stride = kernel if stride is None or stride == () or stride == [] else (1, _pair(stride, 1)[0])
    single = input.ndim == 2
    x = input.expand_dims(0) if single else input
    out = ops.max_pool2d(
        x.expand_dims(2),
        kernel,
        stride,
        (0, _pair(padding, 1)[0]),
        (1, _pair(dilation, 1)[0]),
        return_indices,
        ceil_mode,
    )
    parts = [
        part.squeeze(2).squeeze(0) if single else part.squeeze(2)
        for part in (out if return_indices else [out])
    ]
    return tuple(parts) if return_indices else parts[0]


def unflatten(input: Any, dim: int, sizes: Any) -> Any:
    """x.reshape(...)"""
    dim = dim % max(input.ndim, 1)
    return input.reshape((*input.shape[:dim], *sizes, *input.shape[dim + 1 :]))
