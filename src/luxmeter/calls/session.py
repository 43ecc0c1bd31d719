"""Trace: everything between starting to record and having the result."""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

import pyarrow as pa

from luxmeter import ranks
from luxmeter.calls import cost, device, export, layout, processes
from luxmeter.calls.arguments import Arguments
from luxmeter.calls.core import load as load_core
from luxmeter.calls.describe import Names, describer
from luxmeter.calls.device_time import DeviceTimes
from luxmeter.calls.formats import check_trace_output
from luxmeter.calls.frameworks import NAMES
from luxmeter.calls.options import TraceOptions, TraceSettings, make_options
from luxmeter.calls.outside import Outside
from luxmeter.calls.patching import patcher
from luxmeter.calls.pauses import Pauses
from luxmeter.calls.result import TraceResult
from luxmeter.calls.sites import Sources, UserCode
from luxmeter.calls.source import AnnotatedSource
from luxmeter.calls.steps import Steps
from luxmeter.calls.stragglers import Stragglers
from luxmeter.calls.table import CallTable
from luxmeter.calls.targets import Coverage, told
from luxmeter.calls.tree import CallTree
from luxmeter.calls.writer import Spill
from luxmeter.errors import TraceError, UsageError, warn_once
from luxmeter.import_hook import call_after_import
from luxmeter.process import Process, at_worker_end
from luxmeter.supported import newer_than_tested, version_of

if TYPE_CHECKING:
    from luxmeter.calls.core._core import Recorder
    from luxmeter.operators import Operators

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.RLock()
_active: Trace | None = None
_ends_of = 0  # the process that knows what to do at its end


