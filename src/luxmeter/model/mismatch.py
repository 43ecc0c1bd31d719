"""When inputs do not fit: which module wanted what and got what."""

from __future__ import annotations

from typing import Any

from torch import nn

from luxmeter.errors import UsageError
from luxmeter.model.watch import tensors_in


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
        f"{_size(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in tensors_in((args, kwargs))[:6]
    )
    wanted = wants(module)
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


def wants(module: nn.Module) -> str:
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
        t.is_floating_point() for t in tensors_in(args)[:1]
    ):
        return "Pass input_dtype='int64' (on the command line: --input 1,128:int64). "
    return "Check the size of the input (the batch comes first). "
