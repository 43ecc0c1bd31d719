"""The index kept true: read what changed since the last look, then ask.

A damaged index is set aside and made anew; a lab that cannot be written gets an index in memory. One on a server
that went away and came back is asked again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from luxmeter.errors import LuxmeterError, ServerError, StoreError, warn_once
from luxmeter.files import read_json
from luxmeter.settings import LAB_FILE, without_password
from luxmeter.store import checked, layout
from luxmeter.store.database import server_url, sqlite_url
from luxmeter.store.growing_summary import GrowingSummary
from luxmeter.store.index import Index, IndexChange
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
        self._server: str | None = None  # where the index is, if not in a file
        self._growing: dict[
            str, GrowingSummary
        ] = {}  # of runs that go on: they are looked at again and again

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
        if server_url(self._folder) is not None:  # in one transaction: others never see half of it
            return self._ask(lambda index: len(index.known()[0]), anew=True)
        for suffix in ("", "-wal", "-shm"):
            self._file().with_name(self._file().name + suffix).unlink(missing_ok=True)
        index = self._open()
        with index.change() as change:
            change.drop(index.known()[0])
            change.set_progress({})
        return len(self.select("", archived=None))

    def answering(self) -> str:
        """What answers for the index: `PostgreSQL 18.4`."""
        return self._ask(lambda index: index.database.version())

    def close(self) -> None:
        """Let go of the database."""
        if self._index is not None:
            self._index.close()
            self._index = None

    # -- inside ---------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Index], T], *, anew: bool = False) -> T:
        try:
            index = self._open()
            self._refresh(index, anew=anew)
            return question(index)
        except ServerError:
            if self._index is None:
                raise
            return self._ask_once_more(question, anew)
        except sqlite3.OperationalError as error:
            return self._ask_in_memory(question, error)
        except (sqlite3.DatabaseError, UnicodeDecodeError, json.JSONDecodeError) as error:
            self._replace_damaged(error)
            index = self._open()
            self._refresh(index)
            return question(index)

    def _ask_once_more(self, question: Callable[[Index], T], anew: bool) -> T:
        """Once more on new connections, where it was open: it was started anew, or another version made other tables."""
        self.close()
        try:
            index = self._open()
            self._refresh(index, anew=anew)
            return question(index)
        except ServerError:
            self.close()
            raise

    def _ask_in_memory(self, question: Callable[[Index], T], error: Exception) -> T:
        warn_once(
            "index-not-writable",
            f"The index of {self._folder} cannot be written: {error}.",
            "Listing works from the directories, but slowly: give rights to the lab's index folder.",
            key=str(self._folder),
        )
        self.close()
        self._index = Index("sqlite://", self._lab_id)
        self._refresh(self._index)
        return question(self._index)

    def _open(self) -> Index:
        if self._index is None:
            self._server = server_url(self._folder)
            if self._server is None:
                with contextlib.suppress(OSError):
                    self._file().parent.mkdir(exist_ok=True)
            index = Index(self._server or sqlite_url(self._file()), self._lab_id)
            try:
                if self._server is not None:
                    self._check_folder(index)
            except BaseException:
                index.close()
                raise
            self._index = index
        return self._index

    def _check_folder(self, index: Index) -> None:
        """On a server, runs are told apart by their lab's id: two folders with one id would drop each other's."""
        here, before = str(self._folder), index.folder_on(host_name())
        if before == here:
            return
        if before is not None and self._is_copied_at(Path(before)):
            raise StoreError(
                "lab-copied",
                f"{here} and {before} are copies of one lab; {index.database.shown} cannot keep their runs apart.",
                f"Remove one, or make this a lab of its own: remove its {LAB_FILE}, then run luxmeter init there.",
            )
        with index.change() as change:
            change.set_folder(host_name(), here)

    def _is_copied_at(self, other: Path) -> bool:
        try:
            identity = read_json(other / LAB_FILE)
            same_id = isinstance(identity, dict) and identity.get("id") == self._lab_id
            return same_id and not (other / LAB_FILE).samefile(self._folder / LAB_FILE)
        except (OSError, LuxmeterError):
            return False

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
            f"The index of {self._folder} was damaged ({error}).",
            f"It was made anew from the runs' directories; the old one is {aside.name}.",
            key=str(aside),
        )

    def _refresh(self, index: Index, *, anew: bool = False) -> None:
        """Take in what changed since the last look; `anew`, everything."""
        runs_folder = self._folder / layout.RUNS
        before, recheck = index.standing()
        if not before and self._server is not None and not anew:
            self._say_moved()
        if anew:
            before = {}
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
            # One by one as well: what a network share lists may be some seconds old.
            gone = {name for name in known - present if not (runs_folder / name).exists()}
            changed |= (known | present) - gone if anew else (present - known) | (known - present - gone)
        after = {"journal": offsets, "stamp": stamp, "settled": settled}
        if not changed and not gone and after == before:
            return
        with index.change() as change:
            self._take_in(change, changed, gone)
            change.set_progress(after)

    def _say_moved(self) -> None:
        if any((self._folder / layout.INDEX).glob("*.sqlite")):
            warn_once(
                "index-moved",
                f"The index of {self._folder} is in {without_password(self._server or '')} from now on; its runs are entered there.",
                "The SQLite files in its folder index/ are used no more: remove them when store.url is set on every machine.",
                key=str(self._folder),
            )

    def _take_in(self, change: IndexChange, changed: Iterable[str], gone: set[str]) -> None:
        entries = []
        for name in sorted(changed):
            folder = self._folder / layout.RUNS / name
            entry = entry_of(folder, self._folder, self._growing) if layout.is_named("run", name) else None
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


def entry_of(
    folder: Path, lab_folder: Path, growing: dict[str, GrowingSummary] | None = None
) -> Entry | None:
    """What the index takes in of a run's folder: one whose files cannot be read is `damaged`; None if it is no run.

    `growing`: what is known of runs that go on, so that only what they logged since is read.
    """
    try:
        return _entry(Run(folder, lab_folder), growing)
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


def _entry(run: Run, growing: dict[str, GrowingSummary] | None = None) -> Entry:
    for table in run.tables():
        check_table(run.folder / layout.TABLES / table)
    _ = run.environment
    params = run.flat_params
    metrics = None
    if growing is not None and run.state == "running":
        metrics = growing.setdefault(run.id, GrowingSummary(run.folder)).record()
    elif growing is not None:
        growing.pop(run.id, None)
    row = run.row_with(params, metrics)
    # On this machine a lost process stays lost; elsewhere it may only have been silent.
    elsewhere = row.state == "lost" and run.identity["process"]["machine"] != Process.here().machine
    return Entry(row, params, row.metrics, recheck=row.state == "running" or elsewhere)
