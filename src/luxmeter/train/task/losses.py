"""The losses of a task: each takes what it needs by name, has a name and a weight; their sum is trained on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from luxmeter.errors import UsageError
from luxmeter.train.registries import LOSSES, Thing, about, build, several
from luxmeter.train.task.named_arguments import IN_TASK, Arguments, arguments_of

_OWN = ("inputs", "loss_weight", "name")
TOTAL = "loss"


class LossCalculator(nn.Module):
    """Losses by name: configs, modules or functions. Gives `loss`, the sum, and what each adds to it under its name.

    A loss takes outputs of the model and entries of the batch by the names of its arguments (`model_outputs` and
    `model_inputs` are all of them). In a config, beside `type` and what its constructor takes: `inputs` (argument -> entry,
    for losses of torch: `{"input": "logits", "target": "labels"}`), `loss_weight` and, in a list, `name`.
    """

    def __init__(self, loss_cfg: Any) -> None:
        super().__init__()
        self._losses: dict[str, tuple[Arguments, float]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}  # those that are no modules
        for name, cfg, key in several(loss_cfg, "loss_cfg"):
            self._add(name, cfg, key)
        if not self._losses:
            raise UsageError("loss-kind", "loss_cfg has no losses.", 'Give one: {"ce": {"type": ...}}.')
        if len(self._losses) > 1 and TOTAL in self._losses:
            raise UsageError(
                "loss-name", f"One of several losses is called {TOTAL!r}, as their sum is.", "Rename it."
            )

    def _add(self, name: str, cfg: Any, key: str) -> None:
        said: dict[str, Any] = dict(cfg) if isinstance(cfg, Mapping) else {}
        if said:
            cfg = {one: value for one, value in said.items() if one not in _OWN}
            name = str(said.get("name") or name)
        made = build(cfg, LOSSES, key=key, name=name) if name else build(cfg, LOSSES, key=key)
        own = getattr(made, "name", None)
        name = name or (own if isinstance(own, str) else "") or _called(made)
        weight = said.get("loss_weight", 1.0)
        if not callable(made) or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise UsageError(
                "loss-kind",
                f"The loss {name!r} is {made!r} with loss_weight={weight!r}.",
                "A loss is a module or a function; its weight is a number.",
            )
        if name in self._losses or hasattr(nn.Module, name) or "." in name:
            raise UsageError(
                "loss-name",
                f"A loss cannot be called {name!r}: the name is taken or has a dot.",
                'Give it another: "name": "...".',
            )
        if isinstance(made, nn.Module):
            self.add_module(name, made)
        else:
            self._functions[name] = made
        arguments = arguments_of(made, said.get("inputs"), who=f"The loss {name!r}", key=f"{IN_TASK}{key}")
        self._losses[name] = arguments, float(weight)

    def forward(self, model_outputs: Mapping[str, Any], model_inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The losses of a batch."""
        entries = {
            **model_inputs,
            **model_outputs,
            "model_outputs": model_outputs,
            "model_inputs": model_inputs,
        }
        total: Tensor | None = None
        values: dict[str, Any] = {TOTAL: None}  # first in a line of the log
        for name, (arguments, weight) in self._losses.items():
            value = arguments.call(self._functions.get(name) or getattr(self, name), entries)
            if not isinstance(value, Tensor) or value.numel() != 1:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                error = UsageError(
                    "loss-not-scalar",
                    f"The loss {name!r} is of the shape {shape}.",
                    "Reduce it to one number: loss.mean(), or reduction='mean'.",
                )
                raise about(error, arguments.key)
            if weight != 1.0:
                value = value * weight
            values[name] = value.detach()
            total = value if total is None else total + value
        assert total is not None
        values[TOTAL] = total
        return values

    def extra_repr(self) -> str:
        """The weights, and the functions that are no modules."""
        return ", ".join(f"{name}: {weight:g}" for name, (_, weight) in self._losses.items())


def _called(made: Thing) -> str:
    function = made.func if isinstance(made, functools.partial) else made
    return function.__name__ if inspect.isroutine(function) else type(function).__name__
