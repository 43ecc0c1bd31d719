"""A trace's folder -> one recording: the processes' numbers brought to common ids."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from luxmeter.calls import packed
from luxmeter.calls.checked import check_end, check_identity
from luxmeter.calls.chunks import AT_ONCE, OWN_WORK, Columns, Events, OwnWork, Part, chunks_of
from luxmeter.calls.describe import OWN_NAME, read_lines
from luxmeter.calls.device_time import COLUMNS as DEVICE_COLUMNS
from luxmeter.calls.device_time import DeviceRows
from luxmeter.calls.groups import distinct_rows, sums_of
from luxmeter.calls.records import (
    EVENT_DTYPE,
    EVENT_SCHEMA,
    FORMAT,
    OWN,
    SECTION,
    CallableNames,
    ProcessRecord,
    SignatureNames,
    SiteNames,
    numbers_of,
)
from luxmeter.calls.sites import short_names
from luxmeter.errors import LuxmeterError, TraceError
from luxmeter.files import bytes_of, read_json
from luxmeter.render import counted, span
from luxmeter.store import read_sealed, read_segments, tell_loss

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class TotalsRow:
    """Many calls in one row, of totals mode; ids are those of the recording."""

    process: int
    callable: int
    signature: int
    section: int
    thread: int
    flags: int
    n: int
    total_ns: int
    child_ns: int
    wait_ns: int
    min_ns: int
    max_ns: int
    histogram: Numbers
    site: int = 0


@dataclass(frozen=True)
class Recording:
    """All that was recorded: columns of events, what ids stand for, and each process.

    Where calls were timed on a device, its columns are added (device_time.COLUMNS; -1: not known).
    `process` is added to the columns, and `own_ns`: how much of an event's time by the clock was the recorder's own
    work, which `duration_ns` and `child_ns` are without. An event ends at start + duration + own.
    Up to one and a half million events are held; more are read chunk by chunk (`chunks`), and all at once where `events` is
    asked for a column.
    """

    events: Mapping[str, Numbers]
    totals: tuple[TotalsRow, ...]
    callables: tuple[CallableNames, ...]
    signatures: tuple[SignatureNames | None, ...]
    processes: tuple[ProcessRecord, ...]
    sites: tuple[SiteNames | None, ...] = (None,)
    cut: bool = False  # to a part of the trace

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Each site as `train.py:17`, with as much of the path as tells files apart; empty for none."""
        short = short_names(site.file for site in self.sites if site is not None)
        return tuple("" if site is None else f"{short[site.file]}:{site.line}" for site in self.sites)

    @property
    def n(self) -> int:
        """Number of events."""
        return self.events.n if isinstance(self.events, Events) else len(self.events["callable"])

    @property
    def is_held(self) -> bool:
        """Whether its events are in memory."""
        return not isinstance(self.events, Events)

    def chunks(
        self,
        *,
        backwards: bool = False,
        between: tuple[float, float] | None = None,
        process: int | None = None,
    ) -> Iterator[tuple[int, Columns]]:
        """Consecutive events with the number of the first, from the first to the last or `backwards`; of the chunks with an
        event that was open `between` two moments, or is of a process, alone. Events of a thread are in the order of their ends.
        """
        return chunks_of(self.events, backwards=backwards, between=between, process=process)

    def together(
        self, names: Sequence[str], flags: int, *, without: int = 0
    ) -> dict[tuple[int, ...], tuple[int, int]]:
        """The events that have the same numbers in some columns and the same of some flags: how many, and their time.

        Those with a flag of `without` are left out.
        """
        found: dict[tuple[int, ...], tuple[int, int]] = {}
        for _, events in self.chunks():
            at = np.flatnonzero((events["flags"] & without) == 0)
            rows, which = distinct_rows([*(events[name][at] for name in names), events["flags"][at] & flags])
            n = np.bincount(which, minlength=len(rows)).tolist()
            times = sums_of(which, events["duration_ns"][at], len(rows)).tolist()
            for key, count, ns in zip(map(tuple, rows.tolist()), n, times, strict=True):
                known = found.get(key, (0, 0))
                found[key] = known[0] + count, known[1] + ns
        return dict(sorted(found.items()))

    @property
    def own_work(self) -> OwnWork:
        """When the recorder worked for itself."""
        return self.events.work if isinstance(self.events, Events) else OwnWork.of_all(self.events)

    @cached_property
    def calls(self) -> int:
        """Number of calls of the program: what every table counts. A section is no call."""
        is_call = self.kinds != SECTION
        if self.totals:
            return sum(t.n for t in self.totals if not t.flags & OWN and is_call[t.callable])
        return sum(
            int(np.count_nonzero(is_call[chunk["callable"]] & ((chunk["flags"] & OWN) == 0)))
            for _, chunk in self.chunks()
        )

    @cached_property
    def kinds(self) -> Numbers:
        """The kind of each callable."""
        return np.array([words.kind for words in self.callables], dtype=np.uint8)

    @cached_property
    def first_ns(self) -> int:
        """When the first call began: what seconds of a trace are counted from."""
        found = (chunk["start_ns"][(chunk["flags"] & OWN) == 0] for _, chunk in self.chunks())
        return min((int(start.min()) for start in found if len(start)), default=0)

    @cached_property
    def last_ns(self) -> int:
        """When the last event ended."""
        if isinstance(self.events, Events):
            return self.events.last_ns
        e = self.events
        return int((e["start_ns"] + e["duration_ns"] + e["own_ns"]).max(initial=0))

    @property
    def ranks(self) -> list[int]:
        """The ranks that it has calls of."""
        return sorted({process.rank for process in self.processes})

    def of_rank(self, rank: int) -> Recording:
        """As if only the processes of this rank had been recorded."""
        its = [i for i, process in enumerate(self.processes) if process.rank == rank]
        place = np.full(len(self.processes), -1, dtype=np.int64)
        place[its] = np.arange(len(its))
        events: Mapping[str, Numbers]
        if isinstance(self.events, Events):
            events = self.events.of_processes(place)
        else:
            keep = place[self.events["process"]] >= 0
            kept = {name: column[keep] for name, column in self.events.items()}
            events = kept | {"process": place[kept["process"]].astype(self.events["process"].dtype)}
        totals = [replace(t, process=int(place[t.process])) for t in self.totals if place[t.process] >= 0]
        return replace(
            self, events=events, totals=tuple(totals), processes=tuple(self.processes[i] for i in its)
        )

    def process_names(self) -> list[str]:
        """What each process is called: by its rank where there are several, and by its number where a rank has several."""
        ranks = [process.rank for process in self.processes]
        if len(set(ranks)) < 2:
            return [f"process {process.pid}" for process in self.processes]
        return [
            f"rank {process.rank}" + (f", process {process.pid}" if ranks.count(process.rank) > 1 else "")
            for process in self.processes
        ]

    def device_name(self, process: int, device: int) -> str:
        """Of an accelerator that a process worked on: `cuda:0`."""
        return f"{self.processes[process].end.get('device', {}).get('name') or 'device'}:{device}"


