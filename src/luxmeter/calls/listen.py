"""Hear of each call as it ends, with its arguments: for front doors that print or keep every call.

Slower than a trace (a few microseconds a call, in Python), which keeps numbers only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, time_ns
from typing import Any

from luxmeter.calls import frameworks
from luxmeter.calls.core import load as load_core
from luxmeter.calls.patching import patcher
from luxmeter.calls.records import CALL, CallableNames


@dataclass(frozen=True, slots=True)
class Heard:
    """One call that ended. The arguments are the caller's own: look at them, do not keep them."""

    name: str
    label: str
    started_at_ns: int  # since 1970
    duration_ns: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    raised: bool
    framework: str = ""


class Listener:
    """Calls `hear(Heard)` at the end of each call of the framework between start() and stop().

    `inside`: also of what those calls call. `after`: run after each call, such as to wait for a device. Both are for all
    frameworks or say for each. `framework` as of `lux.trace`; its names may be joined with a plus.
    What `hear` itself calls is not heard.
    """

    def __init__(
        self,
        hear: Callable[[Heard], None],
        *,
        inside: bool | Mapping[str, bool] = False,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        framework: str = "torch",
        after: Callable[[], None] | Mapping[str, Callable[[], None] | None] | None = None,
    ) -> None:
        self._hear = hear
        names = frameworks.chosen(framework)
        self._inside = dict.fromkeys(names, inside) if isinstance(inside, bool) else dict(inside)
        self._after = dict(after) if isinstance(after, Mapping) else dict.fromkeys(names, after)
        self._names: list[tuple[CallableNames, bool]] = []
        # Its stand-ins are used, its recording never started: they pass straight on to what times the call.
        self._recorder = load_core(None)[0].Recorder(signatures=False)
        self._local = threading.local()
        self._patcher = patcher.Patcher(self, self, only=tuple(only), skip=tuple(skip), framework=framework)  # type: ignore[arg-type]
        self.running = False

    def start(self) -> Listener:
        """Put the stand-ins in place."""
        self._patcher.install()
        self.running = True
        return self

    def stop(self) -> None:
        """Bind everything as it was."""
        if self.running:
            self.running = False
            self._patcher.remove()

    # -- what a patcher asks of names and of a recorder

    def add(self, name: str, *, label: str = "", kind: int = CALL, path: str = "", module: bool = False,
            record: bool = True, boundary: bool = False, framework: str = "") -> int:  # fmt: skip
        """A new callable id."""
        number: int = self._recorder.add_callable(name, kind=kind)
        self._names.extend([(CallableNames(""), False)] * (number + 1 - len(self._names)))
        self._names[number] = (CallableNames(name, label, kind, path, framework), record)
        return number

    def child_token(self) -> None:
        """Workers of a DataLoader are not listened to."""

    def wrap(self, function: Any, callable_id: int, through: Any = None) -> Any:
        """See the core's contract."""
        called = function if through is None else through
        if callable_id < 0:
            return self._recorder.wrap(function, -1, called)
        return self._recorder.wrap(
            function, callable_id, lambda *args, **kwargs: self._call(callable_id, called, args, kwargs)
        )

    def wrap_resolved(self, function: Any, resolve: Callable[[Any], int], through: Any = None) -> Any:
        """See the core's contract."""
        called = function if through is None else through

        def resolved(instance: Any, *args: Any, **kwargs: Any) -> Any:
            return self._call(resolve(instance), called, (instance, *args), kwargs)

        return self._recorder.wrap_resolved(function, lambda _: -1, resolved)

    def wrap_property(self, descriptor: Any, callable_id: int) -> Any:
        """Reading an attribute is no call to those who listen: passed straight on."""
        return self._recorder.wrap_property(descriptor, callable_id)

    def forget_instances(self) -> None:
        """Nothing is remembered."""

    # -- one call

    def _call(self, callable_id: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        here = self._local.__dict__
        if not self.running or callable_id < 0 or here.get("busy"):
            return function(*args, **kwargs)
        names, record = self._names[callable_id]
        if here.get("open") and not self._inside.get(names.framework):
            return function(*args, **kwargs)
        if names.kind != CALL:
            return function(*args, **kwargs)
        here["open"] = here.get("open", 0) + 1
        raised = True
        at, start = time_ns(), perf_counter_ns()
        try:
            result = function(*args, **kwargs)
            raised = False
            return result
        finally:
            after = self._after.get(names.framework)
            if after is not None:
                self._quietly(after)
            duration = perf_counter_ns() - start
            here["open"] -= 1
            if record:
                heard = Heard(names.name, names.label, at, duration, args, kwargs, raised, names.framework)
                self._quietly(lambda: self._hear(heard))

    def _quietly(self, work: Callable[[], None]) -> None:
        self._local.busy = True
        try:
            work()
        finally:
            self._local.busy = False
