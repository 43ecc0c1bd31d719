"""Ctrl-C while training: the first one asks to stop where a checkpoint can go on, the second one stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def ctrl_c_asks(ask: Callable[[], bool]) -> Iterator[None]:
    """Inside, Ctrl-C calls `ask`, and raises KeyboardInterrupt only if that says no.

    Only where Ctrl-C would raise it anyway: a handler of the program's own decides for itself. Processes that were forked
    meanwhile (workers that read data) hear it too, and go on: they end with this one.
    """
    owner = os.getpid()
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner and not ask():
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, asked)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is asked:
            signal.signal(signal.SIGINT, signal.default_int_handler)
