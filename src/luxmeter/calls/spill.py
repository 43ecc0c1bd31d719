"""The background writer of one process: takes events out of the recorder and lays them down in the trace's folder.

Never blocks the program and never raises into it: what cannot be written is counted and told.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from luxmeter.calls import records
from luxmeter.files import write_json
from luxmeter.store import SegmentWriter

if TYPE_CHECKING:
    from luxmeter.calls.core._core import Recorder
    from luxmeter.calls.words import Words

THREAD_NAME = "luxmeter-trace-writer"
FLUSH_EVERY_S = 0.25
# A part is compacted while the program goes on, so that little is left to do at the end. Few large steps: before each
# the writer may have to wait 5 ms until a busy program yields the interpreter.
PART_ROWS = 1 << 16
# Buffers of 2,048 events: to wake for each would make the program yield too often.
_WAKE_EVERY = 16


class Spill:
    """Writes the events of one recorder to `folder`, from a thread of its own."""

    def __init__(
        self,
        folder: Path,
        recorder: Recorder,
        words: Words,
        *,
        tick: Callable[[], None] | None = None,
        room: int | None = None,
    ) -> None:
        """`room`: when more events than this wait, who brings more writes them first."""
        self.folder = folder
        self.lost = 0  # events that could not be written
        self.trouble = ""  # why
        self.written = 0
        self._recorder, self._words, self._tick, self._room = recorder, words, tick, room
        self._ready = (
            _thread.allocate_lock()
        )  # a lock as a signal: releasing it never waits, even in a signal handler
        self._ready.acquire()
        self._writing = threading.Lock()
        self._full = 0
        self._thread: threading.Thread | None = None
        self._ending = False
        self._pieces: deque[bytes] = deque()
        self._rows = 0
        self._part = 0
        self._part_rows = 0
        self._segments: SegmentWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._last_flush = time.monotonic()

    # -- from the program's threads

    def wake(self) -> None:
        """A buffer is full. Called by the core, from any thread."""
        self._full += 1
        if self._room is not None and self._recorder.stats()["pending"] >= self._room:
            self.flush()
        elif self._full % _WAKE_EVERY == 0:
            self._signal()

    def _signal(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._ready.release()

    def start(self) -> None:
        """Begin to write in the background."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
            self._thread.start()

    def hold(self) -> bool:
        """Before a fork: wait until the writer is at rest, so that no lock of its libraries is copied locked."""
        return self._writing.acquire(timeout=5)

    def release(self) -> None:
        """After a fork, in the parent."""
        self._writing.release()

    def flush(self) -> None:
        """Write everything recorded until now."""
        with self._writing:
            self._take(partial=True)
            self._write()

    def finish(self, end: dict[str, Any] | None) -> None:
        """Write the rest, compact it, and say how it ended. The thread is gone afterwards."""
        self._ending = True
        self._signal()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._writing:
            self._take(partial=True)
            self._write()
            self._close_part()
            if end is not None:
                self._guarded(lambda: self._write_end(end), rows=0)

    # -- in the background

    def _run(self) -> None:
        while not self._ending:
            self._ready.acquire(timeout=FLUSH_EVERY_S)
            with self._writing:
                late = time.monotonic() - self._last_flush >= FLUSH_EVERY_S
                self._take(partial=late)
                if late or self._rows >= PART_ROWS:
                    self._write()
            if self._tick is not None:
                self._tick()

    def _take(self, *, partial: bool) -> None:
        taken = self._recorder.drain(partial)
        self._pieces.extend(taken)
        self._rows += sum(map(len, taken)) // records.EVENT_DTYPE.itemsize

    def _write(self) -> None:
        """Lay down what was taken, piece by piece: copies of much at once would be seen in the memory."""
        self._last_flush = time.monotonic()
        while self._pieces:
            chosen, size = [], 0
            while self._pieces and size < PART_ROWS * records.EVENT_DTYPE.itemsize:
                chosen.append(self._pieces.popleft())
                size += len(chosen[-1])
            self._write_piece(chosen)
            if self._part_rows >= PART_ROWS:
                self._close_part()
        self._rows = 0

    def _write_piece(self, chosen: list[bytes]) -> None:
        batch = records.to_batch(chosen)
        used = set()
        for column in ("callable", "section", "module"):
            used.update(np.flatnonzero(np.bincount(records.numbers_of(batch.column(column)))).tolist())
        self._guarded(lambda: self._write_words(used), rows=0)
        # A whole part at once needs no segment first.
        whole = not self._batches and batch.num_rows >= PART_ROWS
        if whole or self._guarded(lambda: self._append(batch), rows=batch.num_rows):
            self.written += batch.num_rows
            self._part_rows += batch.num_rows
            self._batches.append(batch)

    def _append(self, batch: pa.RecordBatch) -> None:
        if self._segments is None:
            self._segments = SegmentWriter(self._part_path())
        self._segments.append(batch)

    def _part_path(self) -> Path:
        return self.folder / "events" / f"{self._part:04}"

    def _write_words(self, used: set[int]) -> None:
        lines = self._words.new_lines(used)
        if lines:
            with open(self.folder / "words.jsonl", "a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def _write_end(self, end: dict[str, Any]) -> None:
        self._write_words(
            {row[0] for row in end.get("totals", ())} | {row[2] for row in end.get("totals", ())}
        )
        end["lost_on_disk"] = self.lost
        end["trouble"] = self.trouble
        write_json(self.folder / "end.json", end)

    def _close_part(self) -> None:
        """Lay down the part as Parquet; its segments go when that is there. Readers take either, Parquet first."""
        batches, self._batches = self._batches, []
        segments, self._segments = self._segments, None
        path, rows = self._part_path(), self._part_rows
        self._part_rows = 0
        if not batches:
            return
        self._part += 1
        if segments is not None:
            segments.close()
        # Without room for the compact copy the segments stay.
        if self._guarded(lambda: _write_parquet(path, batches), rows=rows if segments is None else 0):
            shutil.rmtree(path, ignore_errors=True)
        batches.clear()
        pa.default_memory_pool().release_unused()

    def _guarded(self, work: Callable[[], None], *, rows: int) -> bool:
        try:
            work()
        except OSError as error:
            self.lost += rows
            self.trouble = f"{type(error).__name__}: {error.strerror or error}"
            return False
        return True


def _write_parquet(path: Path, batches: list[pa.RecordBatch]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    try:
        pq.write_table(pa.Table.from_batches(batches), temporary, **records.PARQUET_OPTIONS)
        os.replace(temporary, path.with_suffix(".parquet"))
    finally:
        temporary.unlink(missing_ok=True)
