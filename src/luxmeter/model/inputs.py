"""What a model is called with: tensors as given, or sizes to make them from; and what to say when they do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map

from luxmeter.errors import UsageError, suggestion
from luxmeter.model.standin import without_data
from luxmeter.nested import tensors_of
from luxmeter.signature import DTYPE_SPELLINGS, dtype_named


class CallArguments(NamedTuple):
    """Positional and keyword arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def torch_dtype(name: str | torch.dtype) -> torch.dtype:
    """`bf16`, `bfloat16`, `torch.bfloat16` -> torch.bfloat16."""
    if isinstance(name, torch.dtype):
        return name
    plain = dtype_named(str(name))
    found = getattr(torch, plain, None)
    if isinstance(found, torch.dtype):
        return found
    known = [*DTYPE_SPELLINGS, *(n for n in dir(torch) if isinstance(getattr(torch, n), torch.dtype))]
    raise UsageError(
        "no-such-dtype",
        f"{name!r} is no type of number that torch knows.",
        suggestion(plain, known) or "Say float32, bfloat16, float16 or int64, for example.",
    )


def arguments_for(
    model: nn.Module, inputs: Any, *, kwargs: Mapping[str, Any] | None, input_size: Any, input_dtype: Any
) -> CallArguments:
    """How `model` is to be called. Exactly one of `inputs` and `input_size` says with what (none: with nothing)."""
    if inputs is not None and input_size is not None:
        raise UsageError(
            "inputs-twice",
            "Both inputs and input_size were given.",
            "Give the tensors as inputs, or their sizes as input_size.",
        )
    if input_dtype is not None and input_size is None:
        raise UsageError(
            "input-dtype-without-size",
            f"input_dtype={input_dtype!r} was given without input_size: there is nothing to make of that type.",
            "Give input_size with it; tensors given as inputs have their own type.",
        )
    if input_size is not None:
        inputs = from_sizes(input_size, dtype=None if input_dtype is None else torch_dtype(input_dtype))
    named = dict(kwargs or {})
    if isinstance(inputs, Mapping):
        if _takes(model, (), {**inputs, **named}):
            return CallArguments((), {**inputs, **named})
        return CallArguments((inputs,), named)
    if isinstance(inputs, list | tuple) and not hasattr(inputs, "_fields"):
        # A tuple is the arguments; a list is, too, unless the model takes one list.
        as_one = isinstance(inputs, list) and not _takes(model, tuple(inputs), named)
        return CallArguments((inputs,) if as_one else tuple(inputs), named)
    return CallArguments(() if inputs is None else (inputs,), named)


def from_sizes(size: Any, *, dtype: torch.dtype | None) -> Any:
    """Tensors without data for a size (1, 3, 224, 224), several of them, a mapping of names, or text `1,128:int64`."""
    if isinstance(size, str):
        return parse_size(size, dtype=dtype)
    if isinstance(size, Mapping):
        return {name: from_sizes(one, dtype=dtype) for name, one in size.items()}
    if isinstance(size, torch.Size) or (isinstance(size, Sequence) and all(_is_int(n) for n in size)):
        return _empty(tuple(size), dtype or torch.float32)
    if isinstance(size, Sequence):
        return tuple(from_sizes(one, dtype=dtype) for one in size)
    raise UsageError(
        "bad-input-size",
        f"input_size={size!r} is no size.",
        "Give a tuple of numbers with the batch first, like (1, 3, 224, 224), or several of them.",
    )


