"""What takes the place of each torch target."""

from __future__ import annotations

import functools
import multiprocessing.reduction
import pickle
import sys
from collections.abc import Iterator, Sequence
from types import BuiltinMethodType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from luxmeter import supported
from luxmeter.calls.patching import aliases
from luxmeter.calls.patching.bindings import Binding
from luxmeter.calls.targets import SILENT, Coverage, Form, Target, Unseen, subclasses, try_part
from luxmeter.calls.targets.packages import Packages
from luxmeter.calls.targets.torch import callables
from luxmeter.calls.targets.torch.classes import (
    ModuleNames,
    function_names,
    is_leaf,
    is_optimized,
    method_name,
    optimizer_targets,
    scheduler_targets,
)
from luxmeter.calls.targets.torch.compiled import Compiled, is_compiled
from luxmeter.calls.targets.torch.names import class_name
from luxmeter.calls.targets.torch.optimizers import Optimizers, with_open_closure
from luxmeter.signature import look_of

if TYPE_CHECKING:
    from luxmeter.calls.patching.patcher import Patcher


_OWN = ("torch", "luxmeter", "sympy", "numpy")  # whose names are none of the user's
_MODULES = ("torch.nn.Module.__call__",)  # through which all modules are seen


class TorchFramework:
    """torch and the packages named with `also`."""

    def __init__(self, also: Sequence[str] = ()) -> None:
        self._listing = callables.listing()
        self._packages = Packages(also)
        self._modules = ModuleNames(is_call=self._packages.hold)
        self._optimizers = Optimizers(self.method_resolver)
        self._compiled = Compiled(self._modules.describe)
        self._left_out = list(self._listing.left_out)

    def targets(self) -> Iterator[Target]:
        """Everything to replace, as it is now."""
        yield from self._listing.targets
        for name, listed in (
            ("captures of programs", callables.capture_targets),
            ("pickle", callables.pickle_targets),
            ("torch.optim.*", optimizer_targets),
            ("torch.optim.lr_scheduler.*", scheduler_targets),
            ("packages named with also", self._packages.targets),
        ):
            yield from try_part(name, listed, self._left_out)

    def left_out(self) -> Sequence[Unseen]:
        """What could not be listed in this version, or found when it was put in place."""
        return tuple(dict.fromkeys(self._left_out))

    def coverage(self, left_out: Sequence[Unseen] = ()) -> Coverage:
        """What is seen and what is not, for one of these reasons or of its own."""
        shown = [target.name for target in self.targets() if target.form not in SILENT]
        gone = {entry.name for entry in (*left_out, *self._left_out)}
        if not gone.isdisjoint(_MODULES):
            shown = [name for name in shown if name not in _MODULES]
        else:
            shown += sorted({class_name(cls) for cls in subclasses(torch.nn.Module) if is_leaf(cls)})
        lacking = (Unseen(name, without) for name, without in supported.lacking(trace_only=True))
        unseen = (*self._listing.unseen, *self._left_out, *lacking)
        return Coverage(tuple(dict.fromkeys(shown)), tuple(dict.fromkeys(unseen)))

    def known_names(self) -> Iterator[tuple[str, str]]:
        """(name, label) of all that can turn up in a trace."""
        for target in self.targets():
            yield target.name, target.label
        for cls in subclasses(torch.nn.Module):
            yield class_name(cls), ""
        for cls in (*subclasses(torch.optim.Optimizer), *subclasses(torch.optim.lr_scheduler.LRScheduler)):
            yield f"{class_name(cls)}.zero_grad", ""
            yield f"{class_name(cls)}.step", ""
        for cls in subclasses(torch.autograd.Function):
            yield f"{class_name(cls)}.apply", ""
        for name in callables.operator_names():
            yield name, ""

    def stand_in(self, target: Target, original: Any, patcher: Patcher) -> Any:
        """What takes the place of `original`; None when it is left alone."""
        recorder = patcher.recorder
        form = target.form
        if form is Form.FUNCTION:
            found = patcher.id_for(
                target.name, span=target.span, label=target.label, boundary=target.boundary
            )
            return recorder.wrap(original, found)
        if form is Form.PROPERTY:
            return recorder.wrap_property(original, patcher.id_for(target.name))
        if form is Form.MODULE:
            return recorder.wrap_resolved(original, functools.partial(self._resolve_module, patcher))
        if form is Form.INSTANCE:
            through = with_open_closure(original, patcher) if target.boundary else None
            return recorder.wrap_resolved(original, self.method_resolver(target, patcher), through)
        if form is Form.CLASSMETHOD:
            # From torch 2.14 on `Function.apply` is a method of C, which takes the class as a function does.
            function = original.__func__ if isinstance(original, classmethod) else original
            return classmethod(
                recorder.wrap_resolved(function, functools.partial(_resolve_function, patcher))
            )
        if form is Form.OPERATOR:
            return recorder.wrap_resolved(original, functools.partial(_resolve_operator, patcher))
        if form is Form.HIDDEN:
            return recorder.wrap(original, patcher.hidden_id(target.name))
        through = {
            Form.FACTORY: _factory,
            Form.COMPILE: self._compiled.factory,
            Form.SUSPENDING: _suspending,
            Form.PICKLE: _pickle,
            Form.WORKER: _worker,
            Form.FIRST_STEP: self._optimizers.first_step,
        }[form](original, target, patcher)
        if form is Form.WORKER:
            return through  # goes to another process: a plain function, found there by its name
        callable_id = patcher.id_for(target.name) if form is Form.SUSPENDING else -1
        return recorder.wrap(original, callable_id, through)

    def instances(self, patcher: Patcher) -> Iterator[Binding]:
        """Methods bound in instances, `op = MyFunction.apply` and compiled functions at module level."""
        for name, found in (
            ("steps of optimizers that schedulers changed", self._optimizers.found),
            ("names bound to Function.apply", _bound_apply),
            ("compiled functions", self._compiled_names),
            ("compiled modules", self._compiled.bindings),
        ):
            yield from try_part(name, functools.partial(found, patcher), self._left_out)

    def _compiled_names(self, patcher: Patcher) -> Iterator[Binding]:
        if "torch._dynamo.eval_frame" not in sys.modules:
            return
        for namespace, name, value in aliases.of_users(FunctionType, besides=_OWN):
            # Names with underscores are Dynamo's own: the graphs and resume points that it keeps in the user's module.
            if not name.startswith("__") and is_compiled(value):
                yield Binding(namespace, name, value, self._compiled.function(value, patcher))

    def removed(self) -> None:
        """The stand-ins were taken out."""
        self._compiled.forget()

    def after_fork(self) -> None:
        """In a forked child, where this thread is the only one."""
        self._compiled.after_fork()

    def _resolve_module(self, patcher: Patcher, module: Any) -> int:
        name, span, path = self._modules.describe(module)
        if is_optimized(type(module)):
            return -1  # recorded where its own class is called
        for binding in self._compiled.compiled_in_place(module, patcher):
            patcher.bind(binding)
        for attribute, value in list(vars(module).items()):  # self.act = F.relu
            stand_in = patcher.stand_in_for(value)
            if stand_in is not None:
                patcher.bind(Binding(module, attribute, value, stand_in, instance=True))
        # Two modules of one class that stand alone have one path: what they were built with tells them apart.
        settings = None if span else look_of(module)
        return patcher.id_for(name, span=span, path=path, module=True, settings=settings)

    def method_resolver(self, target: Target, patcher: Patcher) -> Any:
        """Asked once an instance for the id of its `step` or `zero_grad`."""

        def resolve(instance: Any) -> int:
            if isinstance(instance, torch.optim.Optimizer):
                self._optimizers.adopt(instance, patcher)
            name = method_name(instance, target.attribute, target.owner)
            return patcher.id_for(name, span=target.span, boundary=target.boundary)

        return resolve


