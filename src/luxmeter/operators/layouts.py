"""What the dimensions of an operator's inputs are called, which inputs are weights, and which numbers are sizes.

Names and shapes only: no tensor is made here.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from luxmeter.operators.case import Case
from luxmeter.operators.resolve import parameter_names, plain_name
from luxmeter.signature import Argument, ListOf, ModuleSpec, TensorSpec, tensors_in

Names = tuple[str, ...]


def _set_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The names of an activation's dimensions, by how many it has, where the operator says nothing else.
_BY_RANK: dict[int, Names] = {
    1: ("batch",),
    2: ("batch", "features"),
    3: ("batch", "sequence", "features"),
    4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}
_SPATIAL: dict[int, Names] = {1: ("sequence",), 2: ("height", "width"), 3: ("depth", "height", "width")}
GROWS_WITH_DATA = ("batch", "sequence", "height", "width", "depth")  # weights do not grow with these

# Arguments that are weights or statistics, by the names their declarations have.
_WEIGHTS = {"weight", "bias", "mat2", "vec", "vec2", "running_mean", "running_var", "save_mean", "save_invstd", "params",
            "bias_sizes", "weight1", "weight2", "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias",
            "w_ih", "w_hh", "b_ih", "b_hh", "scale", "zero_point"}  # fmt: skip
_WEIGHT_PER_SAMPLE = re.compile(r"binary_cross_entropy|mse_loss|l1_loss|huber_loss|smooth_l1")
_MANY_WEIGHTS = re.compile(r"_foreach_|_fused_|_amp_|(kaiming|xavier|orthogonal|trunc_normal)_")

_BROADCAST = _set_of(
    "add sub mul div true_divide divide floor_divide multiply subtract rsub pow float_power where maximum minimum fmax fmin "
    "eq ne lt le gt ge equal less greater not_equal less_equal greater_equal addcmul addcdiv lerp masked_fill masked_select "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor and or xor iand ior ixor fmod remainder mod atan2 "
    "arctan2 hypot clamp clip clamp_min clamp_max copy copysign nextafter ldexp xlogy isclose allclose truediv floordiv "
    "iadd isub imul itruediv ifloordiv ipow imod gcd lcm heaviside logaddexp logaddexp2 polar complex dist "
    "bitwise_left_shift bitwise_right_shift lshift rshift broadcast_tensors expand expand_copy broadcast_to"
)
_MATRICES = _set_of(
    "inverse cholesky cholesky_solve cholesky_inverse det logdet slogdet matrix_exp matrix_power pinverse lu lu_solve "
    "lu_unpack triangular_solve svd qr geqrf ormqr orgqr trace householder_product chain_matmul"
)
_NORMS = _set_of(
    "batch_norm native_batch_norm cudnn_batch_norm instance_norm group_norm native_group_norm _native_batch_norm_legit "
    "native_batch_norm_backward native_group_norm_backward convolution _convolution convolution_backward "
    "channel_shuffle GroupNorm ChannelShuffle prelu PReLU"
)
_LAST_IS_FEATURES = ("linear", "Linear", "matmul", "inner", "bilinear", "Bilinear")
_RECURRENT = _set_of("RNN LSTM GRU lstm gru rnn_tanh rnn_relu")
_ATTENTION = _set_of(
    "MultiheadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer "
    "multi_head_attention_forward"
)
_PADDING_MASK = (
    "key_padding_mask",
    "src_key_padding_mask",
    "tgt_key_padding_mask",
    "memory_key_padding_mask",
)
_ATTENTION_MASK = ("attn_mask", "src_mask", "tgt_mask", "memory_mask", "mask")

# Operators whose sizes are those of what they give, as a list or as numbers one after another.
_RESHAPES = _set_of("view reshape _unsafe_view view_copy _reshape_alias _reshape_copy")
_GIVES = _set_of(
    "zeros ones empty rand randn full randint expand expand_copy broadcast_to new_zeros new_ones new_empty new_full "
    "empty_strided new_empty_strided as_strided as_strided_copy normal resize affine_grid affine_grid_generator"
)
_COUNTS = _set_of(
    "randperm linspace logspace eye hann_window hamming_window bartlett_window blackman_window kaiser_window "
    "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall"
)
_COUNT_NAMES = ("n", "steps", "window_length", "M")


@dataclass(frozen=True)
class NamedArgument:
    """One argument: by which name, and what it is. `slot` is its position, or its keyword."""

    slot: int | str
    name: str
    value: Argument


class Layout:
    """The dimensions of one case."""

    def __init__(self, case: Case) -> None:
        self.op, self.plain = case.op, plain_name(case.op)
        self.arguments = tuple(_named_arguments(case))
        self.given = {argument.name: argument.value for argument in self.arguments}
        self.module = next((p.value for p in self.arguments if isinstance(p.value, ModuleSpec)), None)
        self.settings: dict[str, Any] = dict(self.module.settings) if self.module is not None else {}
        self._letters = self._einsum()
        ranks = [len(t.shape) for _, t, _ in self.tensors()] + [len(self.sizes_in(p)) for p in self.arguments]
        self.most = max(ranks, default=0)

    def dimensions(self) -> dict[str, int]:
        """Name -> size, from what the operator works on: its first input that is no weight, or the sizes it is given."""
        if _MANY_WEIGHTS.search(self.plain):
            return {}
        found: dict[str, int] = {}
        first = True
        for names, shape in self.data():
            if not shape:
                continue
            for name, size in zip(names, shape, strict=False):
                # A size of 1 in one operand is spread over the other's; -1 is the other's.
                if (
                    name
                    and size >= 0
                    and ((first and name not in found) or (self.broadcasts and found.get(name, 1) == 1))
                ):
                    found[name] = size
            first = False
        return found

    @property
    def broadcasts(self) -> bool:
        """Whether operands of fewer dimensions are aligned at the last one."""
        return self.plain in _BROADCAST

    def data(self) -> Iterator[tuple[Names, tuple[int, ...]]]:
        """(names, shape) of everything that is data: sizes that are given, then tensors."""
        if ending := self.range_end():
            start = next(
                (
                    p.value
                    for p in self.arguments
                    if p is not ending[0] and type(p.value) is int and p.slot == 0
                ),
                0,
            )
            yield ("batch",), ((ending[0].value - start) // ending[1],)
        for argument in self.arguments:
            sizes = self.sizes_in(argument)
            if sizes and self.plain not in _RESHAPES:
                yield self.names(argument.name, len(sizes)), sizes
        for argument, tensor, index in self.tensors():
            if not self.is_weight(argument, tensor):
                yield self.names(argument.name, len(tensor.shape), index), tensor.shape

    def tensors(self) -> Iterator[tuple[NamedArgument, TensorSpec, int]]:
        """Every tensor outside modules, with its argument and its number."""
        number = itertools.count()
        for argument in self.arguments:
            if not isinstance(argument.value, ModuleSpec):
                yield from ((argument, tensor, next(number)) for tensor in tensors_in(argument.value))

    def is_weight(self, argument: NamedArgument, tensor: TensorSpec) -> bool:
        """Whether a tensor keeps its size when the data grows."""
        if tensor.kind == "Parameter":
            return True
        if argument.name in _WEIGHTS:
            return not (argument.name == "mat2" and len(tensor.shape) > 2) and not _WEIGHT_PER_SAMPLE.search(
                self.plain
            )
        if self.plain in ("matmul", "inner") and argument.name == "other":
            return len(tensor.shape) < 3
        return self.plain == "addmm" and argument.name == "self" and len(tensor.shape) < 2

    def names(self, argument: str, rank: int, index: int = 0) -> Names:
        """What the dimensions of a tensor of this rank are called in this argument."""
        plain = self.plain
        if plain == "setitem" and argument == "value":
            return self._left_by_index(rank)
        if self._letters:
            return self._letters[min(index, len(self._letters) - 1)]
        if plain in _RECURRENT:
            return self._recurrent(argument, rank)
        if plain in _ATTENTION and argument in (*_PADDING_MASK, *_ATTENTION_MASK):
            return self._masks(argument, rank)
        if plain in _ATTENTION and rank == 3 and not self.settings.get("batch_first", False):
            return ("sequence", "batch", "features")
        if plain in _ATTENTION and rank == 2:
            return ("sequence", "features")
        if plain == "scaled_dot_product_attention":
            return ("batch", "heads", "sequence", "features")[-rank:] if argument != "attn_mask" else \
                ("batch", "heads", "sequence", "sequence")[-rank:]  # fmt: skip
        if "ctc" in plain.lower():
            return self._ctc(argument, rank)
        if plain in _MATRICES or "linalg" in self.op:
            return (
                (*_BY_RANK.get(rank - 2, _unnamed(rank - 2)), "rows", "columns") if rank >= 2 else ("rows",)
            )
        if plain in _NORMS and rank >= 3:
            return ("batch", "channels", *_SPATIAL.get(rank - 2, ("",) * (rank - 2)))
        if (planes := re.search(r"([123])d(?![a-z])", plain.lower())) and not plain.startswith("atleast"):
            return self._planes(int(planes[1]), rank)
        if rank == 1 and plain in _LAST_IS_FEATURES:
            return ("features",)
        if "layer_norm" in plain or plain in ("rms_norm", "LayerNorm", "RMSNorm"):
            return self._normalized(rank)
        if self.broadcasts and rank < self.most:
            whole = _BY_RANK.get(self.most, _unnamed(self.most))
            return whole[-rank:] if rank else ()
        return _BY_RANK.get(rank, _unnamed(rank))

    def sizes_in(self, argument: NamedArgument) -> tuple[int, ...]:
        """The whole shape that an argument says in numbers."""
        if self.plain in _RESHAPES | _GIVES and argument.name in ("size", "shape"):
            return _whole_numbers(argument.value)
        if self.plain in _COUNTS and argument.name in _COUNT_NAMES:
            return (argument.value,) if type(argument.value) is int else ()
        if self.plain.endswith("_backward") and argument.name in ("input_size", "input_sizes", "self_sizes"):
            return _whole_numbers(argument.value)
        return ()

    def range_end(self) -> tuple[NamedArgument, int] | None:
        """The argument that ends an arange of whole numbers in whole steps, and the step."""
        if self.plain != "arange":
            return None
        numbers = [p for p in self.arguments if p.slot in (0, 1, 2) or p.name in ("start", "end", "step")]
        if not numbers or any(type(p.value) is not int for p in numbers):
            return None
        step = next((p.value for p in numbers if p.name == "step" or p.slot == 2), 1)
        end = next((p for p in numbers if p.name == "end" and isinstance(p.slot, str)), None)
        end = end or next((p for p in numbers if p.slot == 1), numbers[0])
        start = next((p.value for p in numbers if p is not end and (p.slot == 0 or p.name == "start")), 0)
        return (end, step) if step and (end.value - start) > 0 and (end.value - start) % step == 0 else None

    @property
    def reshapes(self) -> bool:
        """Whether the sizes it is given are another form of its input."""
        return self.plain in _RESHAPES

    def _recurrent(self, argument: str, rank: int) -> Names:
        if argument not in ("input", "self", "data"):
            return ("layers", "batch", "hidden") if rank == 3 else ("layers", "hidden")
        if rank < 3:
            return ("sequence", "features")
        first = self.settings.get("batch_first", self.given.get("batch_first", False))
        return ("batch", "sequence", "features") if first else ("sequence", "batch", "features")

    def _masks(self, argument: str, rank: int) -> Names:
        if argument in _PADDING_MASK:
            return ("batch", "sequence") if rank == 2 else ("sequence",)
        return ("batch x heads", "sequence", "sequence") if rank == 3 else ("sequence", "sequence")

    def _ctc(self, argument: str, rank: int) -> Names:
        if argument in ("log_probs", "input"):
            return ("sequence", "batch", "features") if rank == 3 else ("sequence", "features")
        return ("batch", "labels")[:rank] if argument != "targets" or rank == 2 else ("labels",)

    def _normalized(self, rank: int) -> Names:
        """Dimensions that are normalized over are features, whatever their place."""
        shape = self.given.get("normalized_shape", self.settings.get("normalized_shape", ()))
        over = 1 if type(shape) is int else len(_whole_numbers(shape))
        names = _BY_RANK.get(rank, _unnamed(rank))
        free = max(rank - over, 0)
        return (*names[:free], *(n if n not in GROWS_WITH_DATA else "" for n in names[free:]))

    def _planes(self, n: int, rank: int) -> Names:
        """conv2d and its like: with a batch, or a single sample."""
        if rank == n + 2:
            return ("batch", "channels", *_SPATIAL[n])
        if rank == n + 1:
            per_feature = n == 1 and "norm" in self.plain.lower() and "instance" not in self.plain.lower()
            return ("batch", "features") if per_feature else ("channels", *_SPATIAL[n])
        return _BY_RANK.get(rank, _unnamed(rank))

    def _left_by_index(self, rank: int) -> Names:
        """x[index] = value: the dimensions of x that no number takes away, aligned at the last."""
        shape = getattr(self.given.get("self"), "shape", ())
        index = self.given.get("index")
        items = index if isinstance(index, tuple) else (index,)
        kept = [name for i, name in enumerate(self.names("self", len(shape)))
                if i >= len(items) or type(items[i]) is not int]  # fmt: skip
        return tuple(["", *kept][-rank:]) if 0 < rank <= len(kept) else ("",) * rank

    def _einsum(self) -> tuple[Names, ...]:
        """The letters of einsum, as names: those of the first operand by their place."""
        text = next((p.value for p in self.arguments if isinstance(p.value, str)), "")
        if self.plain != "einsum" or not text or "." in text:
            return ()
        operands = text.replace(" ", "").partition("->")[0].split(",")
        known = dict(
            zip(operands[0], _BY_RANK.get(len(operands[0]), _unnamed(len(operands[0]))), strict=True)
        )
        return tuple(tuple(known.get(letter, "") for letter in operand) for operand in operands)


def _unnamed(rank: int) -> Names:
    return ("batch", *[""] * (rank - 1)) if rank > 0 else ()


def _named_arguments(case: Case) -> Iterator[NamedArgument]:
    """The arguments under their declared names; the sizes of what an operator gives are called `size`."""
    args, plain = case.signature.args, plain_name(case.op)
    names = _argument_names(case)
    start, end = _sizes_at(plain, args)
    for i, value in enumerate(args[:start]):
        yield NamedArgument(i, names[i] if i < len(names) else f"#{i}", value)
    if start < end:
        yield NamedArgument(start, "size", args[start] if _whole_numbers(args[start]) else args[start:end])
    for i, value in enumerate(args[end:], end):
        yield NamedArgument(i, names[i] if i < len(names) else f"#{i}", value)
    for name, value in case.signature.kwargs:
        yield NamedArgument(name, name, value)


def _sizes_at(plain: str, args: tuple[Argument, ...]) -> tuple[int, int]:
    """Where the sizes lie: one list, or numbers one after another. Declarations tell only of lists."""
    if plain in _RESHAPES | _GIVES:
        for i, value in enumerate(args):
            if isinstance(value, tuple | ListOf) and _whole_numbers(value):
                return i, i + 1
        first = next((i for i, value in enumerate(args) if not isinstance(value, TensorSpec)), len(args))
        end = first
        while plain not in _LISTS_ONLY and end < len(args) and type(args[end]) is int:
            end += 1
        return first, end
    return len(args), len(args)


def _argument_names(case: Case) -> Names:
    args = case.signature.args
    if args and isinstance(args[0], ModuleSpec):
        forward = getattr(getattr(torch.nn, args[0].name.rpartition(".")[2], None), "forward", None)
        return (
            ("module", *tuple(inspect.signature(forward).parameters)[1:])
            if forward is not None
            else ("module",)
        )
    plain = plain_name(case.op)
    if plain in _BY_HAND:
        return _BY_HAND[plain]
    return parameter_names(case.op, len(args), tuple(k for k, _ in case.signature.kwargs))


# Where several declarations of one name differ in what they call the numbers.
_BY_HAND: dict[str, Names] = {
    "einsum": ("equation",), "split": ("self", "split_size", "dim"), "tensor_split": ("self", "split_size", "dim"),
    "split_with_sizes": ("self", "split_size", "dim"), "getitem": ("self", "index"), "setitem": ("self", "index", "value"),
    "linspace": ("start", "end", "steps"), "logspace": ("start", "end", "steps"), "eye": ("n", "m"),
}  # fmt: skip
_LISTS_ONLY = ("full", "randint", "normal", "as_strided", "as_strided_copy", "empty_strided", "new_empty_strided",
               "new_full", "affine_grid", "affine_grid_generator")  # fmt: skip


def _whole_numbers(value: Argument) -> tuple[int, ...]:
    items = value.items if isinstance(value, ListOf) else value
    return items if isinstance(items, tuple) and all(type(n) is int for n in items) else ()
