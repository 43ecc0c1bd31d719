"""print() that also writes to the log."""

from __future__ import annotations

import builtins
import contextlib
import io
import logging
import sys
import threading
from pathlib import Path
from typing import IO, Any

from luxmeter.classic.apitimewrapper.torch_wrap import global_param
from luxmeter.errors import UsageError, warn_once

_FORM = logging.Formatter("%(asctime)s - %(levelname)s: %(message)s")
_lock = threading.RLock()
_begun: set[str] = set()  # logs that this program has written to
_open: dict[str, IO[str]] = {}  # at most one: the log that was written to last


def print(
    *values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
) -> None:
    """As the built-in print; what goes to the screen is written to the log too."""
    builtins.print(*values, sep=sep, end=end, file=file, flush=flush)
    if file is None or file is sys.stdout:
        text = io.StringIO()
        builtins.print(*values, sep=sep, end=end, file=text)
        write_log(text.getvalue().removesuffix("\n"))


def write_log(text: str) -> None:
    """Append to the log, with date and level. A log that cannot be written is told once and stops nothing."""
    try:
        with _lock:
            _log().write(
                _FORM.format(logging.LogRecord("root", logging.INFO, "", 0, text, None, None)) + "\n"
            )
    except (OSError, UsageError) as error:
        warn_once("performance-log-lost", f"The log gets no more lines: {error}", "Give another log path.")


def check_log() -> None:
    """Raise if the log cannot be written."""
    with _lock:
        _log()


def close_log() -> None:
    """Close the file; the next line opens it again."""
    with _lock:
        for stream in _open.values():
            with contextlib.suppress(OSError):
                stream.close()
        _open.clear()


def _log() -> IO[str]:
    path = str(Path(global_param.g_torch_log_path).absolute())
    if path not in _open:
        close_log()
        try:
            mode = "a" if path in _begun else "w"  # anew in each run of a program
            _open[path] = open(path, mode, encoding="utf-8", buffering=1)  # noqa: SIM115 - stays open
            _begun.add(path)
        except OSError as error:
            raise UsageError(
                "performance-log-unwritable",
                f"The log {path} cannot be written: {error}.",
                "Give another path.",
            ) from error
    return _open[path]
