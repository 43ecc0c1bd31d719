"""The background writer of one process: takes events out of the recorder and lays them down in the trace's folder.

They are laid down as the core packed them, so that the smallest call does not outrun it; a part that is complete is
folded (full pieces, compressed) when there is time, at the latest at the end. Columns are made of it by who reads it.

Never blocks the program and never raises into it: what cannot be written is kept and tried again; what is lost in
the end is counted and told. What rests in the folder and what is said to be lost make up what the core counted.
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

import pyarrow as pa

from luxmeter.calls import packed, records
from luxmeter.files import write_json
from luxmeter.store import SegmentWriter, read_segments, write_sealed

if TYPE_CHECKING:
    from luxmeter.calls.core._core import Recorder
    from luxmeter.calls.describe import Names

THREAD_NAME = "luxmeter-trace-writer"
FLUSH_EVERY_S = 0.25
# Events in a part: what is folded and read at once. Few large steps: before each the writer may have to wait 5 ms until a busy
# program yields the interpreter.
PART_ROWS = 1 << 17
_MANY_ROWS = 1 << 16  # a turn that took more is one of a program that calls fast: no time to fold now
# What waits for a disk that refuses it; beyond this the oldest is lost.
_MAX_WAITING_BYTES = 1 << 24
# Buffers of 2,048 events: to wake for each would make the program yield too often.
_WAKE_EVERY = 16
_yield = time.sleep  # whatever the program puts in its place


class Spill:
    """Writes the events of one recorder to `folder`, from a thread of its own."""

    def __init__(
        self,
        folder: Path,
        recorder: Recorder,
        names: Names,
        *,
        tick: Callable[[], None],
        lossless: bool = False,
    ) -> None:
        """`lossless`: when half of what may wait is there, who brings more writes it first."""
        self.folder = folder
        self.lost = 0  # events that could not be written
        self.failures = 0  # of any step, whether something was lost by it or not
        self.trouble = ""  # the first of them
        self.written = 0
        self._recorder, self._names, self._tick, self._lossless = recorder, names, tick, lossless
        self._ready = (
            _thread.allocate_lock()
        )  # a lock as a signal: releasing it never waits, even in a signal handler
        self._ready.acquire()
        self._writing = threading.Lock()
        self._full = 0
        self._thread: threading.Thread | None = None
        self._ending = False
        self._pieces: deque[bytes] = deque()  # taken from the recorder and not written yet
        # That occur in what was written, and may not have been told yet.
        self._callables: set[int] = set()
        self._sites: set[int] = set()
        self._part = 0
        self._part_rows = 0
        self._segments: SegmentWriter | None = None
        self._complete: deque[tuple[Path, int]] = deque()  # parts, with their rows, that are not folded yet
        self._taken = 0  # in this turn
        self._last_flush = time.monotonic()

    # -- from the program's threads

    def wake(self) -> None:
        """A buffer is full. Called by the core, from any thread."""
        self._full += 1
        half_full = self._recorder.filled >= 0.5
        if half_full and self._lossless:
            self.flush()
        elif half_full:
            self._signal()
            _yield(
                0
            )  # a program that never pauses gives up the interpreter after 5 ms only, each time the writer wants it back
        elif self._full % _WAKE_EVERY == 0:
            self._signal()

    def _signal(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._ready.release()

    def start(self) -> None:
        """Begin to write in the background."""
        thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        thread.start()
        self._thread = thread  # only now: finish() waits for one that runs, and there may be room for no more

    def hold(self) -> bool:
        """Before a fork: wait until the writer is at rest, so that no lock of its libraries is copied locked."""
        return self._writing.acquire(timeout=5)

    def release(self) -> None:
        """After a fork, in the parent."""
        self._writing.release()

    def flush(self) -> None:
        """Write everything recorded until now."""
        with self._writing:
            self._guarded(lambda: self._take(partial=True))
            self._write()

    def beside(self, write: Callable[..., None], **how: Any) -> None:
        """Let another table of the process be written, `write(folder)`, as the events are: no fork meanwhile, and failures are told."""
        with self._writing:
            self._guarded(lambda: write(self.folder, **how))

    def finish(self, end: Callable[[], dict[str, Any]] | None) -> None:
        """Write the rest, compact it, and say how it ended (None: nobody will read it). The thread is gone afterwards."""
        self._ending = True
        self._signal()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with self._writing:
            self._insist(lambda: self._take(partial=True))
            self._write()
            self._write_alone()
            self._close_part()
            while self._complete:
                self._fold()
            if end is not None:
                self._write_end(end)

    # -- in the background

    def _run(self) -> None:
        while not self._ending:
            self._ready.acquire(timeout=FLUSH_EVERY_S)
            with self._writing:
                late = time.monotonic() - self._last_flush >= FLUSH_EVERY_S
                self._taken = 0
                self._guarded(lambda: self._take(partial=late))  # noqa: B023  (called at once)
                self._write()
                if self._complete and self._taken < _MANY_ROWS:
                    self._fold()
            self._guarded(self._tick)

    def _take(self, *, partial: bool) -> None:
        if partial:
            self._last_flush = time.monotonic()
        pieces = self._recorder.take(partial)
        self._pieces.extend(pieces)
        self._taken = sum(packed.count(piece)[0] for piece in pieces)

    def _write(self) -> None:
        """Lay down what was taken, piece by piece: copies of much at once would be seen in the memory."""
        while self._pieces:
            chosen, rows = [], self._part_rows
            for piece in self._pieces:
                chosen.append(piece)
                rows += packed.count(piece)[0]
                if rows >= PART_ROWS:
                    break
            if not self._guarded(lambda: self._write_pieces(chosen)):  # noqa: B023
                break  # they stay where they are, for the next turn: events must not change their order
            for _ in chosen:
                self._pieces.popleft()
            if self._part_rows >= PART_ROWS:
                self._close_part()
        while sum(map(len, self._pieces)) > _MAX_WAITING_BYTES:
            self._lose(self._pieces.popleft())

    def _write_alone(self) -> None:
        """At the end, what could not be written together."""
        while self._pieces:
            piece = self._pieces.popleft()
            if not self._guarded(lambda: self._write_pieces([piece])):  # noqa: B023
                self._lose(piece)

    def _lose(self, piece: bytes) -> None:
        self.lost += packed.count(piece)[1]

    def _write_pieces(self, chosen: list[bytes]) -> None:
        callables, sites = packed.ids_in(chosen)
        self._callables.update(callables)
        self._sites.update(sites)
        self._guarded(self._write_names)
        if self._segments is None:
            self._segments = SegmentWriter(self._part_path())
        self._segments.append(packed.to_batch(chosen))
        for rows, calls in map(packed.count, chosen):
            self._part_rows += rows
            self.written += calls

    def _part_path(self) -> Path:
        return self.folder / "events" / f"{self._part:04}"

    def _write_names(self, *, last: bool = False) -> None:
        lines = self._names.untold_lines(self._callables, self._sites, last=last)
        if lines:
            # A line that was torn by a full disk is ended first, so that it spoils none after it.
            start = "\n" if self.failures else ""
            with open(self.folder / "words.jsonl", "a", encoding="utf-8") as file:
                file.write(start + "\n".join(lines) + "\n")
        self._names.told()
        self._callables.clear()
        self._sites.clear()
        if self._names.refused is not None:
            raise self._names.refused

    def _write_end(self, end: Callable[[], dict[str, Any]]) -> None:
        told: dict[str, Any] = {"stats": self._recorder.stats()}
        self._insist(lambda: told.update(end()))
        totals = told.get("totals", ())
        self._callables.update(row[place] for row in totals for place in (0, 2))
        self._sites.update(row[-2] for row in totals)
        self._insist(lambda: self._write_names(last=True))
        kept = self.written + sum(row[5] for row in totals if not row[4] & records.OWN)
        missing = told["stats"]["events"] - kept - self.lost
        if missing > 0:
            self.lost += missing
            self.trouble = self.trouble or "they never reached the writer"

        def write() -> None:
            write_json(
                self.folder / "end.json",
                told | {"lost_on_disk": self.lost, "trouble": self.trouble},
                summed=True,
            )

        if not self._insist(write) and told.pop(
            "pauses", None
        ):  # where the disk is full: what can be done without
            self._insist(write)

    def _close_part(self) -> None:
        """Nothing more comes to this part."""
        segments, self._segments = self._segments, None
        if segments is not None:
            self._guarded(segments.close)
            self._complete.append((self._part_path(), self._part_rows))
            self._part += 1
        self._part_rows = 0

    def _fold(self) -> None:
        """Fold a complete part into one file; its segments go when that is there. Readers take either, the file first."""
        path, rows = self._complete.popleft()
        if self._guarded(lambda: _write_folded(path, rows)):
            shutil.rmtree(path, ignore_errors=True)
        pa.default_memory_pool().release_unused()

    def _guarded(self, work: Callable[[], object]) -> bool:
        """Whether it went well. Nothing ends this thread: the calls that come after would be lost without a word."""
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.failures += 1
            said = (isinstance(error, OSError) and error.strerror) or error
            self.trouble = self.trouble or f"{type(error).__name__}: {said}"
            return False
        return True

    def _insist(self, work: Callable[[], object]) -> bool:
        """For what is not tried again later."""
        return self._guarded(work) or self._guarded(work)


def _write_folded(path: Path, rows: int) -> None:
    """OSError if the events are not all in the part's segments any more: these stay then."""
    table = read_segments(path)
    folded, found = packed.folded(table) if table is not None else (None, 0)
    if found != rows:
        raise OSError(f"{rows - found} of {rows} events in {path} cannot be read again")
    temporary = path.with_suffix(".part")
    try:
        write_sealed(temporary, folded, packed.PARQUET_OPTIONS)
        os.replace(temporary, path.with_suffix(".parquet"))
    finally:
        temporary.unlink(missing_ok=True)