def read_recording(folders: Sequence[Path], *, running: dict[str, Any] | None = None) -> Recording:
    """Read one trace, or several as one. `running` stands in for the end of this process's part while it runs."""
    merger = _Merger()
    for folder in folders:
        with reading(folder):
            identity_of(folder)
            for process in sorted(folder.glob("rank*-*"), key=_rank_and_pid):
                merger.add(process, running)
    return merger.done()


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Whatever damaged bytes make of who reads them is one kind of error, with the trace's name."""
    try:
        yield
    except LuxmeterError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(folder, str(error)) from error
    except Exception as error:
        raise _damaged(folder, f"{type(error).__name__}: {error}") from error


def _damaged(folder: Path, why: str) -> TraceError:
    return TraceError(
        "trace-damaged",
        f"The trace in {folder} cannot be read: {why.rstrip('.')[:300]}.",
        "Restore it from a copy, or trace again.",
    )


def trace_title(folder: Path) -> str:
    """A trace in a line: how many calls in how long. Reads two columns of it only."""
    with reading(folder):
        return _title(folder)


def _title(folder: Path) -> str:
    calls, elapsed_ns, processes = 0, 0, 0
    ranks = set()
    for process in folder.glob("rank*-*"):
        record = read_process(process)
        sections = [number for number, words in record.callables.items() if words.kind == SECTION]
        for part in _parts(process, ["callable", "flags"]):
            for batch in part.to_batches():
                own = (numbers_of(batch.column("flags")) & OWN) != 0
                called = numbers_of(batch.column("callable"))
                calls += int(np.count_nonzero(~own & ~np.isin(called, sections)))
        for row in record.end.get("totals", ()):
            calls += 0 if row[4] & OWN or row[0] in sections else row[5]
        elapsed_ns = max(elapsed_ns, record.end.get("elapsed_ns", 0))
        processes += 1
        ranks.add(record.rank)
    took = f" in {span(elapsed_ns)}" if elapsed_ns else ""
    many = f" of {len(ranks)} ranks" if len(ranks) > 1 else f" of {processes} processes"
    return f"{counted(calls, 'call')}{took}{many if processes > 1 else ''}"


