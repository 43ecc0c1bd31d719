"""A trace's folder -> one recording: the processes' numbers brought to common ids."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from luxmeter.calls.checked import check_end
from luxmeter.calls.describe import OWN_NAME, read_lines
from luxmeter.calls.device_time import COLUMNS as DEVICE_COLUMNS
from luxmeter.calls.device_time import DeviceRows
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
)
from luxmeter.calls.sites import short_names
from luxmeter.errors import LuxmeterError, TraceError
from luxmeter.files import read_json
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
    """

    events: dict[str, Numbers]
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
        return len(self.events["callable"])

    @property
    def calls(self) -> int:
        """Number of calls of the program: what every table counts. A section is no call."""
        kinds = np.array([words.kind for words in self.callables])
        if self.totals:
            return sum(t.n for t in self.totals if not t.flags & OWN and kinds[t.callable] != SECTION)
        return int(np.count_nonzero(self.of_program() & (kinds[self.events["callable"]] != SECTION)))

    @property
    def ranks(self) -> list[int]:
        """The ranks that it has calls of."""
        return sorted({process.rank for process in self.processes})

    def of_rank(self, rank: int) -> Recording:
        """As if only the processes of this rank had been recorded."""
        its = [i for i, process in enumerate(self.processes) if process.rank == rank]
        place = np.full(len(self.processes), -1, dtype=np.int64)
        place[its] = np.arange(len(its))
        keep = place[self.events["process"]] >= 0
        events = {name: column[keep] for name, column in self.events.items()}
        events["process"] = place[events["process"]].astype(self.events["process"].dtype)
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

    def of_program(self) -> Numbers:
        """Which events are the program's: all but the recorder's own work."""
        found: Numbers = (self.events["flags"] & OWN) == 0
        return found


def read_recording(folders: Sequence[Path], *, running: dict[str, Any] | None = None) -> Recording:
    """Read one trace, or several as one. `running` stands in for the end of this process's part while it runs."""
    merger = _Merger()
    for folder in folders:
        with _reading(folder):
            _check(folder)
            for process in sorted(folder.glob("rank*-*"), key=_rank_and_pid):
                merger.add(process, running)
    return merger.done()


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
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
    with _reading(folder):
        return _title(folder)


def _title(folder: Path) -> str:
    calls, elapsed_ns, processes = 0, 0, 0
    ranks = set()
    for process in folder.glob("rank*-*"):
        record = read_process(process)
        sections = [number for number, words in record.callables.items() if words.kind == SECTION]
        for part in _parts(process, ["callable", "flags"]):
            own = (part.column("flags").to_numpy() & OWN) != 0
            calls += int(np.count_nonzero(~own & ~np.isin(part.column("callable").to_numpy(), sections)))
        for row in record.end.get("totals", ()):
            calls += 0 if row[4] & OWN or row[0] in sections else row[5]
        elapsed_ns = max(elapsed_ns, record.end.get("elapsed_ns", 0))
        processes += 1
        ranks.add(record.rank)
    took = f" in {elapsed_ns / 1e9:.3f} s" if elapsed_ns else ""
    many = f" of {len(ranks)} ranks" if len(ranks) > 1 else f" of {processes} processes"
    return f"{calls:,} calls{took}{many if processes > 1 else ''}"


def _check(folder: Path) -> None:
    identity = read_json(folder / "trace.json")
    if identity is None:
        raise TraceError(
            "no-trace-here",
            f"{folder} is not the folder of a trace.",
            "Give the folder that save() or keep= named.",
        )
    if identity["format"] > FORMAT:
        raise TraceError(
            "trace-too-new",
            f"The trace in {folder} has format {identity['format']}; this version reads up to {FORMAT}.",
            "Update luxmeter.",
        )


def _rank_and_pid(process: Path) -> tuple[int, int]:
    rank, pid = process.name.removeprefix("rank").split("-")
    return int(rank), int(pid.partition(".")[0])


