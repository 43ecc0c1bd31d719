"""Compiled functions and modules: one call each, and torch.compile never sees a stand-in.

Dynamo guards a compiled function by the identity of what it calls. A stand-in would fail that guard: one more
compilation at the start of a trace and one at its end. So while a compiled callable runs, the names that its guards
look at are bound to the originals; and while something is compiled inside it, all names are.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FunctionType
from typing import TYPE_CHECKING, Any

from luxmeter.calls.patching.bindings import ABSENT, Binding
from luxmeter.calls.targets import Target, left_out_for
from luxmeter.calls.targets.torch.classes import IN_PLACE

if TYPE_CHECKING:
    from luxmeter.calls.patching.patcher import Patcher

_IDS = re.compile(r"\d{7,}")


def is_compiled(value: Any) -> bool:
    """Whether torch.compile made this function."""
    return type(value) is FunctionType and hasattr(value, "_torchdynamo_orig_callable")


class Compiled:
    """Runs compiled callables for one patcher."""

    def __init__(self, describe: Callable[[Any], tuple[str, bool, str]]) -> None:
        self._describe = describe
        self._lock = threading.RLock()
        self._running: list[int] = []  # threads, each as often as it is in a compiled callable
        self._compilations = 0
        self._learned = -1
        self._guarded: list[Binding] = []
        self._full: AbstractContextManager[None] | None = None
        self._modules: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._listening = False
        self._handler: Any = None
        self._patcher: Any = None

    def factory(self, original: Any, target: Target, patcher: Patcher) -> Any:
        """Stand-in of torch.compile."""

        def through(*args: Any, **kwargs: Any) -> Any:
            with (
                patcher.suspended(),
                patcher.during("compile"),
            ):  # it binds the module's __call__, and imports Dynamo the first time
                result = original(*args, **kwargs)
            for binding in self.bindings(patcher):
                patcher.bind(binding)
            # A decorator (torch.compile(dynamic=True)) comes here again with the function it decorates.
            return self.function(result, patcher) if is_compiled(result) else result

        return through

    def function(self, compiled: Any, patcher: Patcher) -> Any:
        """The stand-in of a compiled function."""
        inner = compiled._torchdynamo_orig_callable
        if getattr(inner, "__name__", "") == "_call_impl":  # of a module compiled in place
            return self._unrecorded(compiled, patcher)
        name = getattr(inner, "__qualname__", type(inner).__name__).rpartition("<locals>.")[2]
        recorded = patcher.recorder.wrap(compiled, patcher.id_for(f"torch.compile({name})"))
        stand_in = patcher.recorder.wrap(
            compiled, -1, lambda *args, **kwargs: self._run(recorded, args, kwargs, patcher)
        )
        patcher.remember(compiled, stand_in)
        return stand_in

    def compiled_in_place(self, module: Any, patcher: Patcher) -> Iterator[Binding]:
        """What a module runs on which compile() was called."""
        compiled = vars(module).get(IN_PLACE)
        if is_compiled(compiled):
            yield Binding(module, IN_PLACE, compiled, self._unrecorded(compiled, patcher), instance=True)

    def _unrecorded(self, compiled: Any, patcher: Patcher) -> Any:
        """For a module compiled in place: its call is recorded as every module's is."""
        called = compiled._torchdynamo_orig_callable
        bound = inspect.unwrap(called)  # of torch's own modules, which torch 2.15 wraps to compile them, too
        module = bound.__self__

        def through(*args: Any, **kwargs: Any) -> Any:
            if bound is not called or not getattr(module.forward, "__module__", "").startswith("torch."):
                return self._run(compiled, args, kwargs, patcher)
            with patcher.suspended():  # Dynamo skips that forward, and would look at stand-ins inside it
                return compiled(*args, **kwargs)

        return patcher.recorder.wrap(compiled, -1, through)

    def bindings(self, patcher: Patcher) -> Iterator[Binding]:
        """Once Dynamo is imported: its module class, and word of every compilation."""
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        if dynamo is None or self._listening or not hasattr(dynamo, "OptimizedModule"):
            return
        self._listening = True
        self._patcher = patcher
        with contextlib.suppress(ImportError):
            from torch._dynamo.callback import callback_handler

            self._handler = callback_handler
        before = vars(dynamo.OptimizedModule).get("__call__", ABSENT)  # torch 2.7 and others inherit it
        original = patcher.original_of(inspect.getattr_static(dynamo.OptimizedModule, "__call__"))

        def through(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            recorded = self._modules.get(module)
            if recorded is None:
                name, span, path = self._describe(module)
                recorded = patcher.recorder.wrap(
                    original, patcher.id_for(name, span=span, path=path, module=True)
                )
                self._modules[module] = recorded
            return self._run(recorded, (module, *args), kwargs, patcher)

        stand_in = patcher.recorder.wrap(original, -1, through)
        yield Binding(dynamo.OptimizedModule, "__call__", before, stand_in)

    def forget(self) -> None:
        """The stand-ins are gone: listen no longer."""
        if self._listening:
            self._listening = False
            told: list[Any] = getattr(self._handler, "start_callbacks", [])
            if self._compiling in told:  # torch._dynamo.reset() forgets them all
                told.remove(self._compiling)

    def after_fork(self) -> None:
        """In a forked child: what other threads were running will never end here."""
        self._lock = threading.RLock()
        here = threading.get_ident()
        self._running = [thread for thread in self._running if thread == here]
        if not self._running:
            self._full = None
        for binding in self._guarded if self._running else ():
            binding.take()

    def _run(self, recorded: Any, args: Any, kwargs: Any, patcher: Patcher) -> Any:
        if not patcher.in_place:
            return recorded(*args, **kwargs)
        with self._lock:
            follows = self._follows(patcher)
            if follows:
                self._running.append(threading.get_ident())
                if len(self._running) == 1:
                    for binding in self._guarded:
                        binding.take()
        if not follows:
            with patcher.suspended():
                return recorded(*args, **kwargs)
        try:
            return recorded(*args, **kwargs)
        finally:
            with self._lock:
                self._running.remove(threading.get_ident())
                if not self._running:
                    full, self._full = self._full, None
                    if full is not None:
                        full.__exit__(None, None, None)
                    if patcher.in_place:
                        for binding in self._guarded:
                            binding.put()

    def _compiling(self, _: object) -> None:
        with self._lock:
            self._compilations += 1
            if self._running and self._full is None:
                self._full = self._patcher.suspended()
                self._full.__enter__()

    def _follows(self, patcher: Patcher) -> bool:
        """Whether this torch tells of compilations and of guards; without, all stand-ins are suspended for every run."""
        if self._handler is None:
            return False
        try:
            if self._compiling not in self._handler.start_callbacks:
                self._handler.register_start_callback(self._compiling)
                self._compilations += 1  # perhaps one was missed
            self._learn(patcher)
        except Exception as error:  # noqa: BLE001 - the program calls its function, and must not fail for being traced
            self.forget()
            self._listening, self._handler = True, None
            patcher.left_out.append(left_out_for("calls inside compiled functions", error))
        return self._handler is not None

    def _learn(self, patcher: Patcher) -> None:
        """Which of our bindings the guards of all compiled code look at."""
        if self._learned == self._compilations or self._running:
            return
        self._learned = self._compilations
        from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
        from torch._dynamo.convert_frame import input_codes

        ids: set[int] = set()
        for reference in list(input_codes.seen):
            code = reference()
            for entry in _debug_get_cache_entry_list(code) if code is not None else ():
                for part in entry.guard_manager.code_parts:
                    ids.update(map(int, _IDS.findall(part)))
        self._guarded = list(patcher.bindings_of(ids))