def identity_of(folder: Path) -> dict[str, Any]:
    """What a trace's `trace.json` says, looked at; an error if it is none, damaged, or of a later format."""
    with reading(folder):
        identity = read_json(folder / "trace.json")
        if identity is None:
            raise TraceError(
                "no-trace-here",
                f"{folder} is not the folder of a trace.",
                "Give the folder that save() or keep= named.",
            )
        if not isinstance(identity, dict) or type(identity.get("format")) is not int:
            raise ValueError("trace.json names no format")
        if identity["format"] > FORMAT:
            raise TraceError(
                "trace-too-new",
                f"The trace in {folder} has format {identity['format']}; this version reads up to {FORMAT}.",
                "Update luxmeter.",
            )
        check_identity(identity)
    return identity


def _rank_and_pid(process: Path) -> tuple[int, int]:
    rank, pid = process.name.removeprefix("rank").split("-")
    return int(rank), int(pid.partition(".")[0])


@dataclass(frozen=True)
class _Reading:
    """Reads one part of a process's events, with common ids. `rows`: as many as there were at first, while it grows."""

    place: Path
    process: int
    callables: Numbers
    signatures: Numbers
    sites: Numbers
    rows: int | None = None
    words: Path | None = None  # of a process that ended, which told all names: an unknown one was lost

    def __call__(self) -> Columns:
        part = events_of_part(self.place)
        if part is None:
            return {name: np.empty(0, EVENT_DTYPE[name]) for name in EVENT_SCHEMA.names} | {
                "process": np.empty(0, np.uint32)
            }
        part = part.slice(0, self.rows)
        (batch,) = part.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=part.schema)]
        columns = {name: numbers_of(batch.column(name)) for name in batch.schema.names}
        known = dict.fromkeys(("callable", "section", "module"), self.callables)
        known |= {"signature": self.signatures, "site": self.sites}
        columns.setdefault("site", np.zeros(part.num_rows, np.uint32))  # not in format 1
        nameless = 0
        for name, table in known.items():
            found = _map(table, columns[name])
            nameless = max(nameless, int(np.count_nonzero(columns[name])) - int(np.count_nonzero(found)))
            columns[name] = found
        if nameless and self.words is not None:
            _tell_nameless(self.words, nameless)
        columns["process"] = np.full(part.num_rows, self.process, dtype=np.uint32)
        return columns


@dataclass(frozen=True)
class _OnDevice:
    """Adds to the events of a process what they took on its accelerators (device_time.COLUMNS)."""

    rows: DeviceRows
    elsewhere: Numbers  # of each callable: whether torch's devices are not its own

    def read(self, read: Callable[[], Columns]) -> Columns:
        return self.to(read())

    def to(self, columns: Columns) -> Columns:
        found = self.rows.of(columns["thread"], columns["start_ns"])
        for column in found.values():
            column[self.elsewhere[columns["callable"]]] = -1
        return columns | found


