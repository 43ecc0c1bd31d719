"""Output at the level of file numbers: what native code and child processes print is kept too.

Only where neither stream is a terminal: a program on a terminal must go on seeing one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from luxmeter.experiment.capture import output_pump

_PATIENCE_S = 10.0


class NativeOutput:
    """Puts a pipe under stdout and stderr, with a process behind it that carries on and keeps. As OutputLog."""

    def __init__(self, run_folder: Path, *, most_bytes: int) -> None:
        self._folder = run_folder
        self._most_bytes = most_bytes
        self._saved: dict[int, int] = {}  # file number -> what it was
        self._control: socket.socket | None = None
        self._pump: subprocess.Popen[bytes] | None = None

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
        ours, theirs = socket.socketpair()
        # Where both go to one file, one pipe: the order of what is written stays.
        shared = os.path.sameopenfile(1, 2)
        pipes = {1: os.pipe()}
        pipes[2] = pipes[1] if shared else os.pipe()
        self._saved = {number: os.dup(number) for number in (1, 2)}
        pairs = {
            f"{read}:{self._saved[number]}"
            for number, (read, _) in pipes.items()
            if number == 1 or not shared
        }
        reads = {read for read, _ in pipes.values()}
        self._pump = subprocess.Popen(
            [sys.executable, "-I", "-S", output_pump.__file__, str(self._folder), str(self._most_bytes),
             str(theirs.fileno()), *sorted(pairs)],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), *self._saved.values(), *reads],
            start_new_session=True,  # Ctrl-C is for the program
        )  # fmt: skip
        for number, (_, write) in pipes.items():
            os.dup2(write, number)
        for number in {*reads, *(write for _, write in pipes.values())}:
            os.close(number)
        theirs.close()
        self._control = ours

    def flush_lines(self) -> None:
        """The pump does this by itself."""

    def stop(self) -> None:
        """Carry what is under way, then put the streams back."""
        if self._control is None or self._pump is None:
            return
        _flush()
        for number, saved in self._saved.items():
            os.dup2(saved, number)
            os.close(saved)
        self._saved.clear()
        with contextlib.suppress(OSError):
            self._control.settimeout(_PATIENCE_S)
            self._control.sendall(b"s")
            self._control.recv(1)
        self._control.close()
        # Its end comes when no process holds the pipe: at once, unless what the program started lives on.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._pump.wait(0.5)
        self._control = self._pump = None

    def after_fork(self) -> None:
        """In a child: its output goes the same way; the end is its parent's."""
        self._control = None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
