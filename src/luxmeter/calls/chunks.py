"""The events of a trace as columns: few are held, many are read chunk by chunk, so that memory does not grow with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.groups import distinct
from luxmeter.calls.records import OWN

Numbers = npt.NDArray[Any]
Columns = dict[str, Numbers]
AT_ONCE = 3 << 19  # events that are held in memory, in some 200 bytes each
ROWS = 1 << 18  # of a chunk
OWN_WORK = ("process", "thread", "start_ns", "duration_ns")  # what must be known of the recorder's own work


@dataclass(frozen=True)
class Part:
    """Some consecutive events: how to read them, how many they are, when the first of them began and the last one ended."""

    read: Callable[[], Columns]
    process: int
    rows: int
    first_ns: int
    last_ns: int


class OwnWork:
    """When the recorder worked for itself, which has events of its own: to be taken off the events around it."""

    def __init__(self, lanes: Mapping[int, tuple[Numbers, Numbers]]) -> None:
        """`lanes`: of each thread the starts of the works and, one longer, how long all before each took."""
        self._lanes = dict(lanes)

    @classmethod
    def of(cls, works: Mapping[str, Numbers]) -> OwnWork:
        """From its events."""
        lanes, (numbers, lane) = {}, distinct(lanes_of(works))
        order = np.lexsort((works["start_ns"], lane))  # of a thread one after the other: they do not overlap
        ends = np.searchsorted(lane[order], np.arange(len(numbers)), side="right")
        for number, begin, end in zip(numbers.tolist(), [0, *ends], ends, strict=False):
            at = order[begin:end]
            lanes[number] = works["start_ns"][at], np.concatenate([[0], np.cumsum(works["duration_ns"][at])])
        return cls(lanes)

    @classmethod
    def of_all(cls, events: Mapping[str, Numbers]) -> OwnWork:
        """From all events."""
        at = np.flatnonzero(events["flags"] & OWN)
        return cls.of({name: events[name][at] for name in OWN_WORK})

    def of_processes(self, place: Numbers) -> OwnWork:
        """That of some processes: `place` is the new number of each, -1 of those that are left out."""
        return OwnWork(
            {int(place[lane >> 32]) << 32 | lane & 0xFFFFFFFF: works
             for lane, works in self._lanes.items() if place[lane >> 32] >= 0}
        )  # fmt: skip

    def of_lane(self, process: int, thread: int) -> Numbers:
        """The start and the duration of each work of a thread."""
        begins, until = self._lanes.get(
            process << 32 | thread, (np.empty(0, np.int64), np.zeros(1, np.int64))
        )
        return np.stack([begins, np.diff(until)], axis=1)

    def take_off(self, events: Columns) -> None:
        """Set `own_ns`, and make `duration_ns` and `child_ns` what they are without it."""
        start, duration = events["start_ns"], events["duration_ns"]
        own = events["own_ns"] = np.zeros(len(start), dtype=np.int64)
        if not len(start) or not self._lanes:
            return
        end = start + duration
        low, high = start.min(), end.max()
        lanes = {number: works for number, works in self._lanes.items()
                 if np.searchsorted(works[0], high) > np.searchsorted(works[0], low)}  # fmt: skip
        if not lanes:
            return
        lane, mine = lanes_of(events), (events["flags"] & OWN) == 0
        for number, (begins, until) in lanes.items():
            here = np.flatnonzero((lane == number) & mine & (start <= begins[-1]) & (end > begins[0]))
            # Most calls hold no work: the next one begins after their end.
            first = np.searchsorted(begins, start[here])
            holds = np.append(begins, np.iinfo(np.int64).max)[first] < end[here]
            here, first = here[holds], first[holds]
            last = np.searchsorted(begins, end[here])
            own[here] = until[last] - until[first]
        events["duration_ns"] = duration - own
        events["child_ns"] = events["child_ns"] - own


def lanes_of(events: Mapping[str, Numbers]) -> Numbers:
    """One number for each thread of each process."""
    found: Numbers = events["process"].astype(np.int64) << 32 | events["thread"].astype(np.int64)
    return found


class Events(Mapping[str, Numbers]):
    """The events of a trace that are not held. A column asked for by name reads them all, which takes some 80 bytes an event."""

    def __init__(
        self, parts: Sequence[Part], work: OwnWork, names: Sequence[str], *, rows: int | None = None
    ) -> None:
        self._parts, self.work, self._names, self._rows = tuple(parts), work, tuple(names), rows or ROWS
        self.n = sum(part.rows for part in parts)
        self.last_ns = max((part.last_ns for part in parts), default=0)

    @cached_property
    def _all(self) -> Columns:
        chunks = [chunk for _, chunk in self.chunks()]
        return (
            {name: np.concatenate([chunk[name] for chunk in chunks]) for name in self._names}
            if chunks
            else {}
        )

    def __getitem__(self, name: str) -> Numbers:
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def of_processes(self, place: Numbers) -> Events:
        """The events of some processes: `place` is the new number of each, -1 of those that are left out."""

        def read(part: Part) -> Callable[[], Columns]:
            number = int(place[part.process])

            def renumbered() -> Columns:
                events = part.read()
                return events | {"process": np.full_like(events["process"], number)}

            return renumbered

        kept = [
            Part(read(p), int(place[p.process]), p.rows, p.first_ns, p.last_ns)
            for p in self._parts
            if place[p.process] >= 0
        ]
        return Events(kept, self.work.of_processes(place), self._names, rows=self._rows)

    def chunks(
        self,
        *,
        backwards: bool = False,
        between: tuple[float, float] | None = None,
        process: int | None = None,
    ) -> Iterator[tuple[int, Columns]]:
        """Consecutive events with the number of the first, from the first to the last or `backwards`; of the chunks with
        an event that was open `between` two moments, or is of a process, alone.
        """
        together: list[tuple[int, list[Part]]] = []
        row = last = 0
        for part in self._parts:
            if not together or last + part.rows > self._rows:
                together.append((row, []))
                last = 0
            together[-1][1].append(part)
            last += part.rows
            row += part.rows
        for first, parts in reversed(together) if backwards else together:
            if between is not None and not any(
                p.first_ns < between[1] and p.last_ns >= between[0] for p in parts
            ):
                continue
            if process is not None and not any(p.process == process for p in parts):
                continue
            read = [part.read() for part in parts]
            events = {name: np.concatenate([one[name] for one in read]) if len(read) > 1 else read[0][name]
                      for name in read[0]}  # fmt: skip
            del read
            self.work.take_off(events)
            yield first, events


def joined(parts: Sequence[Mapping[str, Numbers]], names: Iterable[str]) -> Columns:
    """Events behind each other."""
    return {
        name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, np.int64)
        for name in names
    }


def chunks_of(
    events: Mapping[str, Numbers],
    *,
    backwards: bool = False,
    between: tuple[float, float] | None = None,
    process: int | None = None,
) -> Iterator[tuple[int, Columns]]:
    """As Events.chunks; what is held is one chunk."""
    if isinstance(events, Events):
        yield from events.chunks(backwards=backwards, between=between, process=process)
    else:
        yield 0, dict(events)
