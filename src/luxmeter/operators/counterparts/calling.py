"""A call of torch -> the call of MindSpore that a target says, forward or with its backward.

Import this only where both frameworks are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore
from luxmeter.operators.counterparts import Target, compositions
from luxmeter.operators.counterparts.values import NotConvertible, to_mindspore
from luxmeter.operators.resolve import parameter_names

# They say where and how a result lies, not what it is; MindSpore has one device and one layout here.
_PLACE = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "requires_grad", "generator"}
_FLOATS = (mindspore.float64, mindspore.float32, mindspore.float16, mindspore.bfloat16)


@dataclass(frozen=True)
class MindSporeCall:
    """What to call, with MindSpore's values."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """Call it once."""
        return self.function(*self.args, **self.kwargs)


def call_on(target: Target, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> MindSporeCall:
    """torch's arguments of `op`, converted and arranged for `target`; NotConvertible where that cannot be."""
    if kwargs.get("out") is not None:
        raise NotConvertible("out=")
    given = {k: v for k, v in kwargs.items() if k not in _PLACE and k != "out"}
    values = arranged(target, op, to_mindspore(tuple(args)), to_mindspore(given))
    return MindSporeCall(named(target.name), *values)


def arranged(
    target: Target, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments where the target wants them."""
    names = dict(target.names)
    if target.how == "packed":
        loose = len(args)
        while loose > 1 and isinstance(args[loose - 1], int) and not isinstance(args[loose - 1], bool):
            loose -= 1
        if loose < len(args):
            args = (*args[:loose], tuple(args[loose:]))
    elif target.how == "unpacked" and args and isinstance(args[-1], list | tuple):
        args = (*args[:-1], *args[-1])
    elif target.how == "by_name":
        known = parameter_names(op, len(args), tuple(kwargs))
        if len(known) < len(args):
            raise NotConvertible(f"the arguments of {op} have no names")
        kwargs = {**dict(zip(known[1:], args[1:], strict=False)), **kwargs}
        args = args[:1]
    kwargs = {names.get(k, k): v for k, v in kwargs.items() if names.get(k, k)}
    return args, {**kwargs, **{k: v for k, v in target.fixed if k not in kwargs}}


@functools.cache
def named(name: str) -> Callable[..., Any]:
    """The callable behind a target's name; AttributeError if this MindSpore has none."""
    first, *rest = name.split(".")
    found: Any = {"Tensor": mindspore.Tensor, "mindspore": mindspore, "composed": compositions}.get(first)
    if found is None:
        raise AttributeError(f"{name} is no name of MindSpore")
    for part in rest:
        found = getattr(found, part)
    if isinstance(found, property) or not callable(found):
        return functools.partial(_read, rest[-1])
    return found  # type: ignore[no-any-return]


def _read(name: str, tensor: Any, *_: Any) -> Any:
    return getattr(tensor, name)


def backward_on(call: MindSporeCall) -> Callable[[], Any]:
    """What runs forward and backward, the sum of the floating-point results to inputs and weights, and gives the results.

    Inputs inside lists get no gradient of their own.
    """
    places = [i for i, a in enumerate(call.args) if isinstance(a, mindspore.Tensor) and a.dtype in _FLOATS]
    weights = call.function.trainable_params() if isinstance(call.function, mindspore.nn.Cell) else []
    if not places and not weights:
        raise NotConvertible("no input can have a gradient")

    def forward(*tensors: Any) -> Any:
        args = list(call.args)
        for place, tensor in zip(places, tensors, strict=True):
            args[place] = tensor
        result = call.function(*args, **call.kwargs)
        outputs = [t for t in (result if isinstance(result, list | tuple) else [result])
                   if isinstance(t, mindspore.Tensor) and t.dtype in _FLOATS]  # fmt: skip
        if not outputs:
            raise NotConvertible("its outputs have no gradient")
        total = outputs[0].sum()
        for output in outputs[1:]:
            total = total + output.sum()
        return total, result

    both = mindspore.value_and_grad(
        forward, grad_position=tuple(range(len(places))) or None, weights=weights or None, has_aux=True
    )
    tensors = [call.args[i] for i in places]

    def run() -> Any:
        (_, result), _ = both(*tensors)
        return result

    return run
