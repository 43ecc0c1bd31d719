"""A signal that ends the process lets experiments end first; then the process dies of it, as without us."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

End = Callable[[str], None]
_NUMBERS = tuple(
    number for number in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")) if number is not None
)
_PATIENCE_S = 10.0  # for the ends together: who sent the signal will not wait much longer
_ends: list[End] = []
_taken: list[signal.Signals] = []
_owner = 0


def add(end: End) -> None:
    """Call `end` with the signal's name before the process dies of it.

    Only where the signal would end the process anyway: a handler of the program's own decides for itself.
    """
    global _owner
    _ends.append(end)
    if _taken or threading.current_thread() is not threading.main_thread():
        return
    _owner = os.getpid()
    for number in _NUMBERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _handle)
            _taken.append(number)


def remove(end: End) -> None:
    """Undo `add`; with the last one the signals are as they were."""
    if end in _ends:
        _ends.remove(end)
    if not _ends:
        _give_back()


def _give_back() -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets only the main thread do it; with no ends left the handler just dies of the signal
    for number in _taken:
        if signal.getsignal(number) is _handle:
            signal.signal(number, signal.SIG_DFL)
    _taken.clear()


def _handle(number: int, _: FrameType | None) -> None:
    if os.getpid() == _owner:
        # In a thread of its own: this one may have been stopped while it held a lock that ending needs.
        worker = threading.Thread(target=_end_all, args=(signal.Signals(number).name,), name="luxmeter-end")
        worker.daemon = True
        worker.start()
        worker.join(_PATIENCE_S)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end_all(name: str) -> None:
    for end in reversed(_ends.copy()):
        with contextlib.suppress(Exception):
            end(name)


def _after_fork() -> None:
    _ends.clear()
    with contextlib.suppress(ValueError):
        _give_back()


os.register_at_fork(after_in_child=_after_fork)
