"""Where a nan arises: the first call of torch that makes one out of arguments without."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode, resolve_name

from luxmeter.errors import LuxmeterError
from luxmeter.nested import found_in, tensors_of

_UNSET = ("empty", "new_empty", "resize")  # what they give is not set yet, and may be anything


class StopAtNaN(TorchFunctionMode):
    """Inside, that call raises, so that the traceback ends in the line that made it. With `inf`, the same for infinities.

    Every call is looked at: this is for finding a fault, and slow.
    """

    def __init__(self, *, inf: bool = False) -> None:
        super().__init__()
        self._inf = inf

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        before = [_ranged(value) for value in _numbers((args, kwargs))]
        was_there = any(self._is_bad(value) for value in _numbers((args, kwargs)))
        out = func(*args, **kwargs)
        if was_there or name.startswith(_UNSET) or name in ("__get__", "__set__", "backward"):
            return out
        for value in found_in(out, lambda one: isinstance(one, Tensor)):
            if self._is_bad(value):
                called = resolve_name(func) or name
                bad = int((~torch.isfinite(value)).sum() if self._inf else torch.isnan(value).sum())
                raise LuxmeterError(
                    "nan-origin",
                    f"{called} made {bad} of {value.numel()} values {'not finite' if self._inf else 'nan'}, "
                    f"out of {', '.join(before) or 'nothing'}.",
                    "The line above that calls it is where the fault arises.",
                )
        return out

    def _is_bad(self, value: Any) -> bool:
        if isinstance(value, float):
            return math.isnan(value) or (self._inf and math.isinf(value))
        if not (value.is_floating_point() or value.is_complex()) or value.is_meta:
            return False
        return bool((~torch.isfinite(value)).any() if self._inf else torch.isnan(value).any())


def check_given(batch: Any, models: Mapping[str, Module]) -> None:
    """Raise if a nan does not arise in the step at all: if the batch holds one, or a weight does before the step.

    Infinities in a batch may be meant (a mask); in a weight they are none.
    """
    for number, value in enumerate(tensors_of(batch)):
        if count := int(torch.isnan(value).sum()) if value.is_floating_point() or value.is_complex() else 0:
            shape = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
            raise LuxmeterError(
                "nan-origin",
                f"The batch itself holds nan: {count} of the {value.numel()} values of its tensor {number}, {shape}.",
                "Look at the data: nothing of the step has run yet.",
            )
    for name, model in models.items():
        for key, weight in model.named_parameters():
            if not bool(torch.isfinite(weight).all()):
                raise LuxmeterError(
                    "nan-origin",
                    f"{name}.{key} holds values that are not finite before the step.",
                    "An earlier step made them: python replay.py --from-checkpoint, or train with NaNGuard(every=1).",
                )


def name_infinities(error: BaseException, batch: Any) -> None:
    """Say of an error if the batch holds infinities: they may be meant, and they may be why."""
    for number, value in enumerate(tensors_of(batch)):
        if count := int(torch.isinf(value).sum()):
            error.add_note(
                f"The batch holds infinities: {count} of the {value.numel()} values of its tensor {number}."
            )


@contextlib.contextmanager
def stop_at_nan(*, inf: bool = False, anomaly: bool = True) -> Iterator[None]:
    """Forward by StopAtNaN, backward by torch's detect_anomaly."""
    with torch.autograd.set_detect_anomaly(anomaly), StopAtNaN(inf=inf):
        yield


def _numbers(value: Any) -> list[Any]:
    return found_in(value, lambda one: isinstance(one, Tensor | float))


def _ranged(value: Any) -> str:
    """What a value was, in a few words: `(4, 3) float32 from -1.2 to 3.4`."""
    if isinstance(value, float):
        return f"{value:g}"
    words = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if not value.is_floating_point() or not value.numel() or value.is_meta:
        return words
    low, high = (float(end) for end in torch.aminmax(value.detach()))
    return f"{words} from {low:.4g} to {high:.4g}"
