"""Where log records go: the console (rich on a terminal, plain text elsewhere) and files that rotate."""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from luxmeter.experiment.log.inline import InlineLine, is_terminal
from luxmeter.ranks import rank, world_size

_STYLES = {"DEBUG": "dim", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


class ConsoleHandler(logging.Handler):
    """Records on the console, and the one line there that refreshes itself.

    Its lock is logging's own (made anew after a fork), so that a record never lands inside the line.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self.line = InlineLine()
        self.levels: dict[str, int] = {}  # logger name -> the lowest level it shows here
        self._stream = stream
        self._rich: tuple[TextIO, Any] | None = None

    @property
    def stream(self) -> TextIO:
        """The stream given, or what `sys.stdout` is now: a notebook or a test may have replaced it."""
        return self._stream if self._stream is not None else sys.stdout

    def emit(self, record: logging.LogRecord) -> None:
        if record.__dict__.get("luxmeter_on_console"):  # by the handler of a child: this one is a parent's
            return
        record.__dict__["luxmeter_on_console"] = True
        if record.levelno < self.levels.get(record.name, 0) or not self._is_ours_to_show(record):
            return
        try:
            self.line.finish(self.stream)
            if is_terminal(self.stream):
                self._emit_rich(record)
            else:
                self._emit_plain(record)
        except Exception:  # noqa: BLE001  logging's own rule: a handler reports its errors, it does not raise
            self.handleError(record)

    def show_line(self, text: str, *, now_s: float) -> None:
        """Refresh the line."""
        self.acquire()
        try:
            self.line.show(text, self.stream, now_s=now_s)
        finally:
            self.release()

    def finish_line(self) -> None:
        """Close the line if there is one."""
        self.acquire()
        try:
            if self.line.is_open:
                self.line.finish(self.stream)
        finally:
            self.release()

    def _is_ours_to_show(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING and rank() and not getattr(record, "all_ranks", False):
            return False
        return self._stream is not None or not _has_console_of_its_own(logging.getLogger(record.name))

    def _emit_plain(self, record: logging.LogRecord) -> None:
        text = (
            f"{_clock(record)} {record.levelname:<8}{_source_line(record)}{_rank_mark()}{_message(record)}\n"
        )
        try:
            self.stream.write(text)
        except UnicodeEncodeError:
            self.stream.write(text.encode("ascii", "replace").decode())
        self.stream.flush()

    def _emit_rich(self, record: logging.LogRecord) -> None:
        from rich.console import Console
        from rich.highlighter import ReprHighlighter
        from rich.text import Text

        stream = self.stream
        if self._rich is None or self._rich[0] is not stream:
            self._rich = (stream, Console(file=stream, soft_wrap=True))
        message = Text(_message(record))
        ReprHighlighter().highlight(message)
        line = Text.assemble(
            (f"{_clock(record)} ", "dim"),
            (f"{record.levelname:<8}", _STYLES.get(record.levelname, "")),
            (_source_line(record), "dim"),
            (_rank_mark(), "magenta"),
            message,
        )
        self._rich[1].print(line, soft_wrap=True)
        stream.flush()


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file of this rank that is moved aside (`.1`, `.2`, ...) when it has grown too big."""

    def __init__(self, path: Path, *, max_bytes: int, backups: int, level: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8", delay=True)
        self.setLevel(level)
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        seen: set[int] = record.__dict__.setdefault("luxmeter_seen_by", set())
        if id(self) not in seen:
            seen.add(id(self))
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        stamp = f"{day}.{int(record.msecs):03d}"
        return f"{stamp} {record.levelname:<8}{record.name} {_source_line(record)}{_rank_mark()}{_message(record)}"


def file_name(stem: str) -> str:
    """The log file of this rank: `run.log`, and `run.rank1.log` beside it."""
    return f"{stem}.log" if rank() == 0 else f"{stem}.rank{rank()}.log"


def _has_console_of_its_own(logger: logging.Logger) -> bool:
    """Whether the program set up logging to the console itself: then its way is used, not both."""
    current: logging.Logger | None = logger
    while current is not None:
        for handler in current.handlers:
            if (
                isinstance(handler, logging.StreamHandler)
                and not isinstance(handler, logging.FileHandler)
                and handler.stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
            ):
                return True
        current = current.parent if current.propagate else None
    return False


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    return text


def _clock(record: logging.LogRecord) -> str:
    return time.strftime("%H:%M:%S", time.localtime(record.created))


def _source_line(record: logging.LogRecord) -> str:
    """Who wrote it, in front of what; nothing for our own, whose lines are not the user's."""
    return "" if record.name.startswith("luxmeter.") else f"{record.filename}:{record.lineno} "


def _rank_mark() -> str:
    return f"[rank {rank()}] " if world_size() > 1 else ""
