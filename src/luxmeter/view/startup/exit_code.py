"""The exit code of a program whose trace failed: Python offers no way to change it at exit but to leave at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

FAILED = 3

_failed = False


def prepare() -> None:
    """To be called when Python starts: what is registered first runs last, after the program's own work at exit."""
    atexit.register(_leave)


def fail() -> None:
    """The program ends with FAILED, unless it dies of an exception of its own."""
    global _failed
    _failed = True


def _leave() -> None:
    if not _failed or getattr(sys, "last_type", None) is not None:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(FAILED)
