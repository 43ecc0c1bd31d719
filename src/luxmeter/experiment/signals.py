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
_STANDS_S = 1.0  # the program stands still while its experiments end, but no longer than that
_PATIENCE_S = 9.0  # then it goes on, until they have ended: who sent the signal will not wait much longer
_ends: list[End] = []
_taken: list[signal.Signals] = []
_owner = 0
_ending: threading.Thread | None = None
_is_over = False


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
        # Ours is there already where a library put back what it had found while an experiment went on (Lightning does, after an exception).
        if signal.getsignal(number) in (signal.SIG_DFL, _handle):
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
    global _ending
    if os.getpid() == _owner and not _is_over:
        if _ending is not None:
            return  # sent again meanwhile
        # In threads of their own: this one may have been stopped while it held a lock that ending needs.
        _ending = threading.Thread(target=_end_all, args=(signal.Signals(number).name,), name="luxmeter-end")
        _ending.daemon = True
        _ending.start()
        _ending.join(_STANDS_S)
        if _ending.is_alive() and not _is_over:
            # It may wait for that very lock: let the program go on and release it. The signal comes once more.
            threading.Thread(
                target=_die_after, args=(_ending, number), name="luxmeter-die", daemon=True
            ).start()
            return
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _die_after(ending: threading.Thread, number: int) -> None:
    global _is_over
    ending.join(_PATIENCE_S)
    _is_over = True
    os.kill(os.getpid(), number)


def _end_all(name: str) -> None:
    for end in reversed(_ends.copy()):
        with contextlib.suppress(Exception):
            end(name)


def _after_fork() -> None:
    global _ending, _is_over
    _ends.clear()
    _ending, _is_over = None, False
    with contextlib.suppress(ValueError):
        _give_back()


os.register_at_fork(after_in_child=_after_fork)