def parse_size(text: str, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """`1,3,224,224` or `1x128:int64` -> a tensor without data; `dtype` where the text names none."""
    numbers, _, named = text.partition(":")
    parts = numbers.strip().strip("()[]").replace("x", ",").split(",")
    try:
        size = tuple(int(part) for part in parts)
    except ValueError:
        raise UsageError(
            "bad-input-size",
            f"The size {text!r} has a part that is no whole number.",
            "Write it like 1,3,224,224, with a type behind a colon if it is not float32: 1,128:int64.",
        ) from None
    return _empty(size, torch_dtype(named) if named else dtype or torch.float32)


def _empty(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if any(n < 0 for n in size):
        raise UsageError(
            "bad-input-size",
            f"The size {size} has a dimension below zero.",
            "Every dimension needs its length; write 1 for a batch of one.",
        )
    whole = not (dtype.is_floating_point or dtype.is_complex)
    # Whole numbers are indices more often than not: zeros are in every range.
    return torch.zeros(size, dtype=dtype) if whole else torch.empty(size, dtype=dtype, device="meta")


def prepared(call: CallArguments, *, on_meta: bool, dtype: torch.dtype | None) -> CallArguments:
    """The arguments for one run: on meta, or with data where they have none yet; never the caller's own tensors."""

    made_of: dict[int, torch.Tensor] = {}  # a tensor given twice is one tensor here too

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in made_of:
            made_of[id(value)] = fresh(value)
        return made_of[id(value)]

    def fresh(value: torch.Tensor) -> torch.Tensor:
        wanted = dtype if dtype is not None and value.is_floating_point() else value.dtype
        if on_meta:
            made = without_data(value, dtype=wanted)
        elif value.is_meta or (type(value) is not torch.Tensor and _is_fake(value)):
            made = torch.zeros(tuple(value.shape), dtype=wanted)
            if wanted.is_floating_point:
                made.normal_()
        else:
            made = value.detach().to(wanted)
        return made.requires_grad_() if value.requires_grad and made.is_floating_point() else made

    return CallArguments(*tree_map(one, (call.args, call.kwargs)))


def resized(call: CallArguments, batch: int) -> CallArguments:
    """The same arguments with another batch size, where the first dimension is the batch."""
    old = batch_of(call)

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape[0] != old:
            return value
        if value.is_meta:
            return torch.empty((batch, *value.shape[1:]), dtype=value.dtype, device="meta")
        times = -(-batch // max(int(value.shape[0]), 1))
        return value.detach().repeat(times, *[1] * (value.dim() - 1))[:batch].contiguous()

    return CallArguments(*tree_map(one, (call.args, call.kwargs)))


def batch_of(call: CallArguments) -> int | None:
    """The first dimension of the first tensor, taken as the batch."""
    found = next(
        (t for t in tensors_of((call.args, call.kwargs), in_objects=True) if not t.is_nested and t.dim()),
        None,
    )
    return None if found is None else int(found.shape[0])


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_fake(value: torch.Tensor) -> bool:
    return type(value).__name__ == "FakeTensor"


def _takes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return not kwargs
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def explain(model: nn.Module, problem: BaseException) -> UsageError:
    """The error to raise for `problem`, which came out of a run of `model`."""
    index, args, kwargs = getattr(problem, "_luxmeter_failure", (None, (), {}))
    reason = f"{type(problem).__name__}: {(str(problem).strip() or repr(problem)).splitlines()[0][:300].rstrip('. ')}"
    if index is None:
        return UsageError(
            "input-does-not-fit",
            f"{type(model).__name__} did not run with these inputs ({reason}).",
            "Pass what its forward takes as inputs (a tuple of arguments, or a dict of keywords).",
        )
    name, module = list(model.named_modules())[index]
    where = f"Module {name!r} ({type(module).__name__})" if name else f"The model ({type(module).__name__})"
    got = ", ".join(
        f"{_size(t.shape)} {str(t.dtype).removeprefix('torch.')}"
        for t in tensors_of((args, kwargs), in_objects=True)[:6]
    )
    wanted = _wants(module)
    return UsageError(
        "input-does-not-fit",
        f"{where} wanted {wanted} and got {got or 'no tensor'}."
        if wanted
        else f"{where} got {got or 'no tensor'} and stopped.",
        f"{_advice(module, args)}torch said: {reason}."
        if isinstance(problem, _OF_SIZES)
        else f"It raised {reason}: look there first, the size of the input may be right.",
    )


# What torch raises for sizes and types that do not fit; anything else is more likely a fault of the model itself.
_OF_SIZES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


def _size(shape: Any) -> str:
    return "(" + ", ".join(str(int(n)) for n in shape) + ")"


def _wants(module: nn.Module) -> str:
    """What a module of torch takes, in words; empty for modules that do not say."""
    if isinstance(module, nn.Linear):
        return f"a last dimension of {module.in_features}"
    if isinstance(module, nn.Bilinear):
        return f"last dimensions of {module.in1_features} and {module.in2_features}"
    if isinstance(module, nn.modules.conv._ConvNd):
        dims = len(module.kernel_size)
        return f"{module.in_channels} channels in dimension 1 of (batch, channels{', length' * dims})"
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return f"{module.num_features} channels in dimension 1"
    if isinstance(module, nn.GroupNorm):
        return f"{module.num_channels} channels in dimension 1"
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return f"last dimensions {_size(module.normalized_shape)}"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return f"whole numbers (int64) below {module.num_embeddings}"
    if isinstance(module, nn.MultiheadAttention):
        return f"a last dimension of {module.embed_dim}"
    if isinstance(module, nn.RNNBase):
        return f"a last dimension of {module.input_size}"
    return ""


def _advice(module: nn.Module, args: tuple[Any, ...]) -> str:
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and any(
        t.is_floating_point() for t in tensors_of(args, in_objects=True)[:1]
    ):
        return "Pass input_dtype='int64' (on the command line: --input 1,128:int64). "
    return "Check the size of the input (the batch comes first). "
