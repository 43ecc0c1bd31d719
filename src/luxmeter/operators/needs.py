"""What an operator needs of its inputs' values so that it runs as the real call did: indices within range,
probabilities, positive-definite matrices. Shapes and names only: no tensor is made here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from luxmeter.signature import Argument, ListOf, ModuleSpec, SliceOf, TensorSpec, Word

# What a rule gets: arguments by name. What it gives: (name, position in a list or 0) -> need.
Given = dict[str, Argument]
Needs = dict[tuple[str, int], "Need"]


@dataclass(frozen=True)
class Need:
    """What must hold for one tensor's values. `low` and `high` are inclusive."""

    low: float | None = None
    high: float | None = None
    count: int | None = None  # exactly so many True
    rows: tuple[int, ...] = ()  # row i of the tensor stays below rows[i]
    total: int | None = None  # the values sum to it (lengths), or are rising positions in so many (offsets)
    kind: str = ""  # probabilities, positive_definite, triangular, regular, rising, lengths, signs
    room: int = 0  # the storage has at least so many values


def needs_of(name: str, given: Given) -> Needs:
    """The needs of the operator with this plain name (`add`, `index_put`) for these arguments."""
    rule = _RULES.get(name)
    return {} if rule is None else rule(given)


def index_needs(shape: tuple[int, ...], items: Iterable[Argument], values: Argument, *, name: str) -> Needs:
    """x[items] and x[items] = values: each index within its dimension, each mask with as many True as fit."""
    items = list(items)
    needs: Needs = {}
    counts = [
        i.shape[0] for i in items if isinstance(i, TensorSpec) and i.dtype not in _MASKS and len(i.shape) == 1
    ]
    masks = [i for i in items if isinstance(i, TensorSpec) and i.dtype in _MASKS]
    taken = sum(_consumed(i) for i in items)
    dim = number = 0
    for item in items:
        if isinstance(item, Word) and item.kind == "ellipsis":
            dim += len(shape) - taken
            continue
        if isinstance(item, TensorSpec):
            if item.dtype in _MASKS:
                count = next((n for n in counts if n != 1), None)
                if (
                    count is None
                    and isinstance(values, TensorSpec)
                    and len(values.shape) > len(shape) - taken
                ):
                    count = values.shape[0] if values.shape[0] != 1 else None
                if count is None and len(masks) > 1:
                    count = min(m.numel for m in masks) // 2
                needs[name, number] = Need(count=None if count is None else min(count, item.numel))
            elif dim < len(shape):
                needs[name, number] = Need(low=0, high=max(shape[dim] - 1, 0))
            number += 1
        dim += _consumed(item)
    return needs


_MASKS = ("bool", "uint8")


def _consumed(item: Argument) -> int:
    """How many dimensions of the indexed tensor an index stands for."""
    if isinstance(item, TensorSpec):
        return len(item.shape) if item.dtype in _MASKS else 1
    return 1 if isinstance(item, int | SliceOf) and not isinstance(item, bool) else 0


def _shape(given: Given, *names: str) -> tuple[int, ...]:
    for name in names:
        value = given.get(name)
        if isinstance(value, TensorSpec):
            return value.shape
        if isinstance(value, ModuleSpec):
            return _shape(dict(value.tensors), "weight")
    return ()


def _along(given: Given, *, index: tuple[str, ...], of: tuple[str, ...] = ("self", "input")) -> Needs:
    """An index into dimension `dim` of another argument."""
    shape, dim = _shape(given, *of), given.get("dim", 0)
    size = math.prod(shape) if dim is None else shape[dim] if shape and isinstance(dim, int) else 1
    return _each(given, index, Need(low=0, high=max(size - 1, 0)))


def _each(given: Given, names: Iterable[str], need: Need) -> Needs:
    return {(name, 0): need for name in names if isinstance(given.get(name), TensorSpec)}


def _integers(given: Given, names: Iterable[str], need: Need) -> Needs:
    return {key: n for key, n in _each(given, names, need).items() if "int" in given[key[0]].dtype}