class _Merger:
    def __init__(self) -> None:
        self._on_device: list[DeviceRows] = []
        self._callables: dict[CallableNames, int] = {CallableNames(OWN_NAME): 0}
        self._signatures: list[SignatureNames | None] = [None]
        self._signature_ids: dict[Any, int] = {}
        self._processes: list[ProcessRecord] = []
        self._sites: dict[SiteNames | None, int] = {None: 0}
        self._parts: list[Part] = []
        self._held: list[Columns] | None = []  # None: they are too many
        self._work: list[Columns] = []
        self._rows = self._calls = 0
        self._first_ns: int | None = None
        self._totals: list[TotalsRow] = []

    def add(self, process: Path, running: dict[str, Any] | None) -> None:
        record = read_process(process, running)
        number = len(self._processes)
        self._processes.append(record)
        callables = _lookup({old: self._callable(words) for old, words in record.callables.items()})
        signatures = _lookup(
            {old: self._signature(words, callables) for old, words in record.signatures.items()}
        )
        sites = _lookup({old: self._sites.setdefault(w, len(self._sites)) for old, w in record.sites.items()})
        self._on_device.append(DeviceRows(process))
        words = process / "words.jsonl" if record.has_ended else None
        for place in parts_of(process):
            read = _Reading(place, number, callables, signatures, sites, words=words)
            columns = read()
            rows, start = len(columns["flags"]), columns["start_ns"]
            if rows:
                last_ns = int((start + columns["duration_ns"]).max())
                part = Part(replace(read, rows=rows), number, rows, int(start.min()), last_ns)
                self._add(part, columns)
        for row in record.end.get("totals", ()):
            ids = [_map(callables, np.array([row[i]]))[0] for i in (0, 2)]
            signature = _map(signatures, np.array([row[1]]))[0]
            histogram = np.array(row[-1], dtype=np.int64)
            site = int(_map(sites, np.array([row[-2] if len(row) > 12 else 0]))[0])  # not in format 1
            thread, flags, n, total, child, wait, low, high = row[3:11]
            if words is not None and bool(row[0]) > bool(ids[0]):
                _tell_nameless(words, n)
            self._totals.append(
                TotalsRow(number, int(ids[0]), int(signature), int(ids[1]), thread, flags, n, total, child, wait, low,
                          high, histogram, site)
            )  # fmt: skip

    def _add(self, part: Part, columns: Columns) -> None:
        mine = (columns["flags"] & OWN) == 0
        work = np.flatnonzero(~mine)
        self._parts.append(part)
        self._work.append({name: columns[name][work] for name in OWN_WORK})
        starts = columns["start_ns"][mine]
        if len(starts):
            first = int(starts.min())
            self._first_ns = first if self._first_ns is None else min(first, self._first_ns)
        is_call = np.array([words.kind != SECTION for words in self._callables])
        self._calls += int(np.count_nonzero(is_call[columns["callable"]] & mine))
        self._rows += part.rows
        if self._rows > AT_ONCE:
            self._held = None
        elif self._held is not None:
            self._held.append(columns)

    def done(self) -> Recording:
        names: tuple[str, ...] = (*EVENT_SCHEMA.names, "process")
        if any(map(len, self._on_device)):
            names += DEVICE_COLUMNS
            self._add_device_columns()
        work = OwnWork.of(
            {name: np.concatenate([found[name] for found in self._work]) if self._work else np.empty(0, np.int64)
             for name in OWN_WORK}
        )  # fmt: skip
        events: Mapping[str, Numbers]
        if self._held is None:
            events = Events(self._parts, work, (*names, "own_ns"))
        else:
            columns = {}
            for name in names:
                kind = (
                    EVENT_DTYPE[name]
                    if name in EVENT_SCHEMA.names
                    else np.dtype("<i8" if name in DEVICE_COLUMNS else "<u4")
                )
                parts = [part[name] for part in self._held]
                columns[name] = np.concatenate(parts) if parts else np.empty(0, kind)
            work.take_off(columns)
            events = columns
        made = Recording(
            events,
            tuple(self._totals),
            tuple(self._callables),
            tuple(self._signatures),
            tuple(self._processes),
            tuple(self._sites),
        )
        if not self._totals:  # what is known already
            made.__dict__.update(calls=self._calls, first_ns=self._first_ns or 0)
        return made

    def _add_device_columns(self) -> None:
        elsewhere = np.array([words.framework == "mindspore" for words in self._callables], dtype=bool)
        added = [_OnDevice(rows, elsewhere) for rows in self._on_device]
        if self._held is not None:
            self._held = [added[p.process].to(c) for p, c in zip(self._parts, self._held, strict=True)]
        self._parts = [replace(p, read=functools.partial(added[p.process].read, p.read)) for p in self._parts]

    def _callable(self, words: CallableNames) -> int:
        return self._callables.setdefault(words, len(self._callables))

    def _signature(self, words: SignatureNames, callables: Numbers) -> int:
        of = int(_map(callables, np.array([words.callable]))[0])
        key = (of, words.signature, words.general)
        found = self._signature_ids.get(key)
        if found is None:
            found = self._signature_ids[key] = len(self._signatures)
            self._signatures.append(replace(words, callable=of))
        elif words.float_ranges:
            known = self._signatures[found]
            assert known is not None
            self._signatures[found] = replace(
                known, float_ranges=_wider(known.float_ranges, words.float_ranges)
            )
        return found


