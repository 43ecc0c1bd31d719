"""Output at the level of file numbers: what native code and child processes print is kept too.

Only where neither stream is a terminal: a program on a terminal must go on seeing one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from luxmeter.experiment.capture import output_pump

_PATIENCE_S = 10.0
_TICK_S = 0.5
_MOST_PUMPS = 8  # of one run; then what is printed is carried from here, and not kept


class NativeOutput:
    """Puts a pipe under stdout and stderr, with a process behind it that carries on and keeps. As OutputLog.

    The pipes' ends to read stay open here, too: when that process is killed, nobody who prints notices, and another one goes on.
    """

    def __init__(self, run_folder: Path, *, most_bytes: int) -> None:
        self._folder = run_folder
        self._most_bytes = most_bytes
        self._saved: dict[int, int] = {}  # file number -> what it was
        self._streams: list[tuple[int, int] | None] = []  # (end to read, where it goes); None: given up
        self._control: socket.socket | None = None
        self._pump: subprocess.Popen[bytes] | None = None
        self._pumps = 0
        self._carried = threading.Event()
        self._watcher: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_stopping = False

    @staticmethod
    def is_possible() -> bool:
        """Whether both streams are there, are the process's own, and neither is a terminal."""
        try:
            same = [stream is not None and stream.fileno() for stream in (sys.stdout, sys.stderr)] == [1, 2]
            return os.name == "posix" and same and not os.isatty(1) and not os.isatty(2)
        except (OSError, ValueError, AttributeError):
            return False

    def start(self) -> None:
        """Begin to carry."""
        _flush()
        # Where both go to one file, one pipe: the order of what is written stays.
        shared = os.path.sameopenfile(1, 2)
        pipes = {1: os.pipe()}
        pipes[2] = pipes[1] if shared else os.pipe()
        self._saved = {number: os.dup(number) for number in (1, 2)}
        self._streams = [(pipes[number][0], self._saved[number]) for number in ((1,) if shared else (1, 2))]
        self._start_pump()
        for number, (_, write) in pipes.items():
            os.dup2(write, number)
        for write in {write for _, write in pipes.values()}:
            os.close(write)
        self._watcher = threading.Thread(target=self._watch, name="luxmeter-output", daemon=True)
        self._watcher.start()

    def _start_pump(self) -> None:
        ours, theirs = socket.socketpair()
        streams = [stream for stream in self._streams if stream is not None]
        with theirs:
            self._pump = subprocess.Popen(
                [sys.executable, "-I", "-S", output_pump.__file__, str(self._folder), str(self._most_bytes), str(theirs.fileno()),
                 *(f"{read}:{target}" for read, target in streams)],
                stdin=subprocess.DEVNULL,
                stdout=self._saved[1],  # with a pipe's end to write it would wait for itself
                stderr=self._saved[2],
                pass_fds=[theirs.fileno(), *(number for stream in streams for number in stream)],
                start_new_session=True,  # Ctrl-C is for the program
            )  # fmt: skip
        self._streams = list(streams)
        self._control, self._pumps = ours, self._pumps + 1

    def _watch(self) -> None:
        """Hear what the pump says; where it dies, start another."""
        while (control := self._control) is not None:
            try:
                said = control.recv(1)
            except ConnectionResetError:  # it died with a question unread
                said = b""
            except OSError:
                return  # the program has closed what it does not know
            if said == output_pump.DONE:
                self._carried.set()
            elif said:
                with self._lock:
                    self._give_up(output_pump.GIVEN_UP.index(said))
            elif not self._goes_on():
                return

    def _goes_on(self) -> bool:
        """After the pump's end: whether there is another one now."""
        with self._lock:
            if self._is_stopping or not any(self._streams):
                return False
            try:
                if self._pumps < _MOST_PUMPS:
                    assert self._control is not None
                    self._control.close()
                    if self._pump is not None:
                        self._pump.wait(_PATIENCE_S)
                    self._start_pump()
                    return True
            except (OSError, subprocess.TimeoutExpired):
                pass  # no process can be started any more
        self._carried.set()  # nothing is asked of it at the end
        self._carry_here()
        return False

    def _carry_here(self) -> None:
        """To where it was going, unkept."""
        with selectors.DefaultSelector() as waiting:
            for place, stream in enumerate(self._streams):
                if stream is not None:
                    waiting.register(stream[0], selectors.EVENT_READ, (place, stream[1]))
            while waiting.get_map():
                ready = waiting.select(_TICK_S)
                if not ready and self._is_stopping:
                    return
                for key, _ in ready:
                    place, target = key.data
                    try:
                        data = os.read(key.fd, 1 << 16)
                        output_pump.write_all(target, data)
                    except OSError:
                        data = b""
                    if not data:
                        waiting.unregister(key.fd)
                        self._give_up(place)

    def _give_up(self, place: int) -> None:
        """Nobody reads what goes there: who writes shall notice."""
        stream = self._streams[place]
        if stream is not None:
            self._streams[place] = None
            os.close(stream[0])

    def flush_lines(self) -> None:
        """The pump does this by itself."""

    def stop(self) -> None:
        """Carry what is under way, then put the streams back."""
        if self._control is None:
            return
        _flush()
        for number, saved in self._saved.items():
            os.dup2(saved, number)
        assert self._watcher is not None
        until = time.monotonic() + _PATIENCE_S
        while not self._carried.is_set() and self._watcher.is_alive() and time.monotonic() < until:
            with contextlib.suppress(OSError):  # killed just now: the next one is asked
                self._control.sendall(b"s")
            self._carried.wait(_TICK_S)
        with self._lock:
            self._is_stopping = True
            control, pump = self._control, self._pump
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_RDWR)  # close() wakes nobody who waits on it
        self._watcher.join(_PATIENCE_S)
        control.close()
        self._close()
        # Its end comes when no process holds the pipe: at once, unless what the program started lives on.
        with contextlib.suppress(subprocess.TimeoutExpired):
            if pump is not None:
                pump.wait(0.5)
        self._control = self._pump = None

    def _close(self) -> None:
        for place in range(len(self._streams)):
            self._give_up(place)
        for saved in self._saved.values():
            os.close(saved)
        self._saved.clear()
        self._streams.clear()

    def after_fork(self) -> None:
        """In a child: its output goes the same way; the end is its parent's."""
        if self._control is not None:
            self._control.close()
            self._close()
        self._control = None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
