"""The one way long work shows progress and stops on Ctrl-C with what it has so far."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from types import FrameType
from typing import IO, Any, Generic, TypeVar

T = TypeVar("T")


class track(Generic[T]):
    """Iterate with a progress bar on stderr. Ctrl-C ends the loop after the item at hand; a second one at once.

    `interrupted` tells afterwards whether it ended early. On a stream that is not a terminal one line is
    written at the start and one at the end, so that logs stay readable. `note()` says what is being done now.
    """

    def __init__(
        self,
        items: Iterable[T],
        what: str,
        *,
        total: int | None = None,
        stream: IO[str] | None = None,
        quiet: bool = False,
    ) -> None:
        self._items = items
        self._what = what
        self._total = total if total is not None else (len(items) if isinstance(items, Sized) else None)
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self.done = 0
        self.interrupted = False

    def note(self, text: str) -> None:
        """Show `text` behind the bar."""
        if self._bar is not None:
            self._bar.update(self._task, note=text)

    def __iter__(self) -> Iterator[T]:
        previous = self._take_ctrl_c()
        try:
            self._open()
            for item in self._items:
                if self.interrupted:
                    break
                yield item
                self.done += 1
                if self._bar is not None:
                    self._bar.update(self._task, completed=self.done)
        finally:
            self._close()
            if previous is not None:
                signal.signal(signal.SIGINT, previous)

    def _take_ctrl_c(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return None  # only the main thread may set handlers; there Ctrl-C arrives anyway
        previous = signal.getsignal(signal.SIGINT)
        if previous is None or previous == signal.SIG_IGN:
            return None

        def stop_after_this(number: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True
            self._say("stopping after the current item (Ctrl-C again: at once)")

        signal.signal(signal.SIGINT, stop_after_this)
        return previous

    def _open(self) -> None:
        if self._quiet:
            return
        if not self._stream.isatty():
            count = "" if self._total is None else f" ({self._total})"
            self._stream.write(f"{self._what}{count} ...\n")
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(file=self._stream),
            transient=True,
        )
        self._task = self._bar.add_task(self._what, total=self._total, note="")
        self._bar.start()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if not self._quiet:
            of = "" if self._total is None else f" of {self._total}"
            end = "stopped early" if self.interrupted else "done"
            self._stream.write(f"{self._what}: {end}, {self.done}{of}\n")

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text)
        elif not self._quiet:
            self._stream.write(text + "\n")