def _numel(given: Given, *, index: str) -> Needs:
    return _each(given, [index], Need(low=0, high=max(math.prod(_shape(given, "self", "input")) - 1, 0)))


def _classes(given: Given, *, target: str = "target", lowest: int = 0) -> Needs:
    """Class numbers for an input with the classes in dimension 1 (0 for a single sample), or probabilities."""
    shape = _shape(given, "self", "input", "module_input")
    goal = given.get(target)
    if not isinstance(goal, TensorSpec) or not shape:
        return {}
    if goal.dtype.startswith(("float", "bfloat")):
        return {(target, 0): Need(kind="probabilities")}
    classes = shape[1] if len(shape) > 1 else shape[0]
    return {
        (target, 0): Need(low=lowest, high=max(classes - 1, 0)),
        **_each(given, ["total_weight"], Need(low=1, high=2)),
    }


def _embedding(given: Given) -> Needs:
    weight = given.get("weight")
    rows = weight.shape[0] if isinstance(weight, TensorSpec) and weight.shape else given.get("num_weights", 1)
    if isinstance(given.get("module"), ModuleSpec):
        rows = dict(given["module"].settings).get("num_embeddings", 1)
    needs = _integers(given, ["indices", "input"], Need(low=0, high=max(int(rows) - 1, 0)))
    indices = given.get("indices", given.get("input"))
    total = indices.numel if isinstance(indices, TensorSpec) else 0
    needs.update(_each(given, ["offsets"], Need(kind="rising", total=total)))
    bags = _shape(given, "grad") or (1,)
    needs.update(_each(given, ["offset2bag"], Need(low=0, high=max(bags[0] - 1, 0))))
    return needs


def _index(given: Given) -> Needs:
    items = given.get("indices", given.get("#1"))
    shape = _shape(given, "self", "#0")
    if isinstance(items, ListOf):
        # In aten's list, None stands for a whole dimension, not for a new one.
        whole = [SliceOf(None, None, None) if i is None else i for i in items.items]
        return index_needs(shape, whole, given.get("values"), name="indices")
    return index_needs(shape, items if isinstance(items, tuple) else (items,), given.get("#2"), name="#1")


def _pooled(given: Given) -> Needs:
    """Positions inside the plane that was pooled (for unpooling: at least as large as what is given)."""
    shape, indices = _shape(given, "self", "input"), given.get("indices")
    if not isinstance(indices, TensorSpec) or not shape:
        return {}
    kernel = given.get("kernel_size")
    plane = (
        len(kernel.items) if isinstance(kernel, ListOf) else 3 if len(shape) == 5 else min(2, len(shape) - 1)
    )
    return {("indices", 0): Need(low=0, high=max(math.prod(shape[-plane:]) - 1, 0))}


def _divisor(given: Given) -> Needs:
    return {
        **_integers(given, ["other"], Need(low=1, high=9)),
        **_integers(given, ["#1"], Need(low=1, high=9)),
    }


def _sparse(given: Given) -> Needs:
    size = given.get("size")
    rows = size.items if isinstance(size, ListOf) else size if isinstance(size, tuple) else ()
    return _each(given, ["indices"], Need(rows=tuple(int(n) for n in rows)))


def _as_strided(given: Given) -> Needs:
    size, stride, offset = given.get("size"), given.get("stride"), given.get("storage_offset")
    sizes, steps = (
        [*v.items] if isinstance(v, ListOf) else [*v] if isinstance(v, tuple) else [] for v in (size, stride)
    )
    if not sizes or 0 in sizes or len(sizes) != len(steps):
        return {}
    room = (
        1
        + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        + (offset if isinstance(offset, int) else 0)
    )
    return _each(given, ["self", "input"], Need(room=room))