def _resolve_operator(patcher: Patcher, operator: Any) -> int:
    name, span = callables.names_of_operator(operator)
    return patcher.id_for(name, span=span)


def _resolve_function(patcher: Patcher, cls: type) -> int:
    name, span = function_names(cls)
    return patcher.id_for(name, span=span)


def _bound_apply(patcher: Patcher) -> Iterator[Binding]:
    apply: Any = vars(torch.autograd.Function).get("apply")
    if patcher.is_stand_in(apply):
        for namespace, name, value in aliases.of_users(MethodType, BuiltinMethodType, besides=_OWN):
            if _is_apply(value, apply.__func__.__wrapped__):
                yield Binding(namespace, name, value, MethodType(apply.__func__, value.__self__))


def _is_apply(value: Any, original: Any) -> bool:
    """Whether a bound method is `apply` of some autograd.Function: of Python, or from torch 2.14 on of C."""
    if type(value) is MethodType:
        return value.__func__ is original
    owner = value.__self__
    return (
        value.__name__ == "apply" and isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    )


def _factory(original: Any, target: Target, patcher: Patcher) -> Any:
    """vmap, grad ...: what they return runs the user's function, and is the span."""
    callable_id = patcher.id_for(target.name, span=True)

    def through(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        return patcher.recorder.wrap(result, callable_id) if callable(result) else result

    return through


def _suspending(original: Any, target: Target, patcher: Patcher) -> Any:
    def through(*args: Any, **kwargs: Any) -> Any:
        with patcher.suspended():
            return original(*args, **kwargs)

    return through


def _pickle(original: Any, target: Target, patcher: Patcher) -> Any:
    if target.owner is multiprocessing.reduction:
        return _suspending(
            original, target, patcher
        )  # hands over file descriptors as it goes: cannot be done twice

    def through(*args: Any, **kwargs: Any) -> Any:
        file = next((arg for arg in (*args[1:2], kwargs.get("file")) if hasattr(arg, "seek")), None)
        start = file.tell() if file is not None and file.seekable() else None
        try:
            return original(*args, **kwargs)
        except pickle.PicklingError:
            if not patcher.in_place or (file is not None and start is None):
                raise
            if file is not None:
                file.seek(start)
                file.truncate()
        with patcher.suspended():
            return original(*args, **kwargs)

    return through


def _worker(original: Any, target: Target, patcher: Patcher) -> Any:
    if patcher.run_worker is None:
        return None
    token = patcher.names.child_token()
    return functools.partial(
        patcher.run_worker, token, getattr(original, "__module__", ""), original.__name__
    )
