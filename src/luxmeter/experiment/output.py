"""What a program prints, kept beside its run while it goes where it always went.

The streams stay the objects they are: only their `write` is taken, so that isatty, encoding, fileno, handlers that
hold the stream and whoever replaced sys.stdout before (pytest, a notebook) notice nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from luxmeter.errors import warn_once
from luxmeter.experiment.output_text import PlainText
from luxmeter.experiment.records import LOGS_FOLDER, OUTPUT, left_out_line, output_tails

MOST_BYTES = 16 << 20  # of one run's output; what lies between its beginning and its end is left out
Sink = Callable[[str], None]


class OutputFile:
    """`logs/output.log` of a run: its beginning in full and, past the limit, the end in two files that take turns."""

    def __init__(self, run_folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.path = run_folder / LOGS_FOLDER / OUTPUT
        self.path.parent.mkdir(exist_ok=True)
        self._newer, self._older = output_tails(self.path)
        self._part_bytes = max(1, most_bytes // 4)
        self._head_bytes = most_bytes // 2
        self._tail: int | None = None
        self._written = 0
        self._tail_written = 0
        self._left_out = 0
        self._number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def append(self, text: str) -> None:
        """Write at once: what was printed is on disk, whatever happens to the process."""
        data = text.encode("utf-8", "backslashreplace")
        if self._tail is None and self._written + len(data) <= self._head_bytes:
            os.write(self._number, data)
            self._written += len(data)
            return
        if self._tail is None or self._tail_written > self._part_bytes:
            self._next_tail()
        assert self._tail is not None
        self._left_out += max(0, len(data) - self._part_bytes)
        os.write(self._tail, data[-self._part_bytes :])
        self._tail_written += len(data)

    def close(self) -> None:
        """Put beginning and end together."""
        if self._tail is not None:
            os.close(self._tail)
            self._tail = None
            end = b"".join(part.read_bytes() for part in (self._older, self._newer) if part.exists())
            gap = left_out_line(self._left_out).encode() if self._left_out else b""
            os.write(self._number, gap + end)
            for part in (self._older, self._newer):
                part.unlink(missing_ok=True)
        os.close(self._number)

    def _next_tail(self) -> None:
        if self._tail is not None:
            os.close(self._tail)
            with contextlib.suppress(OSError):
                self._left_out += self._older.stat().st_size
            os.replace(self._newer, self._older)
        self._tail = os.open(self._newer, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o666)
        self._tail_written = 0


class OutputLog:
    """Keeps what stdout and stderr are given, from `start` to `stop`."""

    def __init__(self, file: OutputFile) -> None:
        self._file: OutputFile | None = file
        self._lock = threading.RLock()  # a signal handler may print while this thread is in here
        self._texts = {name: PlainText() for name in ("stdout", "stderr")}
        self._taps: list[tuple[_Tap, Sink]] = []

    def start(self) -> None:
        """Listen to the streams as they are now."""
        seen: set[int] = set()
        for name, text in self._texts.items():
            stream = getattr(sys, name)
            if stream is None or id(stream) in seen:
                continue
            seen.add(id(stream))
            tap = _tap(stream)
            if tap is None:
                warn_once(
                    "output-not-kept",
                    f"sys.{name} is a {type(stream).__name__} that cannot be listened to.",
                    "What is printed there is not kept with the run.",
                )
                continue
            sink = self._sink(text)
            tap.sinks.append(sink)
            self._taps.append((tap, sink))

    def flush_lines(self) -> None:
        """Write out lines that have no end yet."""
        with self._lock:
            for text in self._texts.values():
                self._append(text.open_line())

    def stop(self) -> None:
        """Leave the streams as they were."""
        for tap, sink in self._taps:
            tap.sinks.remove(sink)
            _untap(tap)
        self._taps.clear()
        with self._lock:
            for text in self._texts.values():
                rest = text.rest()
                self._append(f"{rest}\n" if rest else "")
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def after_fork(self) -> None:
        """In a child: the lock may have been held by a thread that is not here."""
        self._lock = threading.RLock()

    def _sink(self, text: PlainText) -> Sink:
        def take(piece: str) -> None:
            with self._lock:
                self._append(text.feed(piece))

        return take

    def _append(self, text: str) -> None:
        if not text or self._file is None:
            return
        try:
            self._file.append(text)
        except OSError as problem:
            self._file = None
            warn_once(
                "output-not-kept",
                f"The output cannot be written to the run: {problem.strerror or problem}.",
                "Make room or give rights; the program goes on, the rest of its output is not kept.",
            )


class _Tap:
    """A stream whose `write` is ours."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.sinks: list[Sink] = []
        self.before = vars(stream).get("write")
        through = stream.write
        sinks = self.sinks

        def write(text: Any, /) -> Any:
            written = through(text)
            if isinstance(text, str):
                for sink in list(sinks):
                    sink(text)
            return written

        self.write = write


_taps: dict[int, _Tap] = {}


def _tap(stream: Any) -> _Tap | None:
    known = _taps.get(id(stream))
    if known is not None and known.stream is stream:
        return known
    try:
        tap = _Tap(stream)
        stream.write = tap.write
    except (AttributeError, TypeError):
        return None
    _taps[id(stream)] = tap
    return tap


def _untap(tap: _Tap) -> None:
    """Give the stream its own `write` back when nobody listens; one that others have changed since stays as it is."""
    if tap.sinks or vars(tap.stream).get("write") is not tap.write:
        return
    if tap.before is None:
        del tap.stream.write
    else:
        tap.stream.write = tap.before
    _taps.pop(id(tap.stream), None)
