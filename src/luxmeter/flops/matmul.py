"""Matrix products: dense, batched, sparse, quantised."""

from __future__ import annotations

from math import prod
from typing import Any

from luxmeter.flops.formulas import Cost, formula, products


def _nnz(tensor: Any) -> int | None:
    """How many values a sparse tensor holds; None for a dense one."""
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout == "torch.strided" or "mkldnn" in layout:
        return None
    values = tensor._values() if layout == "torch.sparse_coo" else tensor.values()
    return int(prod(values.shape))  # of a block format every entry of a block counts


def _product(left: Any, right: Any) -> int:
    """MACs of left (..., m, k) @ right (..., k, n), by what a sparse side really holds."""
    columns = right.shape[-1] if len(right.shape) > 1 else 1
    rows = left.shape[-2] if len(left.shape) > 1 else 1
    if (held := _nnz(left)) is not None:
        return int(held * columns)
    if (held := _nnz(right)) is not None:
        return int(held * rows)
    batch = prod(left.shape[:-2]) if len(left.shape) > 2 else 1
    return int(batch * rows * left.shape[-1] * columns)


@formula("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_sparse_mm", "ger", "outer")
def product(left: Any, right: Any, *_: Any, out: Any = None) -> Cost:
    if len(left.shape) == 1 and len(right.shape) == 1 and out is not None and len(out.shape) == 2:
        return Cost(0, prod(out.shape))  # outer: every element one multiplication, nothing accumulated
    return products(_product(left, right))


@formula("addmm", "baddbmm", "addmv", "_addmm_activation", "_sparse_addmm", "sparse_sampled_addmm")
def product_and_sum(bias: Any, left: Any, right: Any, *_: Any, out: Any = None) -> Cost:
    return products(_product(left, right), prod(out.shape))


@formula("addbmm")
def batch_reduced(bias: Any, left: Any, right: Any, *_: Any, out: Any = None) -> Cost:
    return products(_product(left, right), prod(out.shape))


@formula("addr")
def outer_and_sum(bias: Any, left: Any, right: Any, *_: Any, out: Any = None) -> Cost:
    return Cost(0, 2 * prod(out.shape))


@formula("linear", "mkldnn_linear", "mkldnn::_linear_pointwise", "quantized::int4mm_packed_weight_cpu")
def linear(x: Any, weight: Any, bias: Any = None, *_: Any, out: Any = None) -> Cost:
    held = _nnz(weight)
    rows = prod(x.shape[:-1])
    macs = rows * held if held is not None else prod(out.shape) * x.shape[-1]
    return products(int(macs), prod(out.shape) if bias is not None else 0)


@formula(
    "quantized::linear", "quantized::linear_relu", "quantized::linear_dynamic", "quantized::linear_relu_dynamic",
    "quantized::linear_dynamic_fp16", "quantized::linear_relu_dynamic_fp16", "quantized::linear_leaky_relu",
    "quantized::linear_tanh", "quantized::linear_with_input_q_dq_qweight_dq_output_fp32",
    "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32", "quantized::linear_dynamic_fp16_unpacked_weight",
    "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int8pack_mm", "onednn::qlinear_pointwise",
    "_dyn_quant_matmul_4bit", "_wrapped_quantized_linear_prepacked",
)  # fmt: skip
def packed_linear(x: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    """The weight is packed: its shape shows in the input's and the result's last dimension."""
    return products(int(prod(out.shape) * x.shape[-1]), prod(out.shape))


@formula("linear_backward", "mkldnn_linear_backward")
def linear_backward(x: Any, grad: Any, weight: Any, output_mask: Any = (True, True, True), *_: Any) -> Cost:
    macs = prod(grad.shape) * x.shape[-1]
    return products(
        int(macs * (bool(output_mask[0]) + bool(output_mask[1]))), prod(grad.shape) * bool(output_mask[2])
    )


@formula("_scaled_mm", "_scaled_mm_v2")
def scaled_product(left: Any, right: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return products(_product(left, right), prod(out.shape))


@formula("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2")
def grouped_product(left: Any, right: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    """Rows (or columns) are dealt out to the groups, so each takes part in one product only."""
    if len(left.shape) == 2 and len(right.shape) == 2:  # groups along the contracted dimension
        return products(int(left.shape[0] * left.shape[1] * right.shape[1]))
    if len(left.shape) == 3 and len(right.shape) == 3:
        return products(_product(left, right))
    return products(int(prod(out.shape) * left.shape[-1]))


@formula("_trilinear")
def trilinear(
    i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, *_: Any
) -> Cost:
    """Bilinear's core: two multiplications and a sum over the broadcast of the three."""
    sizes = [list(t.shape) for t in (i1, i2, i3)]
    for shape, expanded in zip(sizes, (expand1, expand2, expand3), strict=True):
        for dim in expanded:
            shape.insert(dim, 1)
    full = prod(max(dims) for dims in zip(*sizes, strict=True))
    return products(int(full), int(full))
