"""Optimizers change their own classes and instances: torch wraps `step` at the first instance, a scheduler in the instance."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim.optimizer import Optimizer

from luxmeter.calls.patching import aliases
from luxmeter.calls.patching.bindings import Binding
from luxmeter.calls.targets import Target
from luxmeter.calls.targets.torch.classes import step_target

if TYPE_CHECKING:
    from luxmeter.calls.patching.patcher import Patcher


class Optimizers:
    """Keeps `step` of every optimizer seen, whatever torch does to it while the stand-ins are in place."""

    def __init__(self, resolver: Callable[[Target, Patcher], Any]) -> None:
        self._resolver = resolver

    def first_step(self, original: Any, target: Target, patcher: Patcher) -> Any:
        """Stand-in of `_patch_step_function`: torch hooks `cls.step` at the first instance of a class."""

        def through(optimizer: Any) -> Any:
            result = original(optimizer)
            cls = type(optimizer)
            step = vars(cls).get("step")
            if step is not None and not patcher.is_stand_in(step):
                self._keep(cls, step, patcher)
            return result

        return through

    def _keep(self, cls: type, step: Any, patcher: Patcher) -> None:
        inner: Any = getattr(step, "__wrapped__", None)
        if patcher.is_stand_in(inner):
            # torch hooked our stand-in. Without us it would have hooked the original: that is what must remain.
            step = Optimizer.profile_hook_step(inner.__wrapped__)
            step.hooked = True
        resolver = self._resolver(step_target(cls), patcher)
        wrapper = patcher.recorder.wrap_resolved(step, resolver, with_open_closure(step, patcher))
        setattr(cls, "step", step)  # noqa: B010 - what is restored at the end
        patcher.rebind(Binding(cls, "step", step, wrapper))

    def adopt(self, optimizer: Any, patcher: Patcher) -> None:
        """A learning-rate scheduler has bound a `step` in the instance that hides the class's."""
        found = self._in_instance(optimizer, patcher)
        if found is not None:
            patcher.bind(found)

    def _in_instance(self, optimizer: Any, patcher: Patcher) -> Binding | None:
        step = vars(optimizer).get("step")
        if (
            step is None
            or patcher.is_stand_in(step)
            or patcher.is_stand_in(getattr(step, "__wrapped__", None))
        ):
            return None
        target = step_target(type(optimizer))
        callable_id = patcher.id_for(target.name, span=target.span, boundary=True)
        return Binding(
            optimizer,
            "step",
            step,
            patcher.recorder.wrap(step, callable_id, with_open_closure(step, patcher)),
            instance=True,
        )

    def found(self, patcher: Patcher) -> Iterator[Binding]:
        """Optimizers in reach of the code that starts the trace. Others are adopted at their first zero_grad."""
        for value in list(_in_reach()):
            binding = self._in_instance(value, patcher)
            if binding is not None:
                yield binding


def with_open_closure(step: Any, patcher: Patcher) -> Any:
    """What is called in place of an optimizer's step: the calls of a closure (the forward and backward of Lightning, of LBFGS) are the program's."""
    opens = patcher.opening_id()

    def through(*args: Any, **kwargs: Any) -> Any:
        opened = tuple([patcher.recorder.wrap(a, opens) if callable(a) else a for a in args])
        closure = kwargs.get("closure")
        if callable(closure):
            kwargs["closure"] = patcher.recorder.wrap(closure, opens)
        return step(*opened, **kwargs)

    return through


def _in_reach(*, depth: int = 4, most: int = 20_000) -> Iterator[Any]:
    """Optimizers that the locals and globals of the calling frames lead to: containers, attributes, closures."""
    frame: FrameType | None = sys._getframe(1)
    level: list[Any] = []
    seen: set[int] = set()
    while frame is not None:
        level.extend(_locals(frame))
        name = frame.f_globals.get("__name__")
        if id(frame.f_globals) not in seen and not (type(name) is str and name.startswith(_NOT_THE_USERS)):
            seen.add(id(frame.f_globals))
            level.extend(list(frame.f_globals.values()))
        frame = frame.f_back
    for _ in range(depth):
        below: list[Any] = []
        for value in level:
            if id(value) in seen:
                continue
            seen.add(id(value))
            if issubclass(type(value), Optimizer):
                yield value
            elif len(seen) < most:
                below.extend(_held_by(value))
        level = below


def _locals(frame: FrameType) -> list[Any]:
    """Before 3.13 `f_locals` of a function is a copy that the frame keeps, and with it the user's tensors: emptied again.

    Not when somebody else holds that copy, which is what locals() gives: then there are more than three references.
    """
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []
    found = frame.f_locals
    values = list(found.values())
    if sys.version_info < (3, 13) and sys.getrefcount(found) <= 3:
        found.clear()
    return values


_NOT_THE_USERS = (
    "luxmeter.",
    "importlib",
    "pytest",
    "_pytest",
    "pluggy",
    "runpy",
    "threading",
    "concurrent.",
    "torch.",
    "execnet",
    "xdist",
)


def _held_by(value: Any) -> Any:
    kind = type(value)  # compared by `is`: its metaclass may have a say in `==`
    if kind is FunctionType:
        return value.__closure__ or ()
    if kind is CellType or kind is MethodType or kind is partial:
        return gc.get_referents(value)
    if kind is list or kind is tuple or kind is set or kind is dict:
        return () if len(value) > 100 else list(value.values()) if kind is dict else list(value)
    try:
        if issubclass(kind, (ModuleType, type, Module)) or type.__dict__["__module__"].__get__(kind) in (
            "builtins",
            "types",
        ):
            return ()
        attributes = aliases.attributes_of(value)
    except Exception:  # noqa: BLE001  (an object of the user's that does not want to be looked at)
        return ()
    return list(attributes.values()) if attributes is not None and len(attributes) <= 100 else ()
