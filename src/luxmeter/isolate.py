"""A pool of warm worker processes for work that may crash or hang.

    with Pool(workers=2, preload=["torch"]) as pool:
        outcome = pool.run("package.module:function", {"size": 3}, timeout_s=60)

Work is a function's name with arguments that JSON can hold: nothing is pickled, nothing of the calling script is
run again, and the interpreter may be another environment's. A worker lives on after an exception; after a death or
a timeout a new one takes its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

from luxmeter.errors import UsageError

Work: TypeAlias = str | Callable[..., Any]
_TAIL_BYTES = 64 * 1024  # of what a worker prints, the end is kept
_WORKER = Path(__file__).with_name("_worker.py")


@dataclass(frozen=True)
class Outcome:
    """How one piece of work ended. `reason` is one line; `detail` a traceback; `output` the end of what it printed."""

    status: Literal["ok", "error", "timeout", "crashed"]
    value: Any = None
    reason: str = ""
    detail: str = ""
    output: str = ""
    taken_s: float = 0.0


class Pool:
    """Worker processes, started when first needed. Close it, or use it as a context manager."""

    def __init__(
        self,
        *,
        workers: int = 1,
        python: str | os.PathLike[str] = sys.executable,
        preload: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        paths: Sequence[str] = (),
        memory_bytes: int | None = None,
        most_bytes: int = 64 << 20,
        start_timeout_s: float = 120.0,
    ) -> None:
        """`preload` is imported before the first work; `paths` are added to the workers' import path.

        `memory_bytes` limits each worker's address space; a result of more than `most_bytes` is an error.
        """
        if workers < 1:
            raise UsageError("no-workers", f"A pool of {workers} workers does no work.", "Ask for 1 or more.")
        self._count = workers
        self._command = [os.fspath(python), str(_WORKER)]
        self._env = {**os.environ, **(env or {})}
        same = os.fspath(python) == sys.executable
        # The same interpreter sees what the caller sees; another one must not meet this one's packages.
        own = [p or str(Path.cwd()) for p in sys.path] if same else []
        self._hello = {
            "paths": [*map(str, paths), *own],
            "preload": list(preload),
            "memory_bytes": memory_bytes,
            "most_bytes": most_bytes,
        }
        self._start_timeout_s = start_timeout_s
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._closed = False

    def run(
        self, work: Work, args: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Outcome:
        """Do one piece of work and wait for its outcome."""
        return next(iter(self.map(work, [args or {}], timeout_s=timeout_s)))[1]

    def map(
        self, work: Work, items: Iterable[Mapping[str, Any]], *, timeout_s: float | None = None, alive: str = ""
    ) -> Iterator[tuple[int, Outcome]]:  # fmt: skip
        """Do the work for each item's arguments; (number of the item, outcome) as they end.

        Work that writes `alive` to its standard error from time to time has `timeout_s` anew from then on.

        Left early (Ctrl-C, break), the workers that are still busy are ended; the others stay warm.
        """
        name = _named(work)
        waiting = enumerate(items)
        try:
            more = True
            while True:
                while more and len(self._busy) < self._count:
                    number, args = next(waiting, (-1, None))
                    if args is None:
                        more = False
                        break
                    try:
                        frame = _frame({"work": name, "args": dict(args)})
                    except (TypeError, ValueError) as error:
                        yield (
                            number,
                            Outcome("error", reason=f"NotJSON: the arguments cannot be sent: {error}"),
                        )
                        continue
                    worker = self._take()
                    self._busy.append(worker)
                    worker.begin(number, frame, timeout_s, alive)
                if not self._busy:
                    return
                for worker, outcome in _wait(self._busy):
                    self._busy.remove(worker)
                    if outcome.status in ("ok", "error"):
                        self._idle.append(worker)
                    else:
                        worker.kill()
                    yield worker.number, outcome
        finally:
            while self._busy:
                self._busy.pop().kill()

    def start(self) -> None:
        """Start all workers now, rather than when work comes."""
        fresh = [self._launch() for _ in range(self._count - len(self._idle))]
        for worker in fresh:
            self._greet(worker)
            self._idle.append(worker)

    def renew(self) -> None:
        """End the workers that are idle: the next work is done in new processes."""
        while self._idle:
            self._idle.pop().kill()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that are alive."""
        return [w.process.pid for w in [*self._idle, *self._busy]]

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        for worker in [*self._idle, *self._busy]:
            worker.kill()
        self._idle.clear()
        self._busy.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.kill()
        worker = self._launch()
        self._greet(worker)
        return worker

    def _launch(self) -> _Worker:
        if self._closed:
            raise UsageError("pool-closed", "This pool of workers has been closed.", "Make a new one.")
        try:
            worker = _Worker(self._command, self._env)
        except OSError as error:
            raise UsageError(
                "no-interpreter",
                f"{self._command[0]} cannot be started: {error}.",
                "Give the path of a Python.",
            ) from error
        worker.begin(-1, _frame(self._hello), self._start_timeout_s)
        return worker

    def _greet(self, worker: _Worker) -> None:
        try:
            [(_, outcome)] = _wait([worker])
        except BaseException:
            worker.kill()
            raise
        if outcome.status != "ok":
            worker.kill()
            said = outcome.detail or outcome.output
            raise UsageError(
                "worker-did-not-start",
                f"A worker of {self._command[0]} did not start: {outcome.reason}.\n{said}\n",
                "Check that this interpreter runs and can import what is needed.",
            )


