"""The logger: print anything, on the console, in files, to listeners; stdlib logging underneath."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from luxmeter.errors import UsageError, suggestion, warn_once
from luxmeter.experiment.log.handlers import ConsoleHandler, LogFile, file_name
from luxmeter.ranks import rank

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "critical": logging.CRITICAL,
}
_console: ConsoleHandler | None = None  # one for the process: there is one last line on a terminal
_shared_files: list[LogFile] = []
_our_loggers: dict[str, logging.Logger] = {}


@dataclass(frozen=True)
class LogLine:
    """What a listener is given. `level` is `inline` for the line that refreshes itself."""

    time_s: float
    level: str
    name: str
    prefix: str
    text: str
    values: tuple[Any, ...]


Listener = Callable[[LogLine], Any]


class Logger:
    """Prints any values; one for each module, named after it.

    `inline` refreshes one line, the others write lines of their own. Only rank 0 shows what is below a warning.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        level: str | int | None = None,
        stream: TextIO | None = None,
        refresh_s: float | None = None,
        redirected_s: float | None = None,
        all_ranks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name or str(sys._getframe(1).f_globals.get("__name__", "luxmeter"))
        self._log = logging.getLogger(self.name)
        self._handler = _shared_console() if stream is None else ConsoleHandler(stream)
        self._all_ranks = all_ranks
        self._clock = clock
        self._files: list[LogFile] = []
        self._listeners: list[Listener] = []
        self._due: dict[tuple[str, int], tuple[int, float]] = {}
        for handler in list(self._log.handlers):
            if isinstance(handler, ConsoleHandler):
                self._log.removeHandler(handler)  # one console for a name: the one given last
        self._log.addHandler(self._handler)
        for file in _shared_files:
            self._log.addHandler(file)
        _our_loggers[self.name] = self._log
        # A level that the program gave this name before stays, whether through us or through logging.
        self.set_level(level or self._handler.levels.get(self.name) or self._log.level or logging.INFO)
        self.set_interval(refresh_s=refresh_s, redirected_s=redirected_s)

    # Writing

    def debug(self, *values: Any, prefix: str = "", every: int = 1, every_s: float = 0.0) -> None:
        """Write for those who look for a fault."""
        self._write(logging.DEBUG, values, prefix, every, every_s)

    def info(self, *values: Any, prefix: str = "", every: int = 1, every_s: float = 0.0) -> None:
        """Write values, divided by blanks. With `every=50` this place writes each 50th time, `every_s` so seldom."""
        self._write(logging.INFO, values, prefix, every, every_s)

    def warn(self, *values: Any, prefix: str = "", every: int = 1, every_s: float = 0.0) -> None:
        """Write what somebody should look at."""
        self._write(logging.WARNING, values, prefix, every, every_s)

    warning = warn

    def error(self, *values: Any, prefix: str = "", every: int = 1, every_s: float = 0.0) -> None:
        """Write what went wrong."""
        self._write(logging.ERROR, values, prefix, every, every_s)

    def fatal(self, *values: Any, prefix: str = "") -> None:
        """Write what ends the program."""
        self._write(logging.CRITICAL, values, prefix, 1, 0.0)

    critical = fatal

    def exception(self, *values: Any, prefix: str = "") -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, values, prefix, 1, 0.0, exc_info=True)

    def inline(self, *values: Any, prefix: str = "") -> None:
        """Refresh one line: clipped to the terminal, scrolling if longer; now and then a line where there is none."""
        if not self._log.isEnabledFor(logging.INFO):
            return
        text = _joined(prefix, values)
        if rank() == 0 or self._all_ranks:
            self._handler.show_line(text, now_s=self._clock())
        self._tell("inline", prefix, text, values)

    def end_inline(self) -> None:
        """Close the line; the next `inline` begins a new one. Any other writing does this by itself."""
        self._handler.finish_line()

    # Settings

    def set_level(self, level: str | int) -> None:
        """Show only this level and above on the console (files can hold more)."""
        number = _level(level)
        self._handler.levels[self.name] = number
        self._log.setLevel(
            min([number, *(file.level for file in self._log.handlers if isinstance(file, LogFile))])
        )

    def set_interval(self, *, refresh_s: float | None = None, redirected_s: float | None = None) -> None:
        """How often `inline` shows: on a terminal (0.1 s), and in a file or pipe (10 s). 0 is every time."""
        pace = self._handler.line.pace
        pace.refresh_s = pace.refresh_s if refresh_s is None else refresh_s
        pace.redirected_s = pace.redirected_s if redirected_s is None else redirected_s

    def add_log_dir(
        self,
        folder: str | PathLike[str],
        *,
        name: str = "run",
        max_bytes: int = 10_000_000,
        backups: int = 5,
        level: str | int = "info",
        only_this: bool = False,
    ) -> Path:
        """Write to `<folder>/<name>.log` too (other ranks beside it), all Loggers of the process or `only_this`.

        A file that has grown to `max_bytes` is moved aside, and so many `backups` are kept. Returns the path.
        """
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                "log-folder",
                f"Logs cannot be written to {place}: {error.strerror or error}.",
                "Give add_log_dir() a folder that exists or can be made.",
            ) from error
        path = (place / file_name(name)).absolute()
        if any(file.path == path for file in [*self._files, *_shared_files]):
            return path
        file = LogFile(path, max_bytes=max_bytes, backups=backups, level=_level(level))
        self._files.append(file)
        for log in [self._log] if only_this else [self._log, *_our_loggers.values()]:
            log.addHandler(file)
            log.setLevel(min(log.level, file.level) if log.level else file.level)
        if not only_this:
            _shared_files.append(file)
        return path

    def include(self, name: str, *, level: str | int = "info") -> None:
        """Show and keep what the logger `name` of another library says, as if it were ours."""
        other = logging.getLogger(name)
        if self._handler not in other.handlers:
            other.addHandler(self._handler)
        for file in [*_shared_files, *self._files]:
            other.addHandler(file)
        other.setLevel(_level(level))
        self._handler.levels[name] = _level(level)
        _our_loggers[name] = other

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with a `LogLine` for everything this logger writes."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo `add_listener`."""
        self._listeners.remove(listener)

    def close(self) -> None:
        """Close the line and the log files that this object added."""
        self.end_inline()
        for file in self._files:
            for log in _our_loggers.values():
                log.removeHandler(file)
            if file in _shared_files:
                _shared_files.remove(file)
            file.close()
        self._files.clear()

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.name, self._handler.levels.get(self.name, logging.INFO), self._all_ranks)

    # Inside

    def _write(
        self,
        level: int,
        values: tuple[Any, ...],
        prefix: str,
        every: int,
        every_s: float,
        *,
        exc_info: bool = False,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        if (every > 1 or every_s > 0) and not self._is_due(every, every_s):
            return
        text = _joined(prefix, values)
        self._log.log(level, text, stacklevel=3, exc_info=exc_info, extra={"all_ranks": self._all_ranks})
        self._tell(logging.getLevelName(level).lower(), prefix, text, values)

    def _is_due(self, every: int, every_s: float) -> bool:
        """Counted for each place in the program that writes."""
        frame = sys._getframe(3)
        place = (frame.f_code.co_filename, frame.f_lineno)
        count, last_s = self._due.get(place, (0, -float("inf")))
        now_s = self._clock()
        due = count % max(1, every) == 0 and now_s - last_s >= every_s
        self._due[place] = (count + 1, now_s if due else last_s)
        return due

    def _tell(self, level: str, prefix: str, text: str, values: tuple[Any, ...]) -> None:
        for listener in list(self._listeners):
            try:
                listener(LogLine(time.time(), level, self.name, prefix, text, values))
            except Exception as error:  # noqa: BLE001  a listener must not end a training
                self._listeners.remove(listener)
                warn_once(
                    "log-listener-failed",
                    f"A listener of the logger {self.name!r} raised {type(error).__name__}: {error}.",
                    "It is not called any more; correct it and add it again.",
                    key=repr(listener),
                )


def _joined(prefix: str, values: tuple[Any, ...]) -> str:
    text = " ".join(_text(value) for value in values)
    return f"{prefix}: {text}" if prefix else text


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  logging a value must not end a training
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _level(level: str | int) -> int:
    if isinstance(level, int):
        return level
    if level.lower() not in _LEVELS:
        raise UsageError(
            "log-level",
            f"There is no log level {level!r}.",
            suggestion(level.lower(), _LEVELS) or f"The levels are {', '.join(_LEVELS)}.",
        )
    return _LEVELS[level.lower()]


def _shared_console() -> ConsoleHandler:
    global _console
    if _console is None:
        _console = ConsoleHandler()
        atexit.register(_console.finish_line)  # the shell's prompt belongs on a line of its own
    return _console


def _rebuilt(name: str, level: int, all_ranks: bool) -> Logger:
    return Logger(name, level=level, all_ranks=all_ranks)
