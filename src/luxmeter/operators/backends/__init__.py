"""Where an operator can run: one file a backend, behind one Protocol."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from luxmeter.operators.inputs import Call
from luxmeter.registry import Registry


class Unsupported(Exception):
    """This backend cannot run this operator in this dtype; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """An operator ready to be measured on a backend. `prepare_s` is what getting there took (compiling, exporting)."""

    run: Callable[[], Any]
    prepare_s: float = 0.0


class Backend(Protocol):
    """Makes calls measurable."""

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """The call on this backend; raises Unsupported, with the reason, where it cannot be."""
        ...


BACKENDS: Registry[Callable[[], Backend]] = Registry("backend", group="luxmeter.backends")


def _ours(name: str, module: str) -> None:
    def load() -> Backend:
        made: Backend = importlib.import_module(f"luxmeter.operators.backends.{module}").make()
        return made

    BACKENDS.register(name, load)


_ours("eager", "eager")
_ours("compile", "compiled")
_ours("onnxruntime", "onnxruntime")


def backward_of(call: Call) -> Callable[[], Any]:
    """Forward and backward: the sum of all floating-point outputs, to the inputs that want gradients."""
    import torch

    wanted = [t for t in tensors_of((call.args, call.kwargs)) if t.is_floating_point() or t.is_complex()]
    leaves = [t for t in wanted if t.is_leaf and t.requires_grad]
    modules = [a for a in call.args if isinstance(a, torch.nn.Module)]
    leaves += [p for m in modules for p in m.parameters() if p.requires_grad]
    if not leaves:
        leaves = [t.requires_grad_() for t in wanted if t.is_leaf]
    if not leaves:
        raise Unsupported("no input can have a gradient")

    def run() -> Any:
        result = call.run()
        outputs = [t for t in tensors_of(result) if t.requires_grad]
        if not outputs:
            raise Unsupported("its outputs have no gradient")
        torch.autograd.grad(outputs, leaves, [torch.ones_like(o) for o in outputs], allow_unused=True)
        return result

    return run


def tensors_of(value: Any) -> list[Any]:
    """All tensors in a nested result, depth first."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_of(item)]
    return []
