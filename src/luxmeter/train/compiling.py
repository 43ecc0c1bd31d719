"""Models compiled in place: they keep their names, and hooks on them are called as ever."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

from torch import nn


def compile_in_place(model: nn.Module, how: bool | str) -> None:
    """By torch.compile; `how`: True, or the name of a backend."""
    if getattr(model.forward, "__module__", "").startswith("torch."):
        # Module.compile() compiles the model's own forward, and Dynamo skips functions of torch, so that of a Sequential
        # nothing would be compiled.
        model.forward = _OwnForward(model)
    model.compile(**({} if how is True else {"backend": how}))


class _OwnForward:
    """A forward that Dynamo does not skip. In a copy or a pickle it is the usual one again."""

    def __init__(self, model: nn.Module) -> None:
        self._forward = MethodType(type(model).forward, model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._forward, memo)

    def __reduce__(self) -> Any:
        return getattr, (self._forward.__self__, "forward")  # of the class: there is no other one yet
