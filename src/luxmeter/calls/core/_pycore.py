"""The recorder core in Python: the contract of `_core.pyi`, for where the C core cannot be built."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter_ns as now_ns
from types import CodeType, FrameType
from typing import Any, TypeAlias

from luxmeter.calls.core import _pypack, _pystate, locked
from luxmeter.calls.core._pykeys import ATTRIBUTES, EXCHANGE, HASH, IDENTITY, KEY, OPAQUE, KeyMaker
from luxmeter.calls.core._pystate import (
    Buffers,
    BuffersByOne,
    Callable_,
    Instances,
    Ranges,
    RangesByOne,
    Span,
    Thread_,
)
from luxmeter.calls.core._pywrap import PlainWrapper, PropertyWrapper, Wrapper

CALL, SPAN, SECTION, OPENS = _pystate.CALL, _pystate.SPAN, _pystate.SECTION, _pystate.OPENS
RAISED, INSIDE, SPANNED, FIRST = _pystate.RAISED, _pystate.INSIDE, _pystate.SPANNED, _pystate.FIRST
COMPLETED, OWN = _pystate.COMPLETED, _pystate.OWN
EVENT_SIZE, HISTOGRAM_BUCKETS = _pystate.EVENT_SIZE, _pystate.HISTOGRAM_BUCKETS
holders, holding = _pystate.holders, _pystate.holding
pack, unpack = _pypack.pack, _pypack.unpack
__all__ = [
    "CALL", "SPAN", "SECTION", "OPENS", "RAISED", "INSIDE", "SPANNED", "FIRST", "COMPLETED", "OWN",
    "OPAQUE", "EXCHANGE", "KEY", "IDENTITY", "HASH", "ATTRIBUTES", "EVENT_SIZE", "HISTOGRAM_BUCKETS",
    "now_ns", "frames", "holders", "holding", "pack", "unpack", "Wrapper", "PlainWrapper", "PropertyWrapper", "Span", "Recorder"]  # fmt: skip

_MAX_SITES = 1 << 17
_NOTHING: Any = object()  # of a call that raised
Resolver: TypeAlias = Callable[[Any], int]


def frames() -> str:
    return "objects"


class Recorder:
    """See `_core.pyi`."""

    def __init__(
        self,
        *,
        inside: bool = False,
        signatures: bool = True,
        strides: bool = False,
        totals: bool = False,
        completed: bool = True,
        max_signatures: int = 4096,
        max_pending: int = 262144,
        tensor_type: type | None = None,
        exchange: object | None = None,
        classify: Callable[[type], int | tuple[str, ...]] | None = None,
        key: Callable[[Any], object] | None = None,
        on_signature: Callable[[int, int, tuple[Any, ...], dict[str, Any], bool], None] | None = None,
        on_result: Callable[[int, Any], None] | None = None,
        on_thread: Callable[[int], None] | None = None,
        on_chunk: Callable[[], None] | None = None,
        sync: Callable[[], None] | None = None,
        samples: list[tuple[Any, int | None]] | None = None,
        is_mine: Callable[[CodeType], bool] | None = None,
        on_begin: Callable[[], object] | None = None,
        on_end: Callable[[object, int, int], None] | None = None,
    ) -> None:
        if (on_begin is None) != (on_end is None):
            raise ValueError("on_begin and on_end go together")
        self._inside, self._signatures = inside, signatures
        self._ended = COMPLETED if completed or sync is not None else 0
        self._max_signatures = max_signatures
        self._keys = KeyMaker(classify, key, strides)
        self._on_signature, self._on_result, self._on_thread = on_signature, on_result, on_thread
        self._on_chunk, self._sync, self._is_mine = on_chunk, sync, is_mine
        self._on_begin, self._on_end = on_begin, on_end
        self._sites: dict[
            tuple[int, int], int
        ] = {}  # by the address of the code and the instruction; 0: not the user's
        self._site_list: list[tuple[CodeType, int]] = []
        self._others: dict[int, CodeType] = {}  # not the user's; kept, so that no address is used twice
        self._callables = [Callable_(SPAN, [True])]
        self._apis: dict[str, list[bool]] = {}
        self._running = self._paused = self._sampled_out = self._manual_steps = self._on = False
        self._every = 1
        self._epoch = self._run = 0
        self._signature_count = 0
        self._generalised: dict[int, int] = {}
        by_one = not locked()
        self._ranges = RangesByOne() if by_one else Ranges()
        self._buffers = (BuffersByOne if by_one else Buffers)(max_pending, totals)
        self._local = threading.local()
        self._instances = Instances()
        self.forget_instances = self._instances.clear
        self._lock = threading.RLock()  # a signal handler may record while its thread holds it

    # -- names and stand-ins

    def add_callable(
        self,
        name: str,
        *,
        kind: int = CALL,
        module: bool = False,
        record: bool = True,
        boundary: bool = False,
        floats: bool = False,
    ) -> int:
        seen = self._apis.setdefault(name, [False])
        with self._lock:
            self._callables.append(Callable_(kind, seen, module, record, boundary, floats))
            return len(self._callables) - 1

    def wrap(self, function: Any, callable_id: int, through: Any = None) -> Wrapper | PlainWrapper:
        self._known(callable_id)
        return self._stand_in(function, through, callable_id, None)

    def wrap_resolved(self, function: Any, resolve: Resolver, through: Any = None) -> Wrapper | PlainWrapper:
        return self._stand_in(function, through, -1, resolve)

    def _stand_in(
        self, function: Any, through: Any, callable_id: int, resolve: Resolver | None
    ) -> Wrapper | PlainWrapper:
        while isinstance(function, PlainWrapper):  # of an earlier recorder
            function = function._wrapped
        kind = Wrapper if hasattr(type(function), "__get__") else PlainWrapper
        return kind(self, function, function if through is None else through, callable_id, resolve)

    def wrap_property(self, descriptor: Any, callable_id: int) -> PropertyWrapper:
        self._known(callable_id)
        return PropertyWrapper(self, descriptor, callable_id)

    def _known(self, callable_id: int) -> None:
        if not -1 <= callable_id < len(self._callables):
            raise ValueError(f"no callable has the id {callable_id}")

    def _resolve(self, wrapper: Wrapper | PlainWrapper, instance: Any) -> int:
        known = self._instances.get(wrapper, instance)
        thread = self._thread()
        if known is not None or thread.busy or wrapper._resolve is None:
            return -1 if known is None else known
        thread.busy = True
        start_ns = now_ns()
        try:
            callable_id = wrapper._resolve(instance)
            self._known(callable_id)
        except Exception as failure:  # noqa: BLE001 - a resolver's failure must not become the user's
            self._buffers.count_error(failure)
            callable_id = -1
        finally:
            thread.busy = False
        self._instances.put(wrapper, instance, callable_id)
        if self._on and thread.top is not None:
            self._own_work(thread, start_ns)
        return callable_id

    # -- modes

    direct = False  # tensors are read by their attributes

    @property
    def recording(self) -> bool:
        return self._on

    @property
    def filled(self) -> float:
        return self._buffers.filled()

    @property
    def hook_error(self) -> str:
        return self._buffers.hook_error

    def _set(self) -> None:
        on = self._running and not self._paused and not self._sampled_out
        if self._on and not on:
            self._epoch += 1
        self._on = on

    def start(self) -> None:
        if not self._running:
            self._run += 1
        self._running, self._paused = True, False
        self._set()

    def pause(self) -> None:
        self._paused = True
        self._set()

    def stop(self) -> None:
        if self._running:
            self._run += 1
            for thread in self._buffers.threads:
                span = thread.top
                while span is not None:
                    self._buffers.count("unfinished")
                    span = span.prev
        self._running = False
        self._set()

    def sample(self, every: int) -> None:
        if every < 1:
            raise ValueError("every must be at least 1")
        self._every = every

    def step(self, callable_id: int = -1) -> bool:
        self._known(callable_id)
        self._manual_steps = True
        if callable_id >= 0 and self._running:
            thread = self._thread()
            span = Span(thread, callable_id, self._epoch)
            span.start_ns = now_ns()
            self._emit(thread, span, 0, 0, 0, OWN | SPANNED | self._ended, self._callables[callable_id])
        self._count_step()
        return self._on

    def _count_step(self) -> None:
        with self._lock:
            self._buffers.counts["steps"] += 1
            self._sampled_out = self._buffers.counts["steps"] % self._every != 0
            self._set()

    # -- threads and sections

    def _thread(self) -> Thread_:
        thread: Thread_ | None = getattr(self._local, "thread", None)
        if thread is None:
            with self._lock:
                thread = Thread_(len(self._buffers.threads))
                self._buffers.threads.append(thread)
            self._local.thread = thread
            self._call_hook(thread, self._on_thread, thread.no)
        return thread

    def thread(self) -> int:
        return self._thread().no

    def section(self) -> int:
        return self._thread().section

    def enter(self, callable_id: int) -> Span:
        self._known(callable_id)
        thread = self._thread()
        span = Span(thread, callable_id, self._run)
        span.section_kind = True
        if self._running:
            span.site = self._site(thread)
            thread.top, thread.section, thread.depth = span, callable_id, span.depth + 1
        span.start_ns = now_ns()
        return span

    def leave(self, span: Span) -> None:
        end_ns = now_ns()
        thread = self._thread()
        if span.thread is not thread or span.epoch < 0:
            return
        linked = thread.unlink(span)
        if not self._running or span.epoch != self._run:
            return
        span.epoch = -1  # a second leave is nothing
        duration = end_ns - span.start_ns
        if span.prev is not None and linked:
            span.prev.child_ns += duration
        flags = SPANNED | self._ended | (INSIDE if span.inside else 0)
        self._emit(thread, span, duration, 0, 0, flags, self._callables[span.callable_id])

    # -- the path of one call

    def _call(self, callable_id: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        spec = self._callables[callable_id]
        if not self._on:
            result = function(*args, **kwargs)
            if spec.boundary and self._running and not self._manual_steps:
                self._count_step()
            return result
        thread = self._thread()
        if thread.busy:
            return function(*args, **kwargs)
        if spec.kind == OPENS:
            before, thread.open = thread.open, 0
            try:
                return function(*args, **kwargs)
            finally:
                thread.open = before
        if thread.open and not self._inside:
            thread.passed += 1
            return function(*args, **kwargs)
        if not spec.record:
            return self._unrecorded(thread, spec, function, args, kwargs)
        known = self._signature_count
        signature = self._signature(thread, callable_id, spec, args, kwargs) if self._signatures else 0
        span = Span(thread, callable_id, self._epoch)
        span.site = self._site(thread)
        begun = self._begin(thread) if self._on_begin is not None else None
        thread.top, thread.depth = span, span.depth + 1
        if spec.kind == CALL:
            thread.open += 1
        if spec.module:
            thread.module = callable_id
        raised, error, result = 0, None, _NOTHING
        span.start_ns = now_ns()
        try:
            result = function(*args, **kwargs)
            return result
        except BaseException as caught:
            error = caught
            raised = 0 if isinstance(error, StopIteration) else RAISED
            raise
        finally:
            end_ns = now_ns()
            wait, failure = 0, None
            if begun is not None and self._on_end is not None:
                failure = thread.run(self._on_end, begun, thread.no, span.start_ns)
                if isinstance(failure, Exception):
                    self._buffers.count_error(failure)
                    failure = None
                raised = RAISED if failure is not None else raised
            if self._sync is not None and not thread.busy:
                waiting_ns = now_ns()
                # What the device reports is the failure of the call, unless that failed by itself.
                if error is None:
                    failure = failure or thread.run(self._sync)
                else:
                    self._call_hook(thread, self._sync)
                raised = RAISED if failure is not None else raised
                wait = now_ns() - waiting_ns
                end_ns += wait
            error = None  # no cycle through this frame
            thread.top, thread.depth, thread.open = span.prev, span.depth, span.open
            thread.section, thread.module = span.section, span.module
            if span.epoch == self._epoch and self._on:
                flags = raised | self._ended | (INSIDE if span.inside else 0) | (SPANNED if spec.kind else 0)
                duration = end_ns - span.start_ns
                if span.prev is not None:
                    span.prev.child_ns += duration
                self._emit(thread, span, duration, wait, signature, flags, spec)
                if signature > known and result is not _NOTHING and failure is None and spec.kind == CALL:
                    self._describe_result(thread, signature, result)
            elif self._running:
                self._buffers.count("unfinished")
            if spec.boundary and self._running and not self._manual_steps:
                self._count_step()
            if failure is not None:
                raise failure

    def _unrecorded(self, thread: Thread_, spec: Callable_, function: Any, args: Any, kwargs: Any) -> Any:
        before = thread.open
        thread.open += spec.kind == CALL
        try:
            return function(*args, **kwargs)
        finally:
            thread.open = before
            if spec.boundary and self._running and not self._manual_steps:
                self._count_step()

    def _emit(
        self,
        thread: Thread_,
        span: Span,
        duration: int,
        wait: int,
        signature: int,
        flags: int,
        spec: Callable_,
    ) -> None:
        if self._buffers.put(thread, span, spec, (duration, wait, signature, flags)):
            self._call_hook(thread, self._on_chunk)

    def _begin(self, thread: Thread_) -> object:
        answers: list[object] = []
        self._call_hook(thread, lambda: answers.append(self._on_begin()) if self._on_begin else None)
        return answers[0] if answers else None

    def _call_hook(self, thread: Thread_, hook: Callable[..., None] | None, *args: Any) -> None:
        failure = thread.run(hook, *args) if hook is not None else None
        if isinstance(failure, Exception):  # never break the user's program
            self._buffers.count_error(failure)
        elif failure is not None:
            raise failure

    # -- signatures

    def _signature(self, thread: Thread_, callable_id: int, spec: Callable_, args: Any, kwargs: Any) -> int:
        thread.busy = True
        try:
            floats: list[float] = []
            key: object = self._keys.make(args, kwargs, floats)
            if spec.floats:
                key = (key, tuple([value.hex() for value in floats]))
        except Exception as failure:  # noqa: BLE001
            self._buffers.count_error(failure)
            return 0
        finally:
            thread.busy = False
        known = spec.signatures.get(key)
        if known is None:
            known = self._first_sight(thread, callable_id, spec, key, args, kwargs)
        if floats:
            self._ranges.widen(known, floats)
        return known

    def _first_sight(
        self, thread: Thread_, callable_id: int, spec: Callable_, key: object, args: Any, kwargs: Any
    ) -> int:
        with self._lock:  # another thread may have been here since the look that found none
            known = spec.signatures.get(key)
            general = known is None and len(spec.signatures) >= self._max_signatures
            if general:
                known = self._generalised.get(callable_id)
            if known is None:
                self._signature_count += 1
                signature = self._signature_count
                if general:
                    self._generalised[callable_id] = signature
                else:
                    spec.signatures[key] = signature
        if general:
            self._buffers.count("generalised")
        if known is not None:
            return known
        start_ns = now_ns()
        self._call_hook(thread, self._on_signature, callable_id, signature, args, kwargs, general)
        self._buffers.count("described")
        self._own_work(thread, start_ns)
        return signature

    def _describe_result(self, thread: Thread_, signature: int, result: Any) -> None:
        """After the first call of a signature, in nobody's time."""
        if self._on_result is not None:
            start_ns = now_ns()
            self._call_hook(thread, self._on_result, signature, result)
            if self._on:
                self._own_work(thread, start_ns)

    def _own_work(self, thread: Thread_, start_ns: int) -> None:
        """The recorder worked on this thread since then: an event of its own, and no part of the calls that are open."""
        span = Span(thread, 0, self._epoch)
        span.start_ns = start_ns
        duration = now_ns() - start_ns
        self._buffers.count("described_ns", duration)
        if thread.top is not None:
            thread.top.child_ns += duration
        self._emit(thread, span, duration, 0, 0, OWN | SPANNED | self._ended, self._callables[0])
        thread.own_ns += duration

    # -- sites

    def _site(self, thread: Thread_) -> int:
        """The number of the line that calls now: the innermost of the user's code."""
        if self._is_mine is None:
            return 0
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            found = self._sites.get((id(code), frame.f_lasti))
            if found is None:
                found = self._new_site(thread, code, frame.f_lasti)
            if found:
                return max(found, 0)
            frame = frame.f_back
        return 0

    def _new_site(self, thread: Thread_, code: CodeType, at: int) -> int:
        """The number of a place that is seen for the first time; 0: not the user's, -1: no room."""
        if len(self._sites) >= _MAX_SITES:
            self._buffers.count("unplaced")
            return -1
        answer: list[object] = []
        self._call_hook(thread, lambda: answer.append(self._is_mine(code)))  # type: ignore[misc]
        with self._lock:
            key = id(code), at
            if key not in self._sites:
                if answer and answer[0]:
                    self._site_list.append((code, at))
                else:
                    self._others[id(code)] = code
                self._sites[key] = len(self._site_list) if answer and answer[0] else 0
            return self._sites[key]

    def site(self, number: int) -> tuple[CodeType, int]:
        if not 0 < number <= len(self._site_list):
            raise ValueError(f"no site has the number {number}")
        return self._site_list[number - 1]

    # -- taking out

    def take(self, partial: bool = True) -> list[bytes]:
        return [piece for events in self.drain(partial) for piece in pack(events)]

    def drain(self, partial: bool = True) -> list[bytes]:
        return self._buffers.take(partial)

    def totals(self) -> list[Any]:
        return self._buffers.totals()

    def live(self) -> list[tuple[int, int, int, int, int, int, int]]:
        called = [(i, c) for i, c in enumerate(self._callables) if c.n]
        return [(i, c.n, c.total_ns, c.child_ns, c.min_ns, c.max_ns, c.raised) for i, c in called]

    def float_ranges(self) -> dict[int, list[tuple[float, float]]]:
        return self._ranges.all()

    def stats(self) -> dict[str, int]:
        return {**self._buffers.stats(), "signatures": self._signature_count}

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._local = threading.local()
        self._epoch += 1
        self._run += 1
        self._buffers.clear()
        for spec in self._callables:
            spec.reset()
