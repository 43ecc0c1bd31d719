"""Time and memory on the accelerator, call by call: two timing events around each, read later, without waiting.

An accelerator works off what it was given, in its own time. What a call took there is the time between two marks in its queue:
before and behind all that the call put into it. The marks are read when the device has passed both.

Where it rests: a table beside the events, `device/<nnnn>` in the process's folder (Arrow segments while a part grows, then
Parquet), one row a call, of the columns of `SCHEMA`. A row belongs to the event of the same thread and start. `begin_ns` is by
the device's clock, from the first mark of that device on; -1 stands for a memory that the device did not tell.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from luxmeter.calls.records import numbers_of
from luxmeter.errors import StoreError
from luxmeter.store import SegmentWriter, compact, read_segments, tell_loss

Numbers = npt.NDArray[Any]
FOLDER = "device"
SCHEMA = pa.schema(
    [
        pa.field(name, pa.int64(), nullable=False)
        for name in (
            "thread",
            "start_ns",
            "device",
            "begin_ns",
            "duration_ns",
            "memory_before",
            "memory_after",
        )
    ],
    metadata={b"luxmeter.device": b"1"},
)
_WIDTH = len(SCHEMA.names)
PART_ROWS = 1 << 20
_OPTIONS = {"use_dictionary": False, "column_encoding": dict.fromkeys(SCHEMA.names, "DELTA_BINARY_PACKED")}
# Columns of a recording whose calls were timed on a device; -1: not known.
COLUMNS = ("device", "device_start_ns", "device_ns", "memory_before", "memory_after")
READ_EVERY = 32  # calls
MOST_WAITING = 1 << 16  # pairs of marks that a device has not passed yet
_ANCHOR_NS = 1_000_000_000  # a device tells times as 32-bit floats: those of a second are right to 60 ns

Mark: TypeAlias = Any  # torch.Event
Pair: TypeAlias = tuple[Mark, Mark]


class _Device:
    """One accelerator: what it has not passed yet, pairs to be used again, and what its times are counted from."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting: deque[tuple[int, int, Pair, int, int]] = deque()
        self.free: deque[Pair] = deque()
        self.anchor: Mark = None
        self.anchor_ns = 0


