"""N processes of one command, with the variables that torchrun sets. When one fails, all end; none is left behind."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import IO, Any

from luxmeter import scratch
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.process import dying_with
from luxmeter.ranks import own_rank
from luxmeter.train.dist.address import DEBUG_RANK, HERE, LAUNCHED, is_one_of_several
from luxmeter.train.launch.ending import Ending, exit_code, first_of, read_ending, told

_GRACE_S = 5.0  # for the others to end by themselves, when one has failed
_TERMINATING_S = 2.0  # from SIGTERM to SIGKILL, then
_ASKED_S = 10.0  # when SIGTERM was sent to us: experiments take up to 9 to end
_LOOKS_EVERY_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(
    command: Sequence[str],
    *,
    processes: int,
    debug_rank: int | None = None,
    restarts: int = 0,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run `command` in so many processes as the ranks of one job, to their end; the exit code of the first that failed, or 0.

    Rank 0's output is shown as it is, that of the others line by line with their number. Ctrl-C is handed on once, the second
    one kills. `debug_rank` has the terminal: breakpoint() stops there. `restarts`: when one fails, all are started again up to so many
    times (not for what Luxmeter itself refuses). `env` takes the place of this process's variables.
    """
    if processes < 1:
        raise UsageError("processes", f"{processes} processes run nothing.", "Give a number from 1 on.")
    if debug_rank is not None and not 0 <= debug_rank < processes:
        raise UsageError(
            "debug-rank",
            f"There is no rank {debug_rank} among {processes} process{'es' if processes > 1 else ''}.",
            f"Give one from 0 to {processes - 1}.",
        )
    if restarts < 0:
        raise UsageError("restarts", f"{restarts} restarts cannot be.", "Give 0 or more.")
    own = own_rank(os.environ)
    if is_one_of_several(own, os.environ):
        raise UsageError(
            "launched-already",
            f"This process is rank {own.rank} of {own.world_size} already ({own.launcher}), and is to start {processes} more.",
            "Leave out --processes where another launcher starts them.",
        )
    variables = dict(os.environ if env is None else env)
    if processes > 1 and "OMP_NUM_THREADS" not in variables:
        variables["OMP_NUM_THREADS"] = "1"  # as torchrun does: N times all cores would be in each other's way
        _say(
            f"Each of the {processes} processes computes in one thread; OMP_NUM_THREADS sets another number."
        )
    with scratch.folder("launch") as folder, _listening() as door, _Heard() as heard:
        port, store = door.getsockname()[1], None
        for attempt in range(restarts + 1):
            job = _Job(list(command), processes, debug_rank, folder, attempt)
            try:
                job.start(variables, port)
                store = store or _serve(
                    door
                )  # one for all attempts: by it a later one finds what an earlier one did
                job.watch(heard)
            finally:
                job.end_all()
            if attempt == restarts or heard.first() or not job.may_go_on():
                break
            _write(told(job.endings()))
            _say(f"All ranks are started again ({attempt + 1} of {restarts} restarts).")
        del store
        return job.outcome(heard)


@dataclass
class _Rank:
    """A process, and what it tells."""

    rank: int
    process: subprocess.Popen[bytes]
    report: Path
    has_terminal: bool
    ending: Ending | None = None
    was_ended: bool = False

    def is_failing(self) -> bool:
        """Whether it has failed, or has said so and is about to end."""
        return self.ending.is_failure if self.ending is not None else self.report.exists()

    def send(self, number: int) -> None:
        """To it and, where it has a group of its own, to all that it started."""
        with contextlib.suppress(ProcessLookupError):
            if self.has_terminal:
                self.process.send_signal(number)
            else:
                os.killpg(self.process.pid, number)

    def look(self) -> bool:
        """Whether it has ended. What it started and left is ended, too, while its number is still its own."""
        if self.ending is None:
            pid = self.process.pid
            if not _has_ended(self.process):
                return False
            now = time.time_ns()
            if not self.has_terminal:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            code = self.process.wait()
            self.ending = read_ending(self.rank, code, now, self.report, was_ended=self.was_ended)
        return True