class _Worker:
    """One process, its pipes and the work it is at."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        # A session of its own: Ctrl-C in the terminal is the parent's business, and all it started can be ended.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env),
            bufsize=0, start_new_session=True,
        )  # fmt: skip
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        self.number = -1
        self._unsent = b""
        self._received = bytearray()
        self._printed: deque[bytes] = deque()
        self._began = 0.0
        self._timeout_s: float | None = None
        self._deadline: float | None = None
        self._alive = b""
        self._waits = False
        self._open = True

    def begin(self, number: int, frame: bytes, timeout_s: float | None, alive: str = "") -> None:
        self.number = number
        self._unsent = frame
        self._received.clear()
        self._printed.clear()
        self._began = time.monotonic()
        self._timeout_s, self._alive = timeout_s, alive.encode()
        self._deadline, self._waits = None, True

    def watch(self, selector: selectors.BaseSelector) -> None:
        if (
            self._waits
        ):  # the work is sent from now on: before, another worker may have been starting, for long
            self._waits, self._began = False, time.monotonic()
            self._deadline = None if self._timeout_s is None else self._began + self._timeout_s
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        selector.register(process.stdout, selectors.EVENT_READ, (self, self._read_answer))
        selector.register(process.stderr, selectors.EVENT_READ, (self, self._read_printed))
        if self._unsent:
            selector.register(process.stdin, selectors.EVENT_WRITE, (self, self._send))

    def patience_s(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def overdue(self) -> Outcome | None:
        """The outcome if the time is up; the worker first gets a moment to write where it hangs."""
        if self._deadline is None or time.monotonic() < self._deadline:
            return None
        taken = time.monotonic() - self._began
        with contextlib.suppress(OSError, AttributeError):
            self.process.send_signal(signal.SIGUSR1)
            self._drain(0.3)
        return Outcome(
            "timeout", reason=f"no result within {self._timeout_s:g} s", output=self._output(), taken_s=taken
        )

    def kill(self) -> None:
        """End the process and whatever it started; safe to call twice."""
        if not self._open:
            return
        self._open = False
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self) -> bool:
        """True when nothing is left to send."""
        assert self.process.stdin
        try:
            self._unsent = self._unsent[os.write(self.process.stdin.fileno(), self._unsent[:65536]) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # it is gone; the end of its answers will say so
        return not self._unsent

    def _read_answer(self) -> Outcome | None:
        assert self.process.stdout
        try:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return None
        if not data:
            return self._death()
        self._received += data
        if len(self._received) < 4:
            return None
        (size,) = struct.unpack(">I", self._received[:4])
        if len(self._received) < 4 + size:
            return None
        return self._reading(bytes(self._received[4 : 4 + size]))

    def _reading(self, data: bytes) -> Outcome:
        taken = time.monotonic() - self._began
        self._drain(0.0)
        try:
            answer = json.loads(data)
        except ValueError:
            self.kill()
            return Outcome(
                "crashed", reason="its answer cannot be read", output=self._output(), taken_s=taken
            )
        if answer["ok"]:
            return Outcome("ok", value=answer["value"], output=self._output(), taken_s=taken)
        reason = f"{answer['type']}: {answer['message']}"
        return Outcome(
            "error", reason=reason, detail=answer["traceback"], output=self._output(), taken_s=taken
        )

    def _death(self) -> Outcome:
        taken = time.monotonic() - self._began
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        self._drain(0.05)
        code = self.process.returncode
        if code is not None and code < 0:
            try:
                said = f"ended by {signal.Signals(-code).name}"
            except ValueError:
                said = f"ended by signal {-code}"
        else:
            said = f"exited with code {code}"
        return Outcome("crashed", reason=said, output=self._output(), taken_s=taken)

    def _read_printed(self) -> bool:
        """True when nothing more will come."""
        assert self.process.stderr
        try:
            data = os.read(self.process.stderr.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self._printed.append(data)
        if self._alive and self._alive in data and self._timeout_s is not None:
            self._deadline = time.monotonic() + self._timeout_s
        while sum(map(len, self._printed)) - len(self._printed[0]) > _TAIL_BYTES:
            self._printed.popleft()
        return not data

    def _drain(self, wait_s: float) -> None:
        """Take in what has been printed, waiting a little for more; a worker that never stops printing is cut off."""
        assert self.process.stderr
        end = time.monotonic() + wait_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while selector.select(max(0.0, end - time.monotonic())):
                if self._read_printed() or time.monotonic() > end + 1:
                    break

    def _output(self) -> str:
        return b"".join(self._printed)[-_TAIL_BYTES:].decode(errors="replace")


def _wait(workers: Sequence[_Worker]) -> list[tuple[_Worker, Outcome]]:
    """Wait until at least one of the workers is done, and say which and how."""
    done: dict[_Worker, Outcome] = {}
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            worker.watch(selector)
        while not done:
            left = [p for p in (worker.patience_s() for worker in workers) if p is not None]
            for key, _ in selector.select(min(left) if left else None):
                worker, act = key.data
                result = act()
                if isinstance(result, Outcome):
                    done[worker] = result
                elif result is True:  # nothing more to send, or to read of what it prints
                    selector.unregister(key.fileobj)
            for worker in workers:
                if worker not in done and (late := worker.overdue()) is not None:
                    done[worker] = late
    return list(done.items())


def _frame(message: Mapping[str, Any]) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


def _named(work: Work) -> str:
    """`module:function` of a callable that another process can import under that name."""
    if isinstance(work, str):
        if ":" not in work:
            raise UsageError("bad-work", f"{work!r} names no function.", "Write package.module:function.")
        return work
    module, path = getattr(work, "__module__", ""), getattr(work, "__qualname__", "<unnamed>")
    if module in ("", "__main__", None) or "<" in path:
        raise UsageError(
            "work-not-importable",
            f"{path} of {module or 'nowhere'} cannot be imported by another process.",
            "Put the function at the top level of a module.",
        )
    return f"{module}:{path}"