def read_process(process: Path, running: dict[str, Any] | None = None) -> ProcessRecord:
    """What one process told about itself."""
    rank, pid = _rank_and_pid(process)
    # Before the names: where it is there, all of them were told.
    end = read_json(process / "end.json", default=None)
    damaged: list[str] = []
    callables, signatures, threads, sites = read_lines(lines_of(process), damaged)
    if damaged:
        tell_loss(process / "words.jsonl", f"{len(damaged)} of its lines")
    has_ended = end is not None
    if end is not None:
        check_end(end)
    else:
        end = running if running is not None and pid == os.getpid() else {}
    for number, pairs in end.get("float_ranges", ()):
        if number in signatures:
            ranges = tuple((low, high) for low, high in pairs)
            signatures[number] = replace(signatures[number], float_ranges=ranges)
    return ProcessRecord(
        end.get("rank", rank), pid, callables, signatures, threads, end, sites, has_ended=has_ended
    )


def lines_of(process: Path) -> list[str]:
    """The whole lines of words.jsonl."""
    try:
        told = bytes_of(process / "words.jsonl").decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return []
    return told.split("\n")[:-1]  # behind the last newline: torn


_IN_EVERY_FORMAT = {*EVENT_SCHEMA.names} - {"site"}  # which format 1 has not


def events_of_part(part: Path, columns: list[str] | None = None) -> pa.Table | None:
    """One part of a process's events, of one thread in the order of their ends."""
    table = _read_part(part, columns)
    if table is None:
        return None
    if columns is None and (missing := _IN_EVERY_FORMAT.difference(table.column_names)):
        raise ValueError(f"events without {', '.join(sorted(missing))}")
    schema = pa.schema(
        [EVENT_SCHEMA.field(name) for name in table.column_names if name in EVENT_SCHEMA.names]
    )
    found = table.select(schema.names)
    return found if found.schema.equals(schema) else found.cast(schema)


def _read_part(part: Path, columns: list[str] | None) -> pa.Table | None:
    """One part, from the file that it was folded into, or from its segments; packed, or as columns (in formats 1 and 2)."""
    folded = part.with_suffix(".parquet")
    table = None if folded.exists() else read_segments(part)
    if table is None and folded.exists():  # or it was folded meanwhile
        table = read_sealed(folded)
    if table is not None and packed.COLUMN in table.column_names:
        table = packed.to_columns(table)
    return table.select(columns) if table is not None and columns is not None else table


def parts_of(process: Path) -> list[Path]:
    """The parts of a process's events, in their order."""
    return sorted({path.with_suffix("") for path in (process / "events").glob("[0-9]*")})


def _parts(process: Path, columns: list[str] | None = None) -> Iterable[pa.Table]:
    found = (events_of_part(part, columns) for part in parts_of(process))
    return (table for table in found if table is not None)


def set_own_work_apart(columns: Columns) -> None:
    """Take the recorder's own work, which has events of its own, off the events around it."""
    OwnWork.of_all(columns).take_off(columns)


def _tell_nameless(words: Path, calls: int) -> None:
    tell_loss(words, f"the names of {counted(calls, 'call')}")


def nameless_in(part: Path, record: ProcessRecord) -> int:
    """How many events of a part have a name that is not there."""
    table = events_of_part(part)
    known = {"callable": record.callables, "signature": record.signatures, "site": record.sites}
    missing = 0
    for name, told in known.items():
        if table is not None and name in table.column_names:
            ids = table.column(name).to_numpy()
            missing = max(missing, int(np.count_nonzero(ids)) - int(np.isin(ids[ids != 0], list(told)).sum()))
    return missing


def _lookup(known: dict[int, int]) -> Numbers:
    table = np.zeros(max(known, default=0) + 1, dtype=np.uint32)
    for old, new in known.items():
        table[old] = new
    return table


def _map(table: Numbers, ids: Numbers) -> Numbers:
    """Old ids to new ones; an id nobody explained (killed before it was told) becomes 0."""
    if len(ids) and ids.max() >= len(table):
        ids = np.where(ids < len(table), ids, 0)
    found: Numbers = table[ids]
    return found


def _wider(
    a: tuple[tuple[float, float], ...], b: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=False)) or b
