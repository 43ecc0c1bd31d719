"""Element-wise work, norms, pooling, interpolation, reductions, and what only moves data.

The counts are of the textbook form of each function, one for each addition, multiplication, comparison, root or
exponential on an element; docs/model-cost.md has the table.
"""

from __future__ import annotations

from math import log2, prod
from typing import Any

from luxmeter.flops.formulas import Cost, formula
from luxmeter.flops.names import CREATES, MOVES, POINTWISE, REDUCES

NORM = 8  # mean 1, variance 3, difference, quotient, scale, shift
NORM_BACKWARD = 11


def _numel(value: Any) -> int:
    """Elements of a tensor, or of the first tensor in a result of several."""
    if hasattr(value, "shape"):
        return int(prod(value.shape))
    if isinstance(value, list | tuple):
        return next((_numel(item) for item in value if hasattr(item, "shape")), 0)
    return 0


def _several(value: Any) -> bool:
    """Whether this is a list of things, not one tensor (a description of one is a tuple, too)."""
    return isinstance(value, list | tuple) and not hasattr(value, "shape")


def _total(value: Any) -> int:
    if _several(value):
        return sum(_total(item) for item in value)
    return _numel(value)


def _is_float(value: Any) -> bool:
    if _several(value):
        return any(_is_float(item) for item in value)
    dtype = getattr(value, "dtype", None)
    return dtype is not None and bool(
        getattr(dtype, "is_floating_point", True) or getattr(dtype, "is_complex", False)
    )


