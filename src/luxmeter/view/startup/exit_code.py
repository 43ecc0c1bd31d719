"""The exit code of a program whose trace failed: Python offers no way to change it at exit but to leave at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

FAILED = 3  # the trace, while the program ran or at its end
REFUSED = 2  # no trace could begin

_code = 0


def prepare() -> None:
    """To be called when Python starts: what is registered first runs last, after the program's own work at exit."""
    atexit.register(_leave)


def fail(code: int = FAILED) -> None:
    """The program ends with this code, unless it dies of an exception of its own."""
    global _code
    _code = code


def _leave() -> None:
    if not _code or getattr(sys, "last_type", None) is not None:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(_code)