class Section:
    """A named part of the program: a context manager that can be used again, and inside itself."""

    def __init__(self, name: str, enter: Callable[[str], Any], leave: Callable[[Any], None]) -> None:
        self.name = name
        self._enter, self._leave = enter, leave
        self._open: list[Any] = []

    def __enter__(self) -> Section:
        self._open.append(self._enter(self.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(self._open.pop())


class Budget:
    """A share of the time that tracing may take: past it, recording pauses until it has been earned back. None: no limit."""

    def __init__(self, share: float | None) -> None:
        self._share = share
        self._paused = False

    def keep(self, recorder: Recorder, *, added_ns: float, elapsed_ns: int) -> None:
        """To be called now and then, with what a call costs and the time since the start."""
        if self._share is None:
            return
        stats = recorder.stats()
        spent = stats["events"] * added_ns + stats["described_ns"]
        allowed = self._share * elapsed_ns
        if not self._paused and spent > allowed:
            self._paused = True
            recorder.pause()
        elif self._paused and spent < 0.8 * allowed:
            self._paused = False
            recorder.start()


class Trace:
    """Records the calls of a framework: `with lux.trace() as t: ...; print(t)`.

    May be started once. Results can be read while it runs and after.
    """

    def __init__(self, options: TraceOptions | None = None, *, preparing_ns: int = 0) -> None:
        self.options = options or TraceOptions()
        self.running = self.gives_way = False  # gives_way: ends when the program starts a trace of its own
        self.folder: Path | None = None
        self._owns_folder = self._child = False
        self._budget = Budget(self.options.budget)
        self._recorder: Any = None
        self._names: Names = Names(Arguments())
        self._patcher: patcher.Patcher | None = None
        self._spill: Spill | None = None
        self._trouble = ""
        self._cost = cost.CallCost(0.0, 0.0)
        self._on_device: DeviceTimes | None = None
        self._started_ns = self._stopped_ns = 0
        self._setup_ns = preparing_ns  # to put the stand-ins in place and to take them out
        self._started_at = 0.0
        self._token: processes.Token | None = None
        self._rank: int | None = None  # among several
        self._result: TraceResult | None = None

    # -- start and stop

    def start(self) -> Trace:
        """Begin to record. Everything that can be refused is refused before anything is patched."""
        global _active, _ends_of
        begun_ns = time.perf_counter_ns()
        with _lock:
            if _active is not None and _active.gives_way:
                _active.stop()
            if _active is not None:
                raise TraceError(
                    "already-tracing",
                    "Another trace of this process is running.",
                    "Stop it first, or use its section() to time a part.",
                )
            if self.folder is not None:
                raise TraceError(
                    "trace-used-up", "This trace was started before.", "Make a new one with lux.trace()."
                )
            try:
                self._prepare()
            except BaseException:
                self._abandon()
                raise
            _active = self
        try:
            if self._patcher is not None:
                self._patcher.install()
        except BaseException:  # it has put everything back itself
            self._abandon()
            raise
        try:
            self._tell_left_out()  # may raise: warnings can be errors
        except BaseException:
            if self._patcher is not None:
                self._patcher.remove()
            self._abandon()
            raise
        self.running = True
        self._setup_ns += time.perf_counter_ns() - begun_ns
        self._started_at, self._started_ns = time.time(), self._core.now_ns()
        self._pauses.start()
        self._recorder.start()
        if not self._child and _ends_of != os.getpid():
            _ends_of = os.getpid()
            at_worker_end(_at_exit)
        return self

    def _tell_left_out(self) -> None:
        said = told(self._patcher.left_out) if self._patcher is not None else []
        if said:
            warn_once(
                "trace-part-left-out",
                f"A part of the recorder is left out; {'; '.join(said)}.",
                "The rest is timed; notes() and coverage() say what is not.",
                stacklevel=4,
            )

    def _remarks(self) -> list[str]:
        """What the versions at hand mean for this trace."""
        if self._patcher is None:
            return []
        newer = newer_than_tested(version_of("torch")) if "torch" in self._patcher.frameworks else ""
        return [*filter(None, [newer]), *told(self._patcher.left_out)]

    def _prepare(self) -> None:
        options = self.options  # all up to patching
        if options.device and options.totals:
            raise UsageError(
                "device-needs-calls",
                "device=True times each call on the accelerator, and totals=True keeps no single calls.",
                "Leave out the one or the other.",
            )
        for path in options.files:
            check_trace_output(str(path), totals=options.totals)
        self._core, _ = load_core(options.core)
        arguments = Arguments(strides=options.strides, exchange=options.exchange)
        user_code = UserCode(tuple(options.lines_in)) if options.lines else None
        self._names = Names(arguments, describer(options.framework, facts=options.facts), user_code)
        computing = options.waits_for or device.current_device(options.framework or "")
        hooks = arguments.hooks()
        self._on_device = DeviceTimes(is_child=self._child) if options.device else None
        around = {"on_begin": self._on_device.begin, "on_end": self._on_device.end} if self._on_device else {}
        modes = {name: bool(getattr(options, name)) for name in ("signatures", "strides", "totals")}
        self._recorder = self._core.Recorder(
            inside=options.inside,
            completed=computing.completes,
            max_signatures=options.max_signatures,
            max_pending=options.max_pending,
            on_signature=self._names.on_signature,
            on_result=self._names.on_result,
            on_thread=self._on_thread,
            on_chunk=self._on_chunk,
            sync=computing.synchronize if options.sync else None,
            is_mine=user_code,
            **modes,
            **hooks,
            **around,
        )
        self._recorder.sample(options.sample)
        self._pauses = Pauses(self._core.now_ns)
        self._names.attach(self._recorder)
        if options.framework is not None:
            self._patcher = patcher.Patcher(
                self._recorder,
                self._names,
                also=tuple(options.also),
                only=tuple(options.only),
                skip=tuple(options.skip),
                framework=options.framework,
                waits=options.sync,
                run_worker=run_worker,
                during=self._pauses.during,
            )
        self._cost = cost.measure(self._core, hooks=hooks, lines=options.lines, **modes)
        own = ranks.own_rank()
        if self._token is None:
            self.folder, self._owns_folder = layout.make(options, own)
            self._token = processes.Token.of(self.folder, options, own.rank)
        else:
            self.folder = Path(self._token.folder)
            layout.hold(self.folder)
        self._names.token, self._names.sources = self._token, Sources(self.folder)
        self._open_spill().start()

    def _open_spill(self) -> Spill:
        assert self.folder is not None and self._token is not None
        process = layout.make_process(self.folder, self._token.rank)
        lossless = self.options.lossless
        self._spill = Spill(process, self._recorder, self._names, tick=self._on_tick, lossless=lossless)
        return self._spill

    def stop(self) -> Trace:
        """Stop recording, bind everything as it was, write the files. A second stop does nothing."""
        global _active
        with _lock:
            if not self.running:
                return self
            self._recorder.stop()
            self._stopped_ns, self.running = self._core.now_ns(), False
            self._pauses.stop()
            try:
                if self._patcher is not None:
                    self._patcher.remove()
            finally:
                _active = None
                self._setup_ns += self._core.now_ns() - self._stopped_ns
                self._finish()
        self._tell_trouble()
        for path in [] if self._child else self.options.files:
            export.write(self, path)
        return self

    def _finish(self) -> None:
        if self._spill is None:
            return
        spill, self._spill = self._spill, None
        if self._on_device is not None:
            self._on_device.finish()
            spill.beside(self._on_device.write, last=True)
        spill.finish(self._end)
        self._trouble = spill.trouble
        if not self._child and self.folder is not None:
            layout.mark_stopped(self.folder)

    def _abandon(self) -> None:
        global _active
        with _lock:
            _active = None
            if self._spill is not None:
                self._spill.finish(None)
                self._spill = None
            if self._owns_folder and self.folder is not None:
                layout.remove(self.folder)
            self.folder = None

    @property
    def _call_cost(self) -> cost.CallCost:
        more_ns = self._on_device.added_ns if self._on_device is not None else 0.0
        return replace(self._cost, added_ns=self._cost.added_ns + more_ns)

    def _own_rank(self) -> int:
        """Which rank this process is, or was while there was a group: a worker of a rank is of that rank."""
        found = ranks.own_rank()
        if found.world_size > 1:
            self._rank = found.rank
        if self._rank is not None:
            return self._rank
        return self._token.rank if self._child and self._token else found.rank

    def _end(self) -> dict[str, Any]:
        """What is known only at the end."""
        return {
            "rank": self._own_rank(),
            "clock": Process.here().boot,
            "stats": self._recorder.stats(),
            "core": self._core.__name__.rpartition(".")[2],
            "cost": vars(self._call_cost),
            "setup_ns": self._setup_ns,
            "hook_error": self._recorder.hook_error,
            "unlooked": self._names.unlooked,
            "remarks": self._remarks(),
            "pauses": self._pauses.told(self._names.idents),
            "short_pauses": [self._pauses.counted, self._pauses.counted_ns],
            "spawned": self._patcher.spawned.n if self._patcher and self._patcher.spawned else 0,
            "started_at": self._started_at,
            "started_ns": self._started_ns,
            "elapsed_ns": (self._stopped_ns or self._core.now_ns()) - self._started_ns,
            "float_ranges": [[n, [*map(list, pairs)]] for n, pairs in self._recorder.float_ranges().items()],
            **({"device": self._on_device.told()} if self._on_device is not None else {}),
            "totals": [[*row[:-1], list(memoryview(row[-1]).cast("I"))] for row in self._recorder.totals()],
        }

    def __enter__(self) -> Trace:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __call__(self, function: F) -> F:
        """As a decorator, `@lux.trace()`: each call of the function is traced afresh; see `function.trace`."""
        return traced(function, fresh=lambda: Trace(self.options), running=active)

    @property
    def trouble(self) -> str:
        """What went wrong first in writing the trace down; empty while all goes well."""
        return self._spill.trouble if self._spill is not None else self._trouble

    def _tell_trouble(self) -> None:
        if self.trouble:
            warn_once(
                "trace-writer-failed",
                f"Writing the trace down failed: {self.trouble}.",
                "It is tried again until the end; notes() and the table then say how many calls were lost.",
                key=str(self.folder),
                stacklevel=4,
            )

    # -- while it runs

    def section(self, name: str) -> Section:
        """A named part of the program: `with t.section("forward"): ...`. Sections nest."""
        return Section(name, self._enter, self._leave)

    def _enter(self, name: str) -> Any:
        self._tell_trouble()
        return self._recorder.enter(self._names.section(name)) if self.running else None

    def _leave(self, span: Any) -> None:
        if span is not None:
            self._recorder.leave(span)

    def step(self) -> None:
        """A training step ended here. Without a single call of it, an optimizer's step() ends one."""
        self._tell_trouble()
        if self._recorder is not None:
            self._recorder.step(self._names.step())

    def wrap(self, function: F, *, name: str | None = None, span: bool = False) -> F:
        """A stand-in for a function of yours that is recorded while this trace runs."""
        if self._recorder is None:
            raise TraceError("trace-not-started", "The trace was not started.", "Call start() before wrap().")
        shown = name or f"{function.__module__}.{function.__qualname__}"
        return cast(F, self._recorder.wrap(function, self._names.add(shown, kind=1 if span else 0)))

    def live(self) -> CallTable:
        """Totals for each API until now, without touching the disk."""
        self._tell_trouble()
        rows = self._recorder.live() if self._recorder is not None else []
        return CallTable.from_live(rows, self._names.callables)

    def coverage(self) -> Coverage:
        """Which public callables of the framework are seen, which not, and why."""
        if self._patcher is not None:
            return self._patcher.coverage()
        return patcher.coverage(self.options.framework or "torch", also=tuple(self.options.also))

    # -- results

    @property
    def result(self) -> TraceResult:
        """All that was recorded until now."""
        if self.folder is None:
            raise TraceError("trace-not-started", "The trace was not started.", "Use it in a with statement.")
        if self.running and self._spill is not None:
            if self._on_device is not None:
                self._on_device.read(patience_s=5)
                self._spill.beside(self._on_device.write)
            self._spill.flush()
            self._tell_trouble()
            return TraceResult(self.folder, running=self._end())
        if self._result is None:
            self._result = TraceResult(self.folder)
        return self._result

    def table(self, by: str = "api", **how: Any) -> CallTable:
        """Statistics by "api", "signature", "line", "function", "module", "section", "thread" or "rank"; see TraceResult.table."""
        return self.result.table(by, **how)

    def source(self, *, rank: int | None = None) -> AnnotatedSource:
        """Your files as they were, with what the calls of each line cost."""
        return self.result.source(rank=rank)

    def outside(self) -> Outside:
        """How long no call was open, on each thread, and where that time went."""
        return self.result.outside()

    def steps(self, by: str | None = None) -> Steps:
        """The training steps and how their time splits; see TraceResult.steps."""
        return self.result.steps(by)

    def tree(self, *, rank: int | None = None) -> CallTree:
        """Who called what: totals for each path of calls; of all ranks, or of one."""
        return self.result.tree(rank=rank)

    def stragglers(self) -> Stragglers:
        """Which rank made the others wait, and in which collective; see TraceResult.stragglers."""
        return self.result.stragglers()

    def events(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Every call, one row each; of all columns, or of some. See TraceResult.events."""
        return self.result.events(columns)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows of `events`, some hundred thousand at a time."""
        return self.result.batches(columns)

    def sql(self, query: str) -> pa.Table:
        """A query through duckdb on the tables `calls` and `signatures`."""
        return self.result.sql(query)

    def operators(self, *, backward: bool = False) -> Operators:
        """The distinct operators with what they were given, to save, replay and benchmark."""
        return self.result.operators(backward=backward)

    def cost(self) -> cost.CostReport:
        """What the trace itself cost."""
        return self.result.cost()

    def save(self, path: str | Path) -> Path:
        """Copy the finished trace to a new folder that stays."""
        if self.running:
            raise TraceError("trace-running", "The trace is still running.", "Stop it before save().")
        return self.result.save(path)

    def __str__(self) -> str:
        return "A trace that was not started." if self.folder is None else str(self.result)

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(str(self)) if self.folder is None else self.result.html()

    # -- hooks

    def _on_thread(self, number: int) -> None:
        self._names.on_thread(number)
        if self._child and self._spill is None and self.running:
            self._open_spill().start()
            at_worker_end(self.finish_child)

    def _on_chunk(self) -> None:
        spill = self._spill  # None for one of another thread that ends as the trace does
        if spill is not None:
            spill.wake()
            self._tell_trouble()

    def _on_tick(self) -> None:
        """From the writer, a few times a second."""
        self._own_rank()  # there may be no group any more at the end
        if self._child and self.folder is not None and layout.is_stopped(self.folder):
            self._recorder.pause()
        if self.running:
            elapsed_ns = self._core.now_ns() - self._started_ns
            self._budget.keep(self._recorder, added_ns=self._call_cost.added_ns, elapsed_ns=elapsed_ns)
            if self._on_device is not None and self._spill is not None:
                self._spill.beside(self._on_device.write)

    def after_fork(self) -> bool:
        """In a forked child: record to files of its own, from its first call on. Whether it runs on here."""
        self._child, self._spill, self._result, self._setup_ns = True, None, None, 0
        self._started_at, self._started_ns = time.time(), self._core.now_ns()
        self._names.forget_told()
        self._pauses.clear()
        if self._on_device is not None:
            self._on_device.after_fork()
        self._recorder.after_fork()
        if self._patcher is not None:
            self._patcher.after_fork()
            if not self.running:  # another thread of the parent was just starting or stopping it
                self._patcher.remove()
        return self.running

    def finish_child(self) -> None:
        """In a forked child that is about to end: complete its files."""
        if self._child and self.running:
            self._recorder.stop()
            self.running = False
            self._pauses.stop()
            self._finish()


def trace(**settings: Unpack[TraceSettings]) -> Trace:
    """A trace of every framework call inside a with statement: `with lux.trace() as t: ...`.

    Options are the fields of TraceOptions: inside, sync, device, only, skip, also, sample, totals, budget, keep ...
    """
    options = make_options(settings)
    begun_ns = time.perf_counter_ns()
    if options.framework is not None:
        patcher.prepare(options.framework)  # what only the first start of a process has to do
    return Trace(options, preparing_ns=time.perf_counter_ns() - begun_ns)


def start(**settings: Unpack[TraceSettings]) -> Trace:
    """Start tracing until `lux.stop()`; options as of `lux.trace`."""
    return trace(**settings).start()


def stop() -> Trace:
    """Stop the running trace and give it back."""
    if _active is None:
        raise TraceError("not-tracing", "No trace is running.", "Start one with lux.start() or lux.trace().")
    return _active.stop()


def active() -> Trace | None:
    """The running trace of this process."""
    return _active


def start_in_child(token: processes.Token | None) -> Trace | None:
    """In a spawned process: join the trace of the parent. None if there is none to join."""
    taken = _active is not None or patcher.installed() is not None  # or somebody listens here
    if token is None or taken or not Path(token.folder).is_dir():
        return None
    joined = Trace(make_options(token.settings()))
    joined._token, joined._child = token, True
    return joined.start()


def finish_child() -> None:
    """In a forked worker that will leave by os._exit: complete its files."""
    if _active is not None:
        _active.finish_child()


def run_spawned(given: str, run: Callable[[], Any]) -> Any:
    """In a spawned child: what it is to run, recorded into its parent's trace once there is a framework to record."""
    token = processes.Token(**json.loads(given))
    joined: list[Trace | None] = []

    def join() -> None:
        try:
            joined.append(None if layout.is_stopped(Path(token.folder)) else start_in_child(token))
        except Exception as error:  # noqa: BLE001 - the child has its own work to do
            processes.say_joined(token, f"{type(error).__name__}: {error}")

    over = layout.is_stopped(Path(token.folder))
    processes.say_joined(token, "the trace was over when they began" if over else "")
    call_off = call_after_import(join, *NAMES)
    if any(name in sys.modules for name in NAMES):
        call_off()
        join()
    try:
        return run()
    finally:
        call_off()
        if joined and joined[0] is not None:
            joined[0].stop()
        else:  # another way led here first: forked from a process that is traced, or begun by luxmeter trace
            finish_child()


def run_worker(token: processes.Token | None, module: str, name: str, /, *args: Any) -> Any:
    """The main loop of a DataLoader worker: joins the trace in a spawned process, and leaves it in any."""
    loop = getattr(sys.modules.get(module) or __import__(module, fromlist=[name]), name)
    if isinstance(loop, functools.partial):  # forked: the stand-in is in place here as well
        loop = patcher.original_of(loop)
    child = start_in_child(token)
    try:
        return loop(*args)
    finally:
        if child is not None:
            child.stop()
        else:
            finish_child()


def _after_fork() -> None:
    global _lock, _active
    _lock = threading.RLock()
    processes.forget_held()
    if _active is not None and not _active.after_fork():
        _active = None


def _at_exit() -> None:
    if _active is not None:
        (_active.finish_child if _active._child else _active.stop)()


os.register_at_fork(
    before=lambda: processes.hold(_active._spill if _active is not None else None),
    after_in_parent=processes.release_held,
    after_in_child=_after_fork,
)
atexit.register(_at_exit)


def traced(function: F, *, fresh: Callable[[], Trace], running: Callable[[], Trace | None]) -> F:
    """`function` with each call traced by a fresh trace, the last one as its attribute `trace`.

    While another trace runs, the call is a section of that one, named after the function.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        outer = running()
        if outer is not None:
            call.trace = outer  # type: ignore[attr-defined]
            with outer.section(function.__qualname__):
                return function(*args, **kwargs)
        own = call.trace = fresh()  # type: ignore[attr-defined]
        with own:
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
