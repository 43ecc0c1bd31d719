"""What holds a program up between its calls and can be told by name: garbage collections, what torch.compile prepares,
modules that a framework imports when they are first needed.

Noted as they end, as numbers: no object that the collector would look at again. Short collections are only counted.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SHORTEST_NS = 20_000
_MOST = 50_000  # beyond, they are only counted: 1.6 MB
KINDS = ("gc", "compile", "import")


class Pauses:
    """The pauses of one process, from start() to stop()."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._begun: dict[int, int] = {}  # by the thread that collects
        self._open: set[int] = set()  # threads in during()
        self.clear()

    def clear(self) -> None:
        """As in a forked child: those were the parent's."""
        self._kept = array("q")  # kind, thread, start, duration
        self.counted = self.counted_ns = 0  # those that were not kept

    def start(self) -> None:
        """Listen to the collector."""
        gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        """No more."""
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._on_gc)

    @contextlib.contextmanager
    def during(self, kind: str) -> Iterator[None]:
        """What is done here is of this kind; within another, it is a part of that."""
        me = threading.get_ident()
        if me in self._open:
            yield
            return
        self._open.add(me)
        start_ns = self._now_ns()
        try:
            yield
        finally:
            self._open.discard(me)
            self._note(KINDS.index(kind), start_ns)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        me = threading.get_ident()
        if phase == "start":
            self._begun[me] = self._now_ns()
            return
        start_ns = self._begun.pop(me, None)
        if start_ns is not None:
            self._note(0, start_ns)

    def _note(self, kind: int, start_ns: int) -> None:
        duration_ns = self._now_ns() - start_ns
        if duration_ns >= _SHORTEST_NS and len(self._kept) < 4 * _MOST:
            self._kept.extend((kind, threading.get_ident(), start_ns, duration_ns))
        else:
            self.counted += 1
            self.counted_ns += duration_ns

    def told(self, threads: Mapping[int, int]) -> list[list[Any]]:
        """Kind, thread, start and duration of each that a thread of the trace had; `threads` are its numbers by ident."""
        rows = zip(*(iter(self._kept.tolist()),) * 4, strict=True)
        return [
            [KINDS[kind], threads[ident], start, duration]
            for kind, ident, start, duration in rows
            if ident in threads
        ]
