"""Convolutions of every kind: 1-d to 3-d, grouped, dilated, transposed, quantised, deformable, and their gradients."""

from __future__ import annotations

from math import prod
from typing import Any

from luxmeter.flops.formulas import Cost, formula, products


def macs_of(x_shape: Any, weight_shape: Any, out_shape: Any, *, transposed: bool) -> int:
    """Each position of the result (of the input, if transposed) meets the whole kernel of its group once.

    A weight is (out, in / groups, *kernel), for a transposed one (in, out / groups, *kernel): either way
    its first dimension is spread over the positions and the rest is met by each.
    """
    kernel = len(weight_shape) - 2
    positions = (x_shape if transposed else out_shape)[-kernel:] if kernel else ()
    batch = prod(out_shape[: len(out_shape) - kernel - 1])
    return int(batch * prod(positions) * prod(weight_shape))


def _forward(x: Any, weight: Any, bias: Any, out: Any, *, transposed: bool = False) -> Cost:
    macs = macs_of(x.shape, weight.shape, out.shape, transposed=transposed)
    return products(macs, prod(out.shape) if bias is not None else 0)


@formula("convolution", "_convolution", "convolution_overrideable", "_convolution_mode")
def convolution(
    x: Any, weight: Any, bias: Any, stride: Any = None, padding: Any = None, dilation: Any = None,
    transposed: Any = False, *_: Any, out: Any = None,
) -> Cost:  # fmt: skip
    return _forward(x, weight, bias, out, transposed=transposed is True)


@formula(
    "mkldnn_convolution", "conv1d", "conv2d", "conv3d", "cudnn_convolution_relu", "mkldnn::_convolution_pointwise",
    "mkldnn::_convolution_pointwise_",
)  # fmt: skip
def convolution_with_bias(x: Any, weight: Any, bias: Any = None, *_: Any, out: Any = None, **__: Any) -> Cost:
    return _forward(x, weight, bias if hasattr(bias, "shape") else None, out)


@formula("cudnn_convolution", "miopen_convolution", "miopen_depthwise_convolution")
def convolution_without_bias(x: Any, weight: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return _forward(x, weight, None, out)


@formula(
    "cudnn_convolution_transpose", "miopen_convolution_transpose", "mkldnn::_convolution_transpose_pointwise"
)
def convolution_transposed(x: Any, weight: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return _forward(x, weight, None, out, transposed=True)


@formula(
    "_slow_conv2d_forward", "thnn_conv2d", "_conv_depthwise2d", "conv_depthwise3d", "slow_conv3d",
    "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d", "_nnpack_spatial_convolution",
)  # fmt: skip
def convolution_with_kernel_size(
    x: Any, weight: Any, kernel_size: Any = None, bias: Any = None, *_: Any, out: Any = None
) -> Cost:
    return _forward(x, weight, bias if hasattr(bias, "shape") else None, out)


@formula("slow_conv_transpose2d", "slow_conv_transpose3d")
def slow_transposed(
    x: Any, weight: Any, kernel_size: Any = None, bias: Any = None, *_: Any, out: Any = None
) -> Cost:
    return _forward(x, weight, bias, out, transposed=True)


@formula("conv_tbc")
def time_batch_channel(x: Any, weight: Any, bias: Any, *_: Any, out: Any = None) -> Cost:
    return products(int(prod(out.shape) * weight.shape[0] * weight.shape[1]), prod(out.shape))


@formula("convolution_backward", "convolution_backward_overrideable")
def convolution_backward(
    grad: Any, x: Any, weight: Any, bias_sizes: Any = None, stride: Any = None, padding: Any = None,
    dilation: Any = None, transposed: Any = False, output_padding: Any = None, groups: Any = 1,
    output_mask: Any = (True, True, True), *_: Any,
) -> Cost:  # fmt: skip
    """The input's gradient and the weight's each meet what the forward pass met; only what is asked counts."""
    if not isinstance(output_mask, list | tuple):
        output_mask = (True, True, True)
    forward = macs_of(x.shape, weight.shape, grad.shape, transposed=transposed is True)
    return products(
        forward * (bool(output_mask[0]) + bool(output_mask[1])), prod(grad.shape) * bool(output_mask[2])
    )


@formula(
    "quantized::conv1d", "quantized::conv2d", "quantized::conv3d", "quantized::conv1d_relu", "quantized::conv2d_relu",
    "quantized::conv3d_relu", "quantized::conv2d_add", "quantized::conv2d_add_relu", "quantized::conv1d_dynamic",
    "quantized::conv2d_dynamic", "quantized::conv3d_dynamic",
)  # fmt: skip
def packed_convolution(x: Any, packed: Any, *rest: Any, out: Any = None, **__: Any) -> Cost:
    packed = packed if hasattr(packed, "unpack") else rest[0]  # conv2d_add has the other summand first
    weight = packed.unpack()[0]
    shape = out.shape if len(weight.shape) == len(out.shape) else (*out.shape[:-1], 1, out.shape[-1])
    return products(macs_of(x.shape, weight.shape, shape, transposed=False), prod(out.shape))


@formula(
    "quantized::conv_transpose1d", "quantized::conv_transpose2d", "quantized::conv_transpose3d",
    "quantized::conv_transpose1d_dynamic", "quantized::conv_transpose2d_dynamic", "quantized::conv_transpose3d_dynamic",
)  # fmt: skip
def packed_transposed(x: Any, packed: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    weight = packed.unpack()[0]
    shape = x.shape if len(weight.shape) == len(x.shape) else (*x.shape[:-1], 1, x.shape[-1])
    return products(macs_of(shape, weight.shape, out.shape, transposed=True), prod(out.shape))


@formula("torchvision::deform_conv2d")
def deformable(x: Any, weight: Any, offset: Any, mask: Any, bias: Any, *_: Any, out: Any = None) -> Cost:
    """Each sampled value is a bilinear interpolation (7 operations), each kernel position of the input sampled."""
    sampled = out.shape[0] * x.shape[1] * prod(weight.shape[2:]) * prod(out.shape[2:])
    return products(
        macs_of(x.shape, weight.shape, out.shape, transposed=False), int(7 * sampled + prod(out.shape))
    )