def general_cost(op: Any, base: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Cost | None:
    """By kind, for operators without a formula: views and moves 0, pointwise and reductions 1 an element.

    Arithmetic on whole numbers (indices, masks) is no floating-point work.
    """
    if getattr(op, "is_view", False) or base in MOVES or base in CREATES:
        return Cost()
    kinds = {getattr(tag, "name", "") for tag in getattr(op, "tags", ())}
    if base in POINTWISE or "pointwise" in kinds:
        return Cost(0, _numel(out)) if _is_float((*args, *kwargs.values(), out)) else Cost()
    if base in REDUCES or "reduction" in kinds:
        first = next((a for a in args if hasattr(a, "shape")), None)
        return Cost(0, _numel(first)) if _is_float((*args, out)) else Cost()
    if base.startswith("aten::_foreach_"):
        return Cost(0, _total(args[0]))
    if "view_copy" in kinds or base.endswith("_copy") or "nondeterministic_seeded" in kinds:
        return Cost()  # copies of views; random numbers are made, not computed with
    return None


def _per_element(count: int) -> Any:
    def compute(*args: Any, out: Any = None, **_: Any) -> Cost:
        first = next((a for a in args if hasattr(a, "shape")), out)
        return Cost(0, count * _numel(first)) if _is_float(first) else Cost()

    return compute


for _count, _names in {
    2: ("native_dropout", "dropout", "native_dropout_backward", "softplus", "_batch_norm_no_update",
        "_native_batch_norm_legit_no_training", "quantized::batch_norm2d", "quantized::batch_norm2d_relu",
        "quantized::batch_norm1d", "quantized::batch_norm3d", "batch_norm_elemt", "frobenius_norm", "linalg_vector_norm",
        "norm", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div", "l1_loss", "std", "var",
        "glu", "_weight_norm_interface", "logit", "renorm", "rrelu_with_noise", "cosine_similarity", "hypot"),
    3: ("addcmul", "addcdiv", "lerp", "tanh_backward", "sigmoid_backward", "var_mean", "std_mean", "mse_loss_backward",
        "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward", "glu_backward",
        "_prelu_kernel_backward", "logcumsumexp", "logsumexp", "_weight_norm_interface_backward",
        "binary_cross_entropy_with_logits", "_fused_sgd"),
    4: ("_fused_rms_norm", "rms_norm", "_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward"),
    5: ("_softmax", "_log_softmax", "_safe_softmax", "_masked_softmax", "softmax", "log_softmax", "quantized::softmax",
        "_fused_rms_norm_backward", "_sparse_softmax", "_fused_adagrad"),
    NORM: ("native_layer_norm", "layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
           "_batch_norm_with_update", "cudnn_batch_norm", "miopen_batch_norm", "quantized::layer_norm",
           "quantized::group_norm", "quantized::instance_norm", "_native_batch_norm_legit_functional"),
    NORM_BACKWARD: ("native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
                    "cudnn_batch_norm_backward", "miopen_batch_norm_backward", "batch_norm_backward"),
    15: ("_fused_adam", "_fused_adamw"),
}.items():  # fmt: skip
    formula(*_names)(_per_element(_count))


@formula("native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: Any = True, *_: Any
) -> Cost:
    """In evaluation one multiplication and one addition an element are left."""
    return Cost(0, (NORM if training is not False else 2) * _numel(x))


@formula("native_batch_norm_backward")
def batch_norm_backward(grad: Any, x: Any, *rest: Any) -> Cost:
    frozen = len(rest) >= 6 and rest[5] is False
    return Cost(0, (4 if frozen else NORM_BACKWARD) * _numel(x))


@formula("add", "sub", "rsub")
def summed(x: Any, y: Any = None, alpha: Any = 1, *_: Any, out: Any = None, **__: Any) -> Cost:
    """An addition an element, and a multiplication where one side is scaled."""
    return Cost(0, _numel(out) * (1 if alpha == 1 else 2)) if _is_float((x, y, out)) else Cost()


def _pair(value: Any, dims: int) -> int:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return int(prod(values) if len(values) == dims else values[0] ** dims)


@formula(
    "max_pool1d", "avg_pool1d", "max_pool1d_with_indices", "quantized::max_pool1d", "quantized_max_pool1d"
)
def pool_1d(x: Any, kernel: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return Cost(0, _pair(kernel, 1) * _numel(out))


@formula("max_pool2d", "avg_pool2d", "max_pool2d_with_indices", "mkldnn_max_pool2d", "quantized_max_pool2d",
         "fractional_max_pool2d")  # fmt: skip
def pool_2d(x: Any, kernel: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return Cost(0, _pair(kernel, 2) * _numel(out))


@formula("max_pool3d", "avg_pool3d", "max_pool3d_with_indices", "mkldnn_max_pool3d", "quantized_max_pool3d",
         "fractional_max_pool3d")  # fmt: skip
def pool_3d(x: Any, kernel: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    return Cost(0, _pair(kernel, 3) * _numel(out))


for _dims, _kinds in {
    2: ("avg_pool2d", "max_pool2d_with_indices", "fractional_max_pool2d"),
    3: ("avg_pool3d", "max_pool3d_with_indices", "fractional_max_pool3d"),
}.items():

    def _pool_backward(grad: Any, x: Any, kernel: Any, *_: Any, _dims: int = _dims, **__: Any) -> Cost:
        return Cost(0, _pair(kernel, _dims) * _numel(grad))

    formula(*(f"{_kind}_backward" for _kind in _kinds))(_pool_backward)


@formula(
    *(f"{_a}adaptive_{_k}_pool{_d}d" for _a in ("", "_", "mkldnn_") for _k in ("avg", "max") for _d in "123"),
    *(
        f"{_a}adaptive_{_k}_pool{_d}d_backward"
        for _a in ("", "_", "mkldnn_")
        for _k in ("avg", "max")
        for _d in "123"
    ),
)
def adaptive_pool(x: Any, *rest: Any, out: Any = None, **_: Any) -> Cost:
    """Every element of the larger side takes part about once."""
    return Cost(0, max(_numel(x), _numel(out)))


# Interpolation: multiplications and additions for one result, by the neighbours it is mixed from.
for _names, _count in (
    (("upsample_linear1d",), 3),
    (("upsample_bilinear2d", "_upsample_bilinear2d_aa", "_upsample_lanczos2d_aa"), 7),
    (("upsample_trilinear3d",), 15),
    (("upsample_bicubic2d", "_upsample_bicubic2d_aa"), 31),
    (("grid_sampler_2d", "_grid_sampler_2d_cpu_fallback", "cudnn_grid_sampler"), 7 + 8),
    (("grid_sampler_3d",), 15 + 12),
):

    def _interpolate(*_: Any, out: Any = None, _count: int = _count, **__: Any) -> Cost:
        return Cost(0, _count * _numel(out))

    def _interpolate_backward(grad: Any, *_: Any, _count: int = _count, **__: Any) -> Cost:
        return Cost(0, _count * _numel(grad))

    formula(*_names)(_interpolate)
    formula(*(f"{_name}_backward" for _name in _names))(_interpolate_backward)


@formula("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag", "quantized::embedding_bag_byte_rowwise_offsets",
         "quantized::embedding_bag_4bit_rowwise_offsets", "quantized::embedding_bag_byte")  # fmt: skip
def embedding_bag(weight: Any, indices: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    """Every looked-up row is added to its bag."""
    width = out[0].shape[-1] if _several(out) else out.shape[-1]
    return Cost(0, int(_numel(indices) * width)) if hasattr(indices, "shape") else Cost()


@formula("embedding_dense_backward", "_embedding_bag_dense_backward", "_embedding_bag_backward", "embedding_backward",
         "embedding_sparse_backward", "_embedding_bag_sparse_backward")  # fmt: skip
def embedding_backward(grad: Any, *_: Any, **__: Any) -> Cost:
    return Cost(0, _numel(grad))


@formula("index_put", "_index_put_impl", "_unsafe_index_put", "index_add", "scatter_add", "scatter_reduce", "index_reduce",
         "_unsafe_masked_index_put_accumulate")  # fmt: skip
def accumulate(x: Any, *rest: Any, out: Any = None, **kwargs: Any) -> Cost:
    """One addition for each value brought, where values are added and not just placed."""
    placed = kwargs.get("accumulate", rest[2] if len(rest) > 2 and isinstance(rest[2], bool) else True)
    values = next((v for v in reversed(rest) if hasattr(v, "shape")), x)
    return Cost(0, _numel(values)) if placed is not False and _is_float(x) else Cost()


@formula("_fft_c2c", "_fft_r2c", "_fft_c2r")
def fft(x: Any, dims: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    """5 n log2 n for a complex transform of n points, half of it where one side is real."""
    elements = max(_numel(x), _numel(out))
    shape = x.shape if _numel(x) >= _numel(out) else out.shape
    points = prod(shape[d] for d in dims) if isinstance(dims, list | tuple) else shape[dims]
    both_complex = getattr(getattr(x, "dtype", None), "is_complex", True) and getattr(
        out.dtype, "is_complex", True
    )
    return Cost(0, int((5 if both_complex else 2.5) * elements * log2(max(points, 2))))


@formula("_cdist_forward", "cdist", "_pdist_forward", "_euclidean_dist")
def distances(left: Any, right: Any = None, *_: Any, out: Any = None, **__: Any) -> Cost:
    """Difference, power and sum over the width, and a root for each pair."""
    return Cost(0, int(_numel(out) * (3 * left.shape[-1] + 1)))


@formula("_cdist_backward", "_pdist_backward")
def distances_backward(grad: Any, left: Any, *_: Any, **__: Any) -> Cost:
    return Cost(0, int(4 * _numel(grad) * left.shape[-1]))


@formula("_ctc_loss", "_use_cudnn_ctc_loss", "_cudnn_ctc_loss")
def ctc(log_probs: Any, targets: Any, *_: Any, out: Any = None, **__: Any) -> Cost:
    """Three sums and exponentials for each step and each of the 2 n + 1 states of a target."""
    steps = log_probs.shape[0] * (log_probs.shape[1] if len(log_probs.shape) == 3 else 1)
    return Cost(0, int(6 * steps * (2 * targets.shape[-1] + 1)))