class _Merger:
    def __init__(self) -> None:
        self._callables: dict[CallableNames, int] = {CallableNames(OWN_NAME): 0}
        self._signatures: list[SignatureNames | None] = [None]
        self._signature_ids: dict[Any, int] = {}
        self._processes: list[ProcessRecord] = []
        self._sites: dict[SiteNames | None, int] = {None: 0}
        self._events: list[dict[str, Numbers]] = []
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
        on_device = DeviceRows(process)
        for part in _parts(process):
            columns = {name: part.column(name).to_numpy() for name in part.column_names}
            for name in ("callable", "section", "module"):
                columns[name] = _map(callables, columns[name])
            columns["signature"] = _map(signatures, columns["signature"])
            written = columns.get("site")  # not in format 1
            columns["site"] = np.zeros(part.num_rows, np.uint32) if written is None else _map(sites, written)
            columns["process"] = np.full(part.num_rows, number, dtype=np.uint32)
            if len(on_device):
                columns |= on_device.of(columns["thread"], columns["start_ns"])
            self._events.append(columns)
        for row in record.end.get("totals", ()):
            ids = [_map(callables, np.array([row[i]]))[0] for i in (0, 2)]
            signature = _map(signatures, np.array([row[1]]))[0]
            histogram = np.array(row[-1], dtype=np.int64)
            site = int(_map(sites, np.array([row[-2] if len(row) > 12 else 0]))[0])  # not in format 1
            thread, flags, n, total, child, wait, low, high = row[3:11]
            self._totals.append(
                TotalsRow(number, int(ids[0]), int(signature), int(ids[1]), thread, flags, n, total, child, wait, low,
                          high, histogram, site)
            )  # fmt: skip

    def done(self) -> Recording:
        columns = {}
        for name in (*EVENT_SCHEMA.names, "process"):
            kind = EVENT_DTYPE[name] if name in EVENT_SCHEMA.names else np.dtype("<u4")
            parts = [part[name] for part in self._events]
            columns[name] = np.concatenate(parts) if parts else np.empty(0, kind)
        if any(DEVICE_COLUMNS[0] in part for part in self._events):  # of a process at least
            for name in DEVICE_COLUMNS:
                parts = [
                    part.get(name, np.full(len(part["process"]), -1, dtype=np.int64)) for part in self._events
                ]
                columns[name] = np.concatenate(parts)
                columns[name][
                    self._is_of("mindspore", columns["callable"])
                ] = -1  # torch's device is not theirs
        set_own_work_apart(columns)
        return Recording(
            columns,
            tuple(self._totals),
            tuple(self._callables),
            tuple(self._signatures),
            tuple(self._processes),
            tuple(self._sites),
        )

    def _is_of(self, framework: str, callables: Numbers) -> Numbers:
        found: Numbers = np.array([words.framework == framework for words in self._callables], dtype=bool)[
            callables
        ]
        return found

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
    try:
        told = (process / "words.jsonl").read_bytes().decode("utf-8", "surrogateescape")
        lines = told.split("\n")
    except FileNotFoundError:
        lines = [""]
    damaged: list[str] = []
    callables, signatures, threads, sites = read_lines(lines[:-1], damaged)  # behind the last newline: torn
    if damaged:
        tell_loss(process / "words.jsonl", f"{len(damaged)} of its lines")
    end = read_json(process / "end.json", default=None)
    if end is not None:
        check_end(end)
    else:
        end = running if running is not None and pid == os.getpid() else {}
    for number, pairs in end.get("float_ranges", ()):
        if number in signatures:
            ranges = tuple((low, high) for low, high in pairs)
            signatures[number] = replace(signatures[number], float_ranges=ranges)
    return ProcessRecord(end.get("rank", rank), pid, callables, signatures, threads, end, sites)


def _parts(process: Path, columns: list[str] | None = None) -> Iterable[pa.Table]:
    for part in sorted({path.with_suffix("") for path in (process / "events").glob("[0-9]*")}):
        compact = part.with_suffix(".parquet")
        table = read_sealed(compact, columns) if compact.exists() else read_segments(part, columns=columns)
        if table is not None:
            known = [EVENT_SCHEMA.field(name) for name in table.column_names if name in EVENT_SCHEMA.names]
            yield table.select([field.name for field in known]).cast(pa.schema(known))


def set_own_work_apart(columns: dict[str, Numbers]) -> None:
    """Take the recorder's own work, which has events of its own, off the events around it."""
    start, duration = columns["start_ns"], columns["duration_ns"]
    own = columns["own_ns"] = np.zeros(len(start), dtype=np.int64)
    works = (columns["flags"] & OWN) != 0
    lane = columns["process"].astype(np.int64) << 32 | columns["thread"].astype(np.int64)
    for number in np.unique(lane[works]):
        here = np.flatnonzero((lane == number) & ~works)
        work = np.flatnonzero((lane == number) & works)  # one after the other: they do not overlap
        work = work[np.argsort(start[work], kind="stable")]
        until = np.concatenate([[0], np.cumsum(duration[work])])
        first, last = (np.searchsorted(start[work], at) for at in (start[here], start[here] + duration[here]))
        own[here] = until[last] - until[first]
    columns["duration_ns"] = duration - own
    columns["child_ns"] = columns["child_ns"] - own


def _lookup(known: dict[int, int]) -> Numbers:
    table = np.zeros(max(known, default=0) + 1, dtype=np.uint32)
    for old, new in known.items():
        table[old] = new
    return table


def _map(table: Numbers, ids: Numbers) -> Numbers:
    """Old ids to new ones; an id nobody explained (killed before it was told) becomes 0."""
    safe = np.where(ids < len(table), ids, 0)
    found: Numbers = table[safe]
    return found


def _wider(
    a: tuple[tuple[float, float], ...], b: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=False)) or b
