"""The index kept true: read what changed since the last look, then ask.

A damaged index is set aside and made anew; a lab that cannot be written gets an index in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy.exc

from luxmeter.errors import LuxmeterError, StoreError, warn_once
from luxmeter.settings import globs
from luxmeter.store import checked, layout
from luxmeter.store.index import Index, IndexChange, sqlite_url
from luxmeter.store.journal import host_name, read_tail
from luxmeter.store.liveness import Process
from luxmeter.store.query import Expression, Field, parse_field, parse_filter
from luxmeter.store.rows import Entry, RunHeads, RunRow
from luxmeter.store.run import Run
from luxmeter.store.segments import check as check_table

T = TypeVar("T")


class Catalog:
    """Lists and finds the runs of one lab."""

    def __init__(self, lab_folder: Path, lab_id: str) -> None:
        self._folder = lab_folder
        self._lab_id = lab_id
        self._index: Index | None = None

    def select(
        self,
        where: str | Expression | None,
        *,
        sort: str = "-created",
        limit: int | None = None,
        archived: bool | None = False,
    ) -> list[RunRow]:
        """See `Lab.runs`."""
        expression = parse_filter(where) if isinstance(where, str) else where
        fields = _sort_fields(sort)
        return self._ask(lambda index: index.select(expression, fields, limit, archived=archived))

    def select_heads(
        self,
        where: str | Expression | None,
        *,
        sort: str = "-created",
        limit: int | None = None,
        archived: bool | None = False,
    ) -> RunHeads:
        """As `select`, of each run only its head."""
        expression = parse_filter(where) if isinstance(where, str) else where
        fields = _sort_fields(sort)
        return self._ask(lambda index: index.select_heads(expression, fields, limit, archived=archived))

    def rows(self, ids: Sequence[str]) -> dict[str, RunRow]:
        """The rows of these runs, by id; those that are gone are left out."""
        return {row.id: row for row in self._ask(lambda index: index.rows(ids))}

    def find(self, reference: str) -> list[tuple[str, str]]:
        """See `Index.find`."""
        return self._ask(lambda index: index.find(reference))

    def newest(self, number: int) -> str | None:
        """See `Index.newest`."""
        return self._ask(lambda index: index.newest(number))

    def rebuild(self) -> int:
        """Throw the index away and make it anew from the directories."""
        self.close()
        if self._url() is None:
            for suffix in ("", "-wal", "-shm"):
                self._file().with_name(self._file().name + suffix).unlink(missing_ok=True)
        index = self._open()
        with index.change() as change:
            change.drop(index.known()[0])
            change.set_progress({})
        return len(self.select("", archived=None))

    def close(self) -> None:
        """Let go of the database."""
        if self._index is not None:
            self._index.close()
            self._index = None

    # -- inside ---------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Index], T]) -> T:
        try:
            index = self._open()
            self._refresh(index)
            return question(index)
        except sqlalchemy.exc.OperationalError as error:
            if self._url() is not None:
                raise StoreError(
                    "index-unreachable",
                    f"The index database does not answer: {str(error.orig).strip()}.",
                    "Check the setting store.url, or unset it to use a file in the lab.",
                ) from error
            return self._ask_in_memory(question, error)
        except sqlalchemy.exc.DatabaseError as error:
            if self._url() is not None:
                raise
            self._replace_damaged(error)
            index = self._open()
            self._refresh(index)
            return question(index)

    def _ask_in_memory(self, question: Callable[[Index], T], error: Exception) -> T:
        warn_once(
            "index-not-writable",
            f"The index of {self._folder} cannot be written: {str(getattr(error, 'orig', error)).strip()}.",
            "Listing works from the directories, but slowly: give rights to the lab's index folder.",
            key=str(self._folder),
        )
        self.close()
        self._index = Index("sqlite://", self._lab_id)
        self._refresh(self._index)
        return question(self._index)

    def _open(self) -> Index:
        if self._index is None:
            url = self._url()
            if url is None:
                with contextlib.suppress(OSError):
                    self._file().parent.mkdir(exist_ok=True)
            self._index = Index(url or sqlite_url(self._file()), self._lab_id)
        return self._index

    def _url(self) -> str | None:
        url = globs["store.url"]
        if url is None:
            return None
        # The driver that is an extra of ours, unless another one is named.
        return str(url).replace("postgresql://", "postgresql+psycopg://", 1)

    def _file(self) -> Path:
        return self._folder / layout.INDEX / f"{host_name()}.sqlite"

    def _replace_damaged(self, error: Exception) -> None:
        self.close()
        aside = self._file().with_name(f"{self._file().name}.damaged-{time.time_ns()}")
        with contextlib.suppress(OSError):
            os.replace(self._file(), aside)
        for suffix in ("-wal", "-shm"):
            self._file().with_name(self._file().name + suffix).unlink(missing_ok=True)
        warn_once(
            "index-damaged",
            f"The index of {self._folder} was damaged ({str(getattr(error, 'orig', error)).strip()}).",
            f"It was made anew from the runs' directories; the old one is {aside.name}.",
            key=str(aside),
        )

    def _refresh(self, index: Index) -> None:
        """Take in what changed since the last look."""
        runs_folder = self._folder / layout.RUNS
        before, recheck = index.standing()
        changed, offsets = read_tail(self._folder, before.get("journal", {}))
        changed |= recheck
        stamp = runs_folder.stat().st_mtime_ns if runs_folder.exists() else 0
        gone: set[str] = set()
        # The folder's own time says whether runs came or went without the journal (copied or deleted by hand).
        # Within two seconds the clock of the file system is too coarse to trust it.
        settled = time.time_ns() - stamp > 2_000_000_000
        if before.get("stamp") != stamp or not before.get("settled"):
            known, _ = index.known()
            present = {entry.name for entry in os.scandir(runs_folder)} if stamp else set()
            present = {name for name in present if not name.startswith(".")}
            gone = known - present
            changed |= present - known
        after = {"journal": offsets, "stamp": stamp, "settled": settled}
        if not changed and not gone and after == before:
            return
        with index.change() as change:
            self._take_in(change, changed, gone)
            change.set_progress(after)

    def _take_in(self, change: IndexChange, changed: Iterable[str], gone: set[str]) -> None:
        entries = []
        for name in sorted(changed):
            folder = self._folder / layout.RUNS / name
            entry = entry_of(folder, self._folder) if layout.is_named("run", name) else None
            if entry is not None:
                entries.append(entry)
                continue
            gone.add(name)
            if (folder / layout.IDENTITY).exists():
                warn_once(
                    "run-unreadable",
                    f"{name!r} in {folder.parent} is left out of lists: it cannot be a run's id.",
                    "Give the folder the id that its run.json names; the other runs are not affected.",
                    key=name,
                )
        change.drop(gone)
        change.put(entries)


def _sort_fields(sort: str) -> list[tuple[Field, bool]]:
    """`-metric.acc, name` -> each field with whether it falls."""
    parts = [part.strip() for part in sort.split(",") if part.strip()]
    return [(parse_field(part.lstrip("-").strip()), part.startswith("-")) for part in parts]


def row_of(run: Run) -> RunRow:
    """What lists show of a run, read from its directory."""
    return _entry(run).row


def entry_of(folder: Path, lab_folder: Path) -> Entry | None:
    """What the index takes in of a run's folder: one whose files cannot be read is `damaged`; None if it is no run."""
    try:
        return _entry(Run(folder, lab_folder))
    except Exception as error:  # noqa: BLE001  (whatever bytes do: one run's must not hide the others)
        if not checked.is_begun(folder):
            return None  # removed meanwhile, or never begun
        return _damaged_entry(folder, error)


