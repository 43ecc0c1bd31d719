"""Name, kind and path of a MindSpore cell when it is first called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore.experimental.optim.optimizer import Optimizer as ExperimentalOptimizer

import mindspore
from luxmeter.calls.targets.mindspore.names import class_name, is_mindspore_class
from luxmeter.calls.targets.module_paths import ModulePaths

# MindSpore's own layers, losses and optimizers live here; what else it derives from Cell wraps the user's network.
_LAYERS = (
    "mindspore.nn.layer.",
    "mindspore.nn.loss.",
    "mindspore.nn.optim.",
    "mindspore.nn.sparse.",
    "mindspore.nn.probability.",
    "mindspore.nn.learning_rate_schedule",
    "mindspore.mint.nn",
    "mindspore.mint.optim",
    "mindspore.experimental.optim",
    "mindspore.parallel.nn",
)
_CONTAINERS = ("mindspore.nn.layer.container", "mindspore.mint.nn.layer.container")
OPTIMIZERS = (mindspore.nn.Optimizer, ExperimentalOptimizer)


def is_leaf(cls: type) -> bool:
    """Whether a cell of this class is one call: MindSpore's layers and optimizers, nothing of the user's."""
    module = cls.__module__ or ""
    return module.startswith(_LAYERS) and module not in _CONTAINERS


class CellNames:
    """What there is to say about a cell."""

    def __init__(self, *, is_call: Callable[[type], bool]) -> None:
        self._is_call = is_call
        # Keyed by identity. The reference says when the address is free again.
        self._paths = ModulePaths(mindspore.nn.Cell.cells_and_names)

    def describe(self, cell: Any) -> tuple[str, bool, str]:
        """(name, transparent, path). In graph mode the whole cell is one compiled call."""
        cls = type(cell)
        path = self._paths.path_of(cell, class_name(type(cell)))
        if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
            return f"mindspore.graph({class_name(cls)})", False, path
        return class_name(cls), not (is_leaf(cls) or self._is_call(cls)), path

    def is_step(self, cell: Any) -> bool:
        """Whether its end is the end of a training step."""
        return isinstance(cell, OPTIMIZERS)


def jit_name(function: Any) -> str:
    """`mindspore.jit(step)` for a function, with its class for a method."""
    qualified = getattr(function, "__qualname__", "") or getattr(function, "__name__", "function")
    module = getattr(function, "__module__", "") or ""
    name = qualified.rpartition("<locals>.")[2]
    owned = module in ("__main__", "__mp_main__", "")
    return f"mindspore.jit({name if owned else f'{module}.{name}'})"


__all__ = ["CellNames", "OPTIMIZERS", "is_leaf", "is_mindspore_class", "jit_name"]
