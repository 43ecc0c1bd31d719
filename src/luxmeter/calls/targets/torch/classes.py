"""Targets that live on classes which come and go: modules, optimizers, schedulers, autograd functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from luxmeter.calls.targets import Form, Target, subclasses
from luxmeter.calls.targets.module_paths import ModulePaths
from luxmeter.calls.targets.torch.names import class_name, is_torch_class

# torch's own layers live here; what else torch derives from Module (DataParallel, GraphModule ...) wraps the user's.
_LAYERS = (
    "torch.nn.modules.",
    "torch.nn.quantized.",
    "torch.nn.qat.",
    "torch.nn.intrinsic.",
    "torch.ao.nn.",
    "torch.nn.attention.",
)
_CONTAINERS = "torch.nn.modules.container"
IN_PLACE = "_compiled_call_impl"  # where Module.compile() puts what it made


def optimizer_targets() -> Iterator[Target]:
    """`step` of every optimizer class that exists now, wherever it is defined."""
    yield Target("torch.optim.Optimizer.zero_grad", Optimizer, "zero_grad", Form.INSTANCE)
    yield Target(
        "torch.optim.Optimizer._patch_step_function", Optimizer, "_patch_step_function", Form.FIRST_STEP
    )
    for cls in subclasses(Optimizer):
        if cls is not Optimizer and "step" in vars(cls):
            yield step_target(cls)


def scheduler_targets() -> Iterator[Target]:
    """`step` of every scheduler class that exists now."""
    yield Target(
        "torch.optim.lr_scheduler.LRScheduler._initial_step", LRScheduler, "_initial_step", Form.HIDDEN
    )
    for cls in subclasses(LRScheduler):
        if "step" in vars(cls):
            yield Target(f"{class_name(cls)}.step", cls, "step", Form.INSTANCE, span=not is_torch_class(cls))


def step_target(cls: type) -> Target:
    """The user's own optimizers hide nothing; torch's are one call."""
    return Target(
        f"{class_name(cls)}.step", cls, "step", Form.INSTANCE, span=not is_torch_class(cls), boundary=True
    )


def method_name(instance: Any, attribute: str, definer: type) -> str:
    """`torch.optim.AdamW.step` although Adam defines it; in a call through super(), the class that defines it."""
    first = next((cls for cls in type(instance).__mro__ if attribute in vars(cls)), definer)
    return f"{class_name(type(instance) if first is definer else definer)}.{attribute}"


def is_leaf(cls: type) -> bool:
    """Whether a module of this class is one call: torch's own layers, not its containers, nothing of the user's."""
    return (cls.__module__ or "").startswith(_LAYERS) and cls.__module__ != _CONTAINERS


class ModuleNames:
    """Name, kind and path of a module when it is first called."""

    def __init__(self, *, is_call: Callable[[type], bool]) -> None:
        self._is_call = is_call
        # Keyed by identity: a Module may define __eq__. The reference says when the address is free again.
        self._paths = ModulePaths(torch.nn.Module.named_modules)

    def describe(self, module: Any) -> tuple[str, bool, str]:
        """(name, transparent, path). The first module seen of a tree is its root: paths start with its class."""
        cls = type(module)
        path = self._paths.path_of(module, class_name(type(module)))
        if is_optimized(cls):
            inner = getattr(module, "_orig_mod", module)
            return f"torch.compile({class_name(type(inner))})", False, path
        if vars(module).get(IN_PLACE) is not None:
            return f"torch.compile({class_name(cls)})", False, path
        if isinstance(module, torch.jit.ScriptModule):
            return f"torch.jit({getattr(module, 'original_name', cls.__name__)})", False, path
        if (
            cls.__module__ == "torch.nn.utils.parametrize"
            and len(cls.__bases__) == 1
            and cls.__name__.startswith("Parametrized")
        ):
            cls = cls.__bases__[0]  # what it was before a parametrization was put on it
        return class_name(cls), not (is_leaf(cls) or self._is_call(cls)), path


def is_optimized(cls: type) -> bool:
    """Whether a module of this class is what torch.compile makes of a module."""
    return cls.__name__ == "OptimizedModule" and is_torch_class(cls)


def function_names(cls: type) -> tuple[str, bool]:
    """(name, transparent) of an autograd.Function's apply: the user's own are transparent, as is checkpoint's."""
    transparent = not is_torch_class(cls) or cls.__module__ == "torch.utils.checkpoint"
    return f"{class_name(cls)}.apply", transparent