def _damaged_entry(folder: Path, error: Exception) -> Entry:
    """The row that says why, with as much as can be read: it is looked at again next time, when it may be mended."""
    why = error.what if isinstance(error, LuxmeterError) else f"{type(error).__name__}: {error}"
    name, created_ns = "", folder.stat().st_mtime_ns
    marks: dict[str, Any] = {"archived": False, "tags": []}
    with contextlib.suppress(LuxmeterError):
        identity = checked.read_identity(folder)
        name, created_ns = identity["name"], identity["created_ns"]
    with contextlib.suppress(LuxmeterError):
        marks = checked.read_marks(folder / layout.MARKS)
    row = RunRow(
        id=folder.name,
        name=name,
        state="damaged",
        created_ns=created_ns,
        ended_ns=None,
        archived=marks["archived"],
        note=why.replace(f"{folder}{os.sep}", "")[:500],
        host="",
        params_json="{}",
        metrics_json="{}",
        tags_json=json.dumps(marks["tags"], ensure_ascii=False),
    )
    return Entry(row, {}, {}, recheck=True)


def _entry(run: Run) -> Entry:
    for table in run.tables():
        check_table(run.folder / layout.TABLES / table)
    _ = run.environment
    params = run.flat_params
    row = run.row_with(params)
    # On this machine a lost process stays lost; elsewhere it may only have been silent.
    elsewhere = row.state == "lost" and run.identity["process"]["machine"] != Process.here().machine
    return Entry(row, params, row.metrics, recheck=row.state == "running" or elsewhere)
