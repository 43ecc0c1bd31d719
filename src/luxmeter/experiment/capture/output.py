"""What a program prints, kept beside its run while it goes where it always went.

The streams stay the objects they are: only their `write` is taken, so that isatty, encoding, fileno, handlers that
hold the stream and whoever replaced sys.stdout before (pytest, a notebook) notice nothing.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from luxmeter.errors import warn_once
from luxmeter.experiment.capture.output_text import PlainText
from luxmeter.store import OutputFile

Sink = Callable[[str], None]


class Listener:
    """Gives what stdout and stderr are given to `hear`, from `start` to `stop`, each stream by its name."""

    def __init__(self, hear: Callable[[str, str], None]) -> None:
        self._hear = hear
        self._taps: list[tuple[_Tap, Sink]] = []

    def start(self) -> None:
        """Listen to the streams as they are now."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            tap = None if stream is None else _tap(stream)
            if tap is not None and all(tap is not other for other, _ in self._taps):
                sink = functools.partial(self._hear, name)
                tap.sinks.append(sink)
                self._taps.append((tap, sink))

    def stop(self) -> None:
        """Listen no more."""
        for tap, sink in self._taps:
            tap.sinks.remove(sink)
            _untap(tap)
        self._taps.clear()


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
