"""Forward and backward of a MindSpore call: the sum of its floating-point results, to its inputs and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore
from luxmeter.operators.counterparts.calling import MindSporeCall
from luxmeter.operators.counterparts.values import NotConvertible

_FLOATS = (mindspore.float64, mindspore.float32, mindspore.float16, mindspore.bfloat16)


def backward_on(call: MindSporeCall) -> Callable[[], Any]:
    """What runs both and gives the forward's results. Inputs inside lists get no gradient of their own."""
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
