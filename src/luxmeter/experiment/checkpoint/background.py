"""Work that is done behind training's back: in order, one at a time, with its errors brought back."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path

Job = Callable[[], None]


class BackgroundWriter:
    """Runs jobs one after another in a thread that ends when nothing is left to do.

    The thread is no daemon: python waits for it at exit, so that what was saved is written.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._running = False
        self._error: BaseException | None = None
        _writers.add(self)

    def submit(self, job: Job) -> None:
        """Run the job soon, after those submitted before it."""
        with self._changed:
            self._jobs.append(job)
            if self._running:
                return
            self._running = True
        thread = threading.Thread(target=self._run, name="luxmeter-saver")
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no thread any more
            self._run()

    def wait(self, *, pending: int = 0) -> None:
        """Return when at most this many jobs are left. A job itself never waits."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._jobs) <= pending)

    def take_error(self) -> BaseException | None:
        """The first error since the last call, once."""
        with self._changed:
            error, self._error = self._error, None
            return error

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._running = False
                    return
                job = self._jobs[0]
            error: BaseException | None = None
            try:
                job()
            except BaseException as raised:  # noqa: BLE001 - brought back at the next call
                error = raised
            with self._changed:
                self._error = self._error or error
                self._jobs.popleft()
                self._changed.notify_all()

    def start_anew(self) -> None:
        """Forget everything: in a forked child, where the thread and perhaps the lock are the parent's."""
        self._changed = threading.Condition()
        self._jobs = deque()
        self._running = False
        self._error = None


_writers: weakref.WeakSet[BackgroundWriter] = weakref.WeakSet()
_by_folder: weakref.WeakValueDictionary[str, BackgroundWriter] = weakref.WeakValueDictionary()


def writer_of(folder: Path) -> BackgroundWriter:
    """One writer a folder: what one Saver has under way, another of the same folder waits for."""
    return _by_folder.setdefault(str(folder.absolute()), BackgroundWriter())


def wait_for_all() -> None:
    """Return when everything that was submitted so far is written."""
    for writer in list(_writers):
        writer.wait()


def _after_fork() -> None:
    """The thread stayed in the parent, which writes what it has; the child begins with nothing to do."""
    for writer in list(_writers):
        writer.start_anew()


def _tell_at_exit() -> None:
    """An error that no later call could bring back must still be seen."""
    for writer in list(_writers):
        error = writer.take_error()
        if error is not None:
            sys.stderr.write(f"luxmeter: the last checkpoint was not written: {error}\n")


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows does not fork
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_tell_at_exit)
