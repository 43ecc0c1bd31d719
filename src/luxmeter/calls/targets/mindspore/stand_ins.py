"""What takes the place of each MindSpore target."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import mindspore
from luxmeter.calls import device
from luxmeter.calls.patching import aliases
from luxmeter.calls.patching.bindings import Binding
from luxmeter.calls.targets import Coverage, Form, Target, Unseen, subclasses
from luxmeter.calls.targets.mindspore import callables
from luxmeter.calls.targets.mindspore.cells import CellNames, is_leaf, jit_name
from luxmeter.calls.targets.mindspore.names import class_name, is_mindspore_class

if TYPE_CHECKING:
    from luxmeter.calls.patching.patcher import Patcher

_NOT_SHOWN = (Form.HIDDEN, Form.MODE, Form.ENTER, Form.EXIT, Form.COMPILE)


class MindSporeFramework:
    """MindSpore. Packages named with `also` belong to torch's side, which looks for functions of any kind."""

    name = "mindspore"

    def __init__(self, also: Sequence[str] = ()) -> None:
        self._listing = callables.listing()
        self._cells = CellNames(is_call=lambda cls: any(_within(cls.__module__ or "", name) for name in also))
        self._captures = threading.local()

    def targets(self) -> Iterator[Target]:
        """Everything to replace, as it is now."""
        yield from self._listing.targets
        for cls in subclasses(mindspore.nn.Cell):  # of the user's
            if "__call__" in vars(cls) and not is_mindspore_class(cls):
                yield Target(f"{class_name(cls)}.__call__", cls, "__call__", Form.MODULE)

    def left_out(self) -> Sequence[Unseen]:
        """What could not be listed in this version."""
        return self._listing.left_out

    def coverage(self, left_out: Sequence[Unseen] = ()) -> Coverage:
        """What is seen and what is not."""
        cells = sorted({class_name(cls) for cls in subclasses(mindspore.nn.Cell) if is_leaf(cls)})
        primitives = sorted(class_name(cls) for cls in subclasses(mindspore.ops.Primitive))
        shown = [target.name for target in self.targets() if target.form not in _NOT_SHOWN]
        shown.append("mindspore.value_and_grad")
        seen = dict.fromkeys((*shown, *cells, *primitives))
        return Coverage(tuple(seen), tuple(entry for entry in self._listing.unseen if entry.name not in seen))

    def known_names(self) -> Iterator[tuple[str, str]]:
        """(name, label) of all that can turn up in a trace."""
        for target in self.targets():
            yield target.name, target.label
        for cls in subclasses(mindspore.nn.Cell):
            yield class_name(cls), ""
            yield f"mindspore.graph({class_name(cls)})", ""
        for cls in subclasses(mindspore.ops.Primitive):
            yield class_name(cls), ""
        yield from (("mindspore.jit()", ""), ("mindspore.value_and_grad", ""))

    def stand_in(self, target: Target, original: Any, patcher: Patcher) -> Any:
        """What takes the place of `original`; None when it is left alone."""
        recorder = patcher.recorder
        form = target.form
        if form is Form.FUNCTION:
            found = self._id_for(patcher, target.name, span=target.span, label=target.label)
            return recorder.wrap(original, found, _failing(original) if patcher.waits else None)
        if form is Form.PROPERTY:
            return recorder.wrap_property(original, self._id_for(patcher, target.name))
        if form is Form.MODULE:
            return recorder.wrap_resolved(original, functools.partial(self._resolve_cell, patcher))
        if form is Form.INSTANCE:
            return recorder.wrap_resolved(original, functools.partial(self._resolve_instance, patcher))
        through = {
            Form.FACTORY: self._factory,
            Form.GRADIENT: self._gradient,
            Form.COMPILE: self._jit,
            Form.SUSPENDING: self._suspending,
            Form.MODE: self._mode,
            Form.ENTER: self._enter,
            Form.EXIT: self._exit,
        }[form](original, target, patcher)
        callable_id = self._id_for(patcher, target.name) if form is Form.SUSPENDING else -1
        return recorder.wrap(original, callable_id, through)

    def instances(self, patcher: Patcher) -> Iterator[Binding]:
        """Functions at module level that run a graph captured from bytecode or by running them once."""
        for namespace, name, value in aliases.of_users(
            FunctionType, besides=("torch", "mindspore", "luxmeter")
        ):
            if _is_captured(value):
                stand_in = patcher.recorder.wrap(value, self._id_for(patcher, jit_name(value)))
                yield Binding(namespace, name, value, stand_in)

    def removed(self) -> None:
        """The stand-ins were taken out."""

    def after_fork(self) -> None:
        """In a forked child, where this thread is the only one."""

    def _id_for(self, patcher: Patcher, name: str, **words: Any) -> int:
        return patcher.id_for(name, framework=self.name, **words)

    # -- resolvers

    def _resolve_cell(self, patcher: Patcher, cell: Any) -> int:
        name, span, path = self._cells.describe(cell)
        step = self._cells.is_step(cell)
        if step:
            span = span and not is_mindspore_class(type(cell))
        for attribute, value in list(vars(cell).items()):  # self.act = ops.relu
            stand_in = patcher.stand_in_for(value)
            if stand_in is not None:
                patcher.bind(Binding(cell, attribute, value, stand_in, instance=True))
        return self._id_for(patcher, name, span=span, path=path, module=True, boundary=step)

    def _resolve_instance(self, patcher: Patcher, instance: Any) -> int:
        if isinstance(instance, mindspore.ops.Primitive):
            name = class_name(type(instance))
            if name == "mindspore.ops.Primitive":  # made without a class of its own: by the name it was given
                name = f"mindspore.ops.Primitive({instance.name})"
            return self._id_for(patcher, name)
        return self._id_for(patcher, jit_name(instance.fn))

    # -- what is called in place of the original

    def _factory(self, original: Any, target: Target, patcher: Patcher) -> Any:
        """grad, vmap ...: what they return runs the user's function, and is the span."""
        callable_id = self._id_for(patcher, target.name, span=True)

        def through(*args: Any, **kwargs: Any) -> Any:
            result = original(*_originals(patcher, args), **kwargs)
            return patcher.recorder.wrap(result, callable_id) if callable(result) else result

        return through

    def _gradient(self, original: Any, target: Target, patcher: Patcher) -> Any:
        """The function that `grad` returns asks for another one at each run, which does the work."""

        def through(operation: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(operation, *_originals(patcher, args), **kwargs)
            if not getattr(operation, "pynative_", False) or not callable(made):
                return made
            name = "mindspore.value_and_grad" if getattr(operation, "get_value", False) else target.name
            return patcher.recorder.wrap(made, self._id_for(patcher, name, span=True))

        return through

    def _jit(self, original: Any, target: Target, patcher: Patcher) -> Any:
        """A compiled function is found where it runs; MindSpore reads the source of the function itself, no stand-in."""

        def through(*args: Any, **kwargs: Any) -> Any:
            return original(*_originals(patcher, args), **kwargs)

        return through

    def _suspending(self, original: Any, target: Target, patcher: Patcher) -> Any:
        def through(*args: Any, **kwargs: Any) -> Any:
            with patcher.suspended():
                return original(*args, **kwargs)

        return through

    def _mode(self, original: Any, target: Target, patcher: Patcher) -> Any:
        def through(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                patcher.recorder.forget_instances()  # a cell may be one call now, or no longer

        return through

    def _enter(self, original: Any, target: Target, patcher: Patcher) -> Any:
        """MindSpore reads the bytecode of what is called until EXIT, and compares the objects that it met with each run."""

        def through(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            stack = self._captures.__dict__.setdefault("open", [])
            stack.append(contextlib.ExitStack())
            stack[-1].enter_context(patcher.suspended())
            return result

        return through

    def _exit(self, original: Any, target: Target, patcher: Patcher) -> Any:
        def through(*args: Any, **kwargs: Any) -> Any:
            stack = self._captures.__dict__.get("open")
            if stack:  # pragma: no branch - a trace that began within a capture, in another thread
                stack.pop().close()
            return original(*args, **kwargs)

        return through


def _failing(original: Any) -> Any:
    """Where the recorder waits after each call, a kernel's failure reaches the program at its next call of MindSpore."""

    def through(*args: Any, **kwargs: Any) -> Any:
        device.raise_failure()
        return original(*args, **kwargs)

    return through


def _originals(patcher: Patcher, args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(patcher.original_of(value) for value in args)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _is_captured(value: FunctionType) -> bool:
    """Compiled by `jit(capture_mode=...)` other than "ast", whose functions all run through one place."""
    return bool(
        value.__dict__.get("__wrapped_by_jit__") and value.__code__.co_name in ("_fn", "jit_trace_wrap")
    )