@dataclass
class _Job:
    """The processes of one command."""

    command: list[str]
    size: int
    debug_rank: int | None
    folder: Path
    attempt: int = 0
    ranks: list[_Rank] = field(default_factory=list)
    relay: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def start(self, variables: Mapping[str, str], port: int) -> None:
        die_with_us = dying_with(os.getpid())
        for rank in range(self.size):
            report = self.folder / f"rank-{rank}-{self.attempt}.json"
            has_terminal = rank == self.debug_rank
            is_shown = rank == 0 or has_terminal
            pipe = None if is_shown else subprocess.PIPE
            try:
                process = subprocess.Popen(
                    self.command,
                    env=self._environment(variables, rank, port, report, is_shown=is_shown),
                    stdin=None if has_terminal else subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=pipe,
                    # In a group of its own: Ctrl-C in the terminal comes to us alone, and all that it starts can be ended.
                    process_group=None if has_terminal else 0,
                    preexec_fn=die_with_us,
                )
            except OSError as error:
                raise LuxmeterError(
                    "launch-failed",
                    f"Process {rank + 1} of {self.size} cannot be started: {error}.",
                    "Start fewer processes, or see what limits them (ulimit -u, memory).",
                ) from error
            self.ranks.append(_Rank(rank, process, report, has_terminal))
            for pipe_end, stream in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                if pipe_end is not None:
                    os.set_blocking(pipe_end.fileno(), False)
                    self.relay.register(pipe_end, selectors.EVENT_READ, _Marked(rank, pipe_end, stream))

    def _environment(
        self, variables: Mapping[str, str], rank: int, port: int, report: Path, *, is_shown: bool
    ) -> dict[str, str]:
        made = {
            **variables,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.size),
            "MASTER_ADDR": HERE,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_ERROR_FILE": str(report),
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt),
            LAUNCHED: "1",
        }
        if _has_torch():
            made["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        if self.debug_rank is not None:
            made[DEBUG_RANK] = str(self.debug_rank)
            if rank != self.debug_rank:
                made["PYTHONBREAKPOINT"] = "0"
        else:
            made.setdefault("PYTHONBREAKPOINT", "luxmeter.train.launch.pass_over")
        if not is_shown:
            made.setdefault("PYTHONUNBUFFERED", "1")  # its lines come when they are printed
        return made

    def watch(self, heard: _Heard) -> None:
        """Until all have ended: hand on signals and output, and end the rest when one has failed."""
        deadline: float | None = None
        while not self._look():
            now = time.monotonic()
            for number in heard.new():
                if number != signal.SIGINT:
                    self._send(signal.SIGTERM)
                    deadline = now + _ASKED_S
                elif self.debug_rank is not None:
                    continue  # the terminal has told the rank that is debugged, whose debugger takes it
                elif heard.count(signal.SIGINT) == 1:
                    self._send(signal.SIGINT)
                else:
                    return
            if deadline is None and any(one.is_failing() for one in self.ranks):
                deadline = now + _GRACE_S
            if deadline is not None and now > deadline:
                self._terminate()
                return
            self._hand_on(_LOOKS_EVERY_S)

    def end_all(self) -> None:
        """Kill what is left, and hand on the last that was printed."""
        for one in self.ranks:
            if one.ending is None and not one.look():
                one.was_ended = True
                one.send(signal.SIGKILL)
        for one in self.ranks:
            while not one.look():
                time.sleep(0.005)
        self._hand_on(0.0)
        for key in list(self.relay.get_map().values()):
            key.data.end()
        self.relay.close()
        for one in self.ranks:
            for pipe in (one.process.stdout, one.process.stderr):
                if pipe is not None:
                    pipe.close()

    def endings(self) -> list[Ending]:
        """How the ranks ended."""
        return [one.ending for one in self.ranks if one.ending is not None]

    def may_go_on(self) -> bool:
        """Whether it failed, and for a reason that may not come again."""
        first = first_of(self.endings())
        return first is not None and not first.is_ours

    def outcome(self, heard: _Heard) -> int:
        """Tell how it ended; the exit code."""
        endings = self.endings()
        number = heard.first()
        if number and not (number == signal.SIGINT and self.debug_rank is not None):
            failed = [
                one
                for one in endings
                if one.is_failure
                and not (one.is_interrupt or one.is_echo or one.was_ended or one.code == -number)
            ]
            if failed:
                _write(told(endings))
            return 128 + number
        _write(told(endings))
        return exit_code(endings)

    def _look(self) -> bool:
        return sum(not one.look() for one in self.ranks) == 0  # each is looked at

    def _send(self, number: int) -> None:
        for one in self.ranks:
            if one.ending is None:
                one.send(number)

    def _terminate(self) -> None:
        for one in self.ranks:
            one.was_ended = one.ending is None
        self._send(signal.SIGTERM)
        end = time.monotonic() + _TERMINATING_S
        while not self._look() and time.monotonic() < end:
            self._hand_on(_LOOKS_EVERY_S)

    def _hand_on(self, wait_s: float) -> None:
        if not self.relay.get_map():
            time.sleep(wait_s)
            return
        for key, _ in self.relay.select(wait_s):
            if not key.data.read():
                self.relay.unregister(key.fileobj)


class _Marked:
    """What a rank prints, line by line, with its number before each."""

    def __init__(self, rank: int, pipe: IO[bytes], stream: Any) -> None:
        self._mark, self._pipe, self._stream = f"[rank {rank}] ", pipe, stream
        self._rest = b""

    def read(self) -> bool:
        """Hand on what is there; whether more may come."""
        while True:
            try:
                data = os.read(self._pipe.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                self.end()
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._show(lines)

    def end(self) -> None:
        """Show what has no end of line."""
        rest, self._rest = self._rest, b""
        if rest:
            self._show([rest])

    def _show(self, lines: Sequence[bytes]) -> None:
        # Of a line that a progress bar wrote anew again and again, the last state.
        texts = [line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace") for line in lines]
        with contextlib.suppress(BrokenPipeError):
            self._stream.write("".join(f"{self._mark}{text}\n" for text in texts))
            self._stream.flush()


class _Heard:
    """The signals that came while the ranks run: noted here, and handed on by the job."""

    def __init__(self) -> None:
        self._all: list[int] = []
        self._seen = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Heard:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background, or under nohup
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._all.append(number)

    def new(self) -> list[int]:
        """Those that came since this was asked last."""
        found = self._all[self._seen :]
        self._seen += len(found)
        return found

    def count(self, number: int) -> int:
        """How often one came."""
        return self._all.count(number)

    def first(self) -> int:
        """The one that ended the job; 0 if none came."""
        return self._all[0] if self._all else 0


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Asked so that its number is not given to another yet, where the system can (macOS cannot)."""
    if sys.platform == "darwin":
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@contextlib.contextmanager
def _listening() -> Iterator[socket.socket]:
    """Where the ranks meet: a port that is ours from the beginning, so that nobody else takes it."""
    with socket.socket() as door:
        door.bind((HERE, 0))
        if _has_torch():
            door.listen(1024)
        yield door


def _serve(door: socket.socket) -> Any:
    """The store through which the ranks meet. It is here, and not in rank 0, so that it outlives a rank that fails."""
    if not _has_torch():
        door.close()
        return None
    distributed = importlib.import_module("torch.distributed")
    port = door.getsockname()[1]
    return distributed.TCPStore(
        HERE,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=60),
        master_listen_fd=door.detach(),
    )


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _say(text: str) -> None:
    _write(f"luxmeter: {text}\n")


def _write(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()