class DeviceTimes:
    """Marks each recorded call of a process on its accelerator; `begin` and `end` are hooks of the recorder.

    Nothing here raises into the program. What keeps calls from being timed is told in `reasons`.
    """

    def __init__(self, *, is_child: bool = False) -> None:
        self._is_child = (
            is_child  # one that uses no accelerator is nothing to remark on: a DataLoader's worker
        )
        self.name = ""  # of the accelerator, once there is one
        self.remarks: dict[
            str, None
        ] = {}  # why calls were not timed, or their memory not told: lines for notes()
        self.calls = self.spent_ns = 0  # how many hooks ended, and their time
        self._off = False
        self._unfound = ""  # why the accelerator could not be asked for
        self._torch: Any = None
        self._left_to_parent: dict[int, _Device] = {}
        self._devices: dict[int, _Device] = {}
        self._rows = array("q")
        self._lock = threading.Lock()
        self._memory: Callable[[int], int] = lambda index: -1
        self._segments: SegmentWriter | None = None
        self._part = self._part_rows = 0

    @property
    def added_ns(self) -> float:
        """What they add to a call, on average."""
        return self.spent_ns / self.calls if self.calls else 0.0

    # -- around each call

    def begin(self) -> object:
        """A mark before a call; None where there is no device, or it cannot be marked now."""
        if self._off or (self._torch is None and not self.find()):
            return None
        began_ns = perf_counter_ns()
        try:
            index = self._torch.accelerator.current_device_index()
            own = self._devices.get(index) or self._devices.setdefault(index, _Device(index))
            if self._capturing() or not self._has_room(own):
                return None
            pair = self._pair(own)
            before = self._memory(index)
            pair[0].record()
        except Exception as error:  # noqa: BLE001 - whatever a device's driver raises: the program goes on
            self._give_up(error)
            return None
        return own, pair, before, perf_counter_ns() - began_ns

    def end(self, begun: tuple[_Device, Pair, int, int], thread: int, start_ns: int) -> None:
        """The mark behind it. Now and then the marks that were passed are read."""
        began_ns = perf_counter_ns()
        own, pair, before, spent_ns = begun
        try:
            if self._torch.accelerator.current_device_index() != own.index:
                self.remarks["calls that changed the current device were not timed on it"] = None
            elif not self._capturing():
                pair[1].record()
                own.waiting.append((thread, start_ns, pair, before, self._memory(own.index)))
                if len(own.waiting) % READ_EVERY == 0:
                    self.read()
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        self.calls += 1
        self.spent_ns += spent_ns + perf_counter_ns() - began_ns

    def find(self) -> bool:
        """Whether there is an accelerator whose work has begun in this process: to mark it must not be what begins it."""
        torch: Any = sys.modules.get("torch")
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is None or not hasattr(torch, "Event"):
            return False
        try:
            device = accelerator.current_accelerator()
            if device is None:
                return False
            module = torch.get_device_module(device)
            if not module.is_available():
                self._off = True
                return False
            if not getattr(module, "is_initialized", lambda: True)():
                return False
            self._memory = self._teller_of_memory(torch)
        except Exception as error:  # noqa: BLE001 - torch may be half imported
            self._unfound = _said(error)
            return False
        self.name, self._torch = str(device), torch
        return True

    def _teller_of_memory(self, torch: Any) -> Callable[[int], int]:
        """torch.accelerator.memory_allocated, or the entry that it looks up in a fraction of the time, if both say the same."""
        public = getattr(torch.accelerator, "memory_allocated", None)  # torch 2.9 and later
        if public is None:
            return lambda index: -1
        stats = getattr(torch._C, "_accelerator_getDeviceStats", None)
        try:
            index = torch.accelerator.current_device_index()
            told = public(index)
            if stats is not None and stats(index)["allocated_bytes"]["all"]["current"] == told:
                return lambda index: int(stats(index)["allocated_bytes"]["all"]["current"])
        except Exception as error:  # noqa: BLE001 - each device in its own words
            self.remarks[f"the device does not tell its memory: {_said(error)}"] = None
            return lambda index: -1
        return lambda index: int(public(index))

    def _capturing(self) -> bool:
        """Whether calls are being made a graph: a mark that keeps time cannot be part of one, nor be read meanwhile."""
        stream = self._torch.accelerator.current_stream()
        if hasattr(stream, "is_capturing"):
            found = bool(stream.is_capturing())
        else:  # an older torch
            cuda = self._torch.cuda
            found = bool(cuda.is_available() and cuda.is_current_stream_capturing())
        if found:
            self.remarks["calls that were captured into a graph were not timed on the device"] = None
        return found

    def _has_room(self, own: _Device) -> bool:
        if len(own.waiting) < MOST_WAITING:
            return True
        self.read()
        if len(own.waiting) < MOST_WAITING:
            return True
        self.remarks[f"calls were not timed on the device while it was {MOST_WAITING:,} behind"] = None
        return False

    def _pair(self, own: _Device) -> Pair:
        try:
            return own.free.pop()
        except IndexError:
            event = self._torch.Event
            return event(self.name, enable_timing=True), event(self.name, enable_timing=True)

    def _give_up(self, error: Exception) -> None:
        """No further call is timed: a device that refuses once refuses always."""
        self._off = True
        self.remarks[f"from some call on, none was timed on the device: {_said(error)}"] = None

    # -- reading what was passed

    def read(self, *, patience_s: float = 0.0) -> None:
        """Read the marks that their device has passed; waits for no device, and so long for another thread that reads."""
        if self._torch is None or self._off:
            return
        if not (self._lock.acquire(timeout=patience_s) if patience_s else self._lock.acquire(blocking=False)):
            return  # another thread does, or this one was interrupted in doing so
        try:
            if not self._capturing():
                for own in tuple(self._devices.values()):
                    self._read(own)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        finally:
            self._lock.release()

    def _read(self, own: _Device) -> None:
        while own.waiting:
            thread, start_ns, (begin, end), before, after = own.waiting[0]
            if not (begin.query() and end.query()):
                return
            own.waiting.popleft()
            at = own.anchor_ns
            if own.anchor is not None:
                at += round(own.anchor.elapsed_time(begin) * 1e6)
            self._rows.extend(
                (thread, start_ns, own.index, at, round(begin.elapsed_time(end) * 1e6), before, after)
            )
            if own.anchor is None or at - own.anchor_ns > _ANCHOR_NS:
                own.anchor, own.anchor_ns = begin, at
            else:
                own.free.append((begin, end))

    def finish(self) -> None:
        """At the end: wait for the last mark of each device, and read all. What a device reports there is not the program's."""
        if self._torch is None or self._off:
            return
        try:
            if not self._capturing():
                for own in tuple(self._devices.values()):
                    if own.waiting:
                        own.waiting[-1][2][1].synchronize()
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
        self.read(patience_s=5)
        self._off = True

    def after_fork(self) -> None:
        """In a forked child: an accelerator that the parent uses cannot be used there; its marks are left alone."""
        self._lock, self._is_child = threading.Lock(), True
        self._left_to_parent = self._devices
        self._devices, self._rows = {}, array("q")
        self._segments, self._part, self._part_rows = None, 0, 0
        if self._torch is not None:
            self._off = True
        self.calls = self.spent_ns = 0

    def told(self) -> dict[str, Any]:
        """For end.json."""
        said = list(self.remarks)
        if not (said or self.name or self._is_child):
            said = [
                f"no call was timed on a device: {self._unfound or 'torch saw no accelerator at work in this process'}"
            ]
        return {"name": self.name, "remarks": said}

    # -- to the folder

    def write(self, process: Path, *, last: bool = False) -> None:
        """Lay down what was read; raises what the disk raises, and then keeps it for the next time."""
        with self._lock:
            rows, self._rows = self._rows, array("q")
        if rows:
            if self._segments is None:
                self._segments = SegmentWriter(process / FOLDER / f"{self._part:04}")
            try:
                self._segments.append(_batch(rows))
            except BaseException:
                with self._lock:
                    self._rows = rows + self._rows
                raise
            self._part_rows += len(rows) // _WIDTH
        if self._segments is not None and (last or self._part_rows >= PART_ROWS):
            segments, self._segments = self._segments, None
            self._part, self._part_rows = self._part + 1, 0
            segments.close()
            compact(segments.folder, options=_OPTIONS)


