"""Where an operator can run: one file a backend, behind one Protocol.

A backend is added by one line below (or by an entry point of the group `luxmeter.backends`, a callable that makes
it). One that cannot live in the interpreter being measured names its own: `Offered(module, python=find)`, where
`find()` gives the path of a Python that has both torch and the other framework, or raises a LuxmeterError that says
how to get one. Its cases then run in a pool of that interpreter's workers, through the same `work.bench_one`: the
worker makes the inputs with torch (same seed, same values), asks the backend to `prepare` them, and compares what
comes out with eager fp32 torch. A caller can name another one: `bench(..., python={"mindspore": "/env/bin/python"})`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from luxmeter.nested import tensors_of
from luxmeter.operators.counterparts.interpreter import mindspore_python
from luxmeter.operators.inputs import Call
from luxmeter.registry import Registry


class Unsupported(Exception):
    """This backend cannot run this operator in this dtype; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """An operator ready to be measured on a backend. `prepare_s` is what getting there took (compiling, exporting).

    `sync` waits until what was started is done, where calls return before; it is part of the time.
    `as_torch` turns what a run gives into torch's tensors, where it gives others; it is not.
    """

    run: Callable[[], Any]
    prepare_s: float = 0.0
    sync: Callable[[], Any] | None = None
    as_torch: Callable[[Any], Any] | None = None

    def outputs(self) -> Any:
        """What one run gives, as torch's tensors."""
        result = self.run()
        return result if self.as_torch is None else self.as_torch(result)


class Backend(Protocol):
    """Makes calls measurable."""

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """The call on this backend; raises Unsupported, with the reason, where it cannot be."""
        ...


BACKENDS: Registry[Callable[[], Backend]] = Registry("backend", group="luxmeter.backends")


@dataclass(frozen=True)
class Offered:
    """A backend of this package: the module whose `make()` gives it, and what finds the interpreter it needs.

    Without `python` it runs in the interpreter that is measured. `preload` is imported there before the budget begins.
    """

    module: str
    python: Callable[[], str] | None = None
    preload: tuple[str, ...] = ()

    def __call__(self) -> Backend:
        made: Backend = importlib.import_module(f"luxmeter.operators.backends.{self.module}").make()
        return made


def preload_of(name: str) -> tuple[str, ...]:
    """The modules a backend wants imported before anything is measured."""
    found: tuple[str, ...] = getattr(BACKENDS.get(name), "preload", ())
    return found


def interpreter_of(name: str) -> str | None:
    """The path of the interpreter that the backend `name` runs in; None if any that has torch will do."""
    find: Callable[[], str] | None = getattr(BACKENDS.get(name), "python", None)
    return None if find is None else find()


BACKENDS.register("eager", Offered("eager"))
BACKENDS.register("compile", Offered("compiled"))
BACKENDS.register("onnxruntime", Offered("onnxruntime"))
BACKENDS.register("mindspore", Offered("mindspore", python=mindspore_python, preload=("mindspore",)))


def backward_of(call: Call, *, after_forward: Callable[[], Any] | None = None) -> Callable[[], Any]:
    """Forward and backward: the sum of all floating-point outputs, to the inputs that want gradients.

    What it runs gives (the forward's result, the gradients).
    """
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
        ones = [torch.ones_like(o) for o in outputs]
        if after_forward is not None:
            after_forward()
        return result, torch.autograd.grad(outputs, leaves, ones, allow_unused=True)

    return run