def _ctc(given: Given) -> Needs:
    shape, targets = _shape(given, "log_probs"), given.get("targets")
    if len(shape) < 2 or not isinstance(targets, TensorSpec):
        return {}
    blank = given.get("blank", 0)
    labels = Need(low=1, high=max(shape[-1] - 1, 1)) if blank == 0 else Need(low=0, high=max(blank - 1, 0))
    lengths = given.get("target_lengths")
    total = targets.numel if len(targets.shape) == 1 and isinstance(lengths, TensorSpec) else None
    goal = (
        Need(kind="lengths", total=total)
        if total is not None
        else Need(low=1, high=(targets.shape or (1,))[-1])
    )
    return {
        ("targets", 0): labels,
        **_each(given, ["input_lengths"], Need(low=shape[0], high=shape[0])),
        **_each(given, ["target_lengths"], goal),
    }


def _masked_scatter(given: Given) -> Needs:
    source, mask = given.get("source"), given.get("mask")
    if not isinstance(source, TensorSpec) or not isinstance(mask, TensorSpec):
        return {}
    spread = max(1, math.prod(_shape(given, "self")) // max(1, mask.numel))
    return {("mask", 0): Need(count=min(mask.numel // 2, source.numel // spread))}


def _one_hot(given: Given) -> Needs:
    classes = given.get("num_classes", given.get("#1", -1))
    high = classes - 1 if isinstance(classes, int) and classes > 0 else 9
    return _each(given, ["self", "tensor", "input"], Need(low=0, high=high))


def _segments(given: Given) -> Needs:
    shape, axis = _shape(given, "data"), given.get("axis", 0)
    size = shape[axis] if shape and isinstance(axis, int) else 0
    return {
        **_each(given, ["lengths"], Need(kind="lengths", total=size)),
        **_each(given, ["offsets"], Need(kind="rising", total=size)),
    }


def _repeat_interleave(given: Given) -> Needs:
    total = given.get("output_size")
    need = Need(kind="lengths", total=total) if isinstance(total, int) else Need(low=1, high=3)
    if not isinstance(given.get("repeats"), TensorSpec):
        return _integers(given, ["self"], need) if _shape(given, "self") and len(given) == 1 else {}
    return _each(given, ["repeats"], need)


def _unravel(given: Given) -> Needs:
    shape = given.get("shape", given.get("#1"))
    sizes = shape.items if isinstance(shape, ListOf) else shape if isinstance(shape, tuple) else (shape,)
    whole = math.prod(n for n in sizes if isinstance(n, int))
    return _each(given, ["indices", "#0"], Need(low=0, high=max(whole - 1, 0)))


def _always(names: Iterable[str], need: Need) -> Callable[[Given], Needs]:
    kept = tuple(names)
    return lambda given: _each(given, kept, need)


def _along_dim(*index: str, of: tuple[str, ...] = ("self", "input")) -> Callable[[Given], Needs]:
    return lambda given: _along(given, index=index, of=of)


_UNIT = Need(low=0.0, high=1.0)
_MATRIX = ("self", "A", "input", "LU_data", "#0")


def _named(names: str, rule: Callable[[Given], Needs]) -> dict[str, Callable[[Given], Needs]]:
    return dict.fromkeys(names.split(), rule)


_RULES: dict[str, Callable[[Given], Needs]] = {
    **_named("gather scatter scatter_add scatter_reduce index_select index_add index_copy index_fill index_reduce",
             _along_dim("index")),
    **_named("take_along_dim", _along_dim("indices")),
    **_named("take put", lambda g: _numel(g, index="index")),
    **_named("index index_put _index_put_impl _unsafe_index _unsafe_index_put getitem setitem", _index),
    **_named("embedding embedding_dense_backward embedding_backward embedding_bag _embedding_bag embedding_renorm "
             "_embedding_bag_forward_only _embedding_bag_per_sample_weights_backward Embedding EmbeddingBag", _embedding),
    **_named("nll_loss nll_loss_forward nll_loss_backward nll_loss2d nll_loss2d_forward nll_loss2d_backward nll_loss_nd "
             "cross_entropy cross_entropy_loss multi_margin_loss NLLLoss CrossEntropyLoss", _classes),
    **_named("multilabel_margin_loss multilabel_margin_loss_forward", lambda g: _classes(g, lowest=-1)),
    **_named("ctc_loss _ctc_loss", _ctc),
    **_named("max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward "
             "adaptive_max_pool3d_backward fractional_max_pool2d_backward max_unpool1d max_unpool2d max_unpool3d", _pooled),
    **_named("floor_divide remainder fmod floordiv mod div true_divide divide rfloordiv", _divisor),
    **_named("pow float_power", lambda g: _integers(g, ["exponent", "other", "#1"], Need(low=0, high=3))),
    **_named("bitwise_left_shift bitwise_right_shift lshift rshift",
             lambda g: _integers(g, ["other", "#1"], Need(low=0, high=4))),
    **_named("bernoulli", _always(["p", "self"], _UNIT)),
    **_named("multinomial", _always(["self", "input"], Need(kind="probabilities"))),
    **_named("binary_cross_entropy BCELoss binary_cross_entropy_backward", _always(["self", "input", "target"], _UNIT)),
    **_named("binomial", lambda g: {**_each(g, ["count"], Need(low=1, high=9)), **_each(g, ["prob"], _UNIT)}),
    **_named("poisson _standard_gamma _sample_dirichlet", _always(["self"], Need(low=0.5, high=2))),
    **_named("normal", _always(["std"], Need(low=0.1, high=1))),
    **_named("cholesky linalg_cholesky linalg_cholesky_ex cholesky_ex", _always(_MATRIX, Need(kind="positive_definite"))),
    **_named("cholesky_inverse", _always(_MATRIX, Need(kind="triangular"))),
    **_named("cholesky_solve", _always(["input2", "L"], Need(kind="triangular"))),
    **_named("triangular_solve linalg_solve_triangular solve_triangular", _always(["A", "self"], Need(kind="triangular"))),
    **_named("inverse inv linalg_inv inv_ex linalg_inv_ex solve linalg_solve linalg_solve_ex tensorinv linalg_tensorinv "
             "logdet slogdet linalg_slogdet lu_factor linalg_lu_factor", _always(_MATRIX, Need(kind="regular"))),
    **_named("lu_solve linalg_lu_solve lu_unpack", lambda g: {
        **_each(g, ["LU_pivots", "pivots"], Need(low=1, high=1)), **_each(g, ["LU_data", "LU"], Need(kind="regular"))}),
    **_named("native_batch_norm batch_norm _native_batch_norm_legit native_batch_norm_backward cudnn_batch_norm instance_norm",
             _always(["running_var", "save_invstd"], Need(low=0.5, high=2))),
    **_named("gaussian_nll_loss", _always(["var"], Need(low=0.5, high=2))),
    **_named("hinge_embedding_loss cosine_embedding_loss margin_ranking_loss soft_margin_loss",
             _always(["target"], Need(kind="signs"))),
    **_named("bincount", _always(["self", "input"], Need(low=0, high=9))),
    **_named("one_hot", _one_hot),
    **_named("bucketize", _always(["boundaries"], Need(kind="rising"))),
    **_named("searchsorted", _always(["sorted_sequence"], Need(kind="rising"))),
    **_named("_sparse_coo_tensor_with_dims_and_tensors sparse_coo_tensor _sparse_coo_tensor_unsafe", _sparse),
    **_named("as_strided", _as_strided),
    **_named("masked_scatter", _masked_scatter),
    **_named("segment_reduce", _segments),
    **_named("repeat_interleave", _repeat_interleave),
    **_named("unravel_index", _unravel),
    **_named("grid_sampler grid_sampler_2d grid_sampler_3d grid_sample grid_sampler_2d_backward",
             _always(["grid"], Need(low=-1.0, high=1.0))),
    **_named("tensor_split", _always(["tensor_indices_or_sections"], Need(kind="rising", total=2))),
}  # fmt: skip