def _batch(rows: array[int]) -> pa.RecordBatch:
    numbers = np.frombuffer(rows, dtype=np.int64).reshape(-1, _WIDTH)
    columns = [
        pa.Array.from_buffers(
            pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers[:, i]))]
        )
        for i in range(_WIDTH)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _said(error: Exception) -> str:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {first}"[:200]


# -- from the folder


_HELD_PARTS = 2  # of a million rows and 64 MB at most


class DeviceRows:
    """What a process's calls took on its devices, to be looked up by thread and start: part by part, a few of which are held."""

    def __init__(self, process: Path) -> None:
        self._parts: list[_Part] = []
        self._held: OrderedDict[int, dict[str, Numbers]] = OrderedDict()
        # What brings the times of each device to the program's clock: no call begins there before it was made, and one that
        # found it idle begins at once.
        self._behind: dict[int, int] = {}
        for place in sorted((process / FOLDER).glob("[0-9]*")):
            try:
                rows = _rows_of(place)
            except StoreError as error:
                tell_loss(place, error.what)
                continue
            if rows is not None and len(rows["thread"]):
                self._add(place, rows)

    def _add(self, place: Path, rows: dict[str, Numbers]) -> None:
        ahead = rows["start_ns"] - rows["begin_ns"]
        for number in np.unique(rows["device"]).tolist():
            most = int(ahead[rows["device"] == number].max())
            self._behind[number] = max(most, self._behind.get(number, most))
        numbers, first = np.unique(rows["thread"], return_index=True)
        last = [*(first[1:] - 1), len(rows["thread"]) - 1]
        starts = rows["start_ns"]  # in order, of each thread
        ranges = zip(numbers.tolist(), starts[first].tolist(), starts[last].tolist(), strict=True)
        self._hold(len(self._parts), rows)
        self._parts.append(_Part(place, len(starts), {number: (low, high) for number, low, high in ranges}))

    def _hold(self, number: int, rows: dict[str, Numbers]) -> None:
        self._held[number] = rows
        self._held.move_to_end(number)
        while len(self._held) > _HELD_PARTS:
            self._held.popitem(last=False)

    def _read(self, number: int) -> dict[str, Numbers]:
        part = self._parts[number]
        rows = self._held.get(number) or _rows_of(part.place, part.rows)
        assert rows is not None
        self._hold(number, rows)
        return rows

    def __len__(self) -> int:
        return sum(part.rows for part in self._parts)

    def of(self, thread: Numbers, start_ns: Numbers) -> dict[str, Numbers]:
        """COLUMNS for these events; -1 where a call was not timed."""
        found = {name: np.full(len(thread), -1, dtype=np.int64) for name in COLUMNS}
        lanes = {number: np.flatnonzero(thread == number) for number in np.unique(thread).tolist()}
        for number, part in enumerate(self._parts):
            for lane, (low, high) in part.ranges.items():
                here = lanes.get(lane, np.empty(0, np.int64))
                here = here[(start_ns[here] >= low) & (start_ns[here] <= high) & (found["device"][here] < 0)]
                if len(here):
                    self._look_up(self._read(number), lane, here, start_ns, found)
        return found

    def _look_up(
        self, rows: dict[str, Numbers], lane: int, here: Numbers, start_ns: Numbers, found: dict[str, Numbers]
    ) -> None:
        first, last = np.searchsorted(rows["thread"], [lane, lane + 1])
        starts = rows["start_ns"][first:last]
        at = np.searchsorted(starts, start_ns[here])
        known = starts[at] == start_ns[here]
        here, at = here[known], first + at[known]
        device = rows["device"][at]
        found["device"][here] = device
        behind = np.zeros(len(device), dtype=np.int64)
        for number, ns in self._behind.items():
            behind[device == number] = ns
        found["device_start_ns"][here] = rows["begin_ns"][at] + behind
        for name, source in (("device_ns", "duration_ns"), *zip(COLUMNS[3:], COLUMNS[3:], strict=True)):
            found[name][here] = rows[source][at]


@dataclass(frozen=True)
class _Part:
    """Where some rows lie, how many they are, and of each thread from which start to which."""

    place: Path
    rows: int
    ranges: dict[int, tuple[int, int]]


def _rows_of(place: Path, most: int | None = None) -> dict[str, Numbers] | None:
    """The rows of a part (as many as there were at first, while it grows) by thread and start; None if it has none of ours."""
    table = read_segments(place, columns=SCHEMA.names)
    if table is None or table.schema.names != SCHEMA.names:
        return None
    batches = table.slice(0, most).cast(SCHEMA).combine_chunks().to_batches()
    if not batches:
        return None
    rows = {name: numbers_of(batches[0].column(name)) for name in SCHEMA.names}
    order = np.lexsort([rows["start_ns"], rows["thread"]])
    return {name: column[order] for name, column in rows.items()}
