"""The one thread of a process that writes what runs have buffered, twice a second."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  (Arrow imports it lazily; at exit, when we flush, that is too late)
import contextlib
import multiprocessing.util
import os
import threading
from typing import Protocol

FLUSH_EVERY_S = 0.5


class Buffered(Protocol):
    """Something with a buffer to be written out."""

    def drain(self) -> None:
        """Write what is buffered. Raises nothing: trouble is kept and told to the user at the next call."""

    def after_fork(self) -> None:
        """Called in a forked child: what was buffered belongs to the parent."""

    def at_exit(self) -> None:
        """Called when the interpreter ends."""


class _Writer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: list[Buffered] = []
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def add(self, member: Buffered) -> None:
        with self._lock:
            if member not in self._members:
                self._members.append(member)
            if self._thread is None or not self._thread.is_alive():
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name="luxmeter-store-writer", daemon=True)
                self._thread.start()

    def remove(self, member: Buffered) -> None:
        with self._lock:
            if member in self._members:
                self._members.remove(member)
            if self._members or self._thread is None:
                return
            thread, self._thread = self._thread, None
            self._wake.set()
        if thread is not threading.current_thread():
            thread.join(timeout=10)

    def _run(self) -> None:
        wake = self._wake
        while not wake.wait(FLUSH_EVERY_S):
            for member in list(self._members):
                member.drain()

    def after_fork(self) -> None:
        members = self._members
        self.__init__()  # type: ignore[misc]  # the parent's thread and lock are not here
        for member in members:
            member.after_fork()

    def at_exit(self) -> None:
        for member in list(self._members):
            with contextlib.suppress(Exception):
                member.at_exit()


_writer = _Writer()
add = _writer.add
remove = _writer.remove


def _in_multiprocessing_child(_: object) -> None:
    # Such a child leaves by os._exit after its finalizers: atexit is not run there. (Not in after_fork: the
    # child empties its list of finalizers after that.)
    multiprocessing.util.Finalize(None, _writer.at_exit, exitpriority=10)


os.register_at_fork(after_in_child=_writer.after_fork)
multiprocessing.util.register_after_fork(_writer, _in_multiprocessing_child)
atexit.register(_writer.at_exit)
