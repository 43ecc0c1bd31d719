"""A lab: the folder that holds runs, and what can be done with them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luxmeter.described import described
from luxmeter.errors import StoreError, UsageError
from luxmeter.files import read_json, write_file, write_json
from luxmeter.settings import LAB_FILE, find_lab
from luxmeter.store import layout
from luxmeter.store.blobs import BlobPool
from luxmeter.store.checked import is_begun, is_half_made, read_identity
from luxmeter.store.finished import FinishedRun, put_finished
from luxmeter.store.journal import announce
from luxmeter.store.layout import STAGING
from luxmeter.store.liveness import Process
from luxmeter.store.origin import mark_of
from luxmeter.store.rank_writer import rank_folders
from luxmeter.store.results import Result, traces_in
from luxmeter.store.rows import RunRow
from luxmeter.store.run import Run
from luxmeter.store.writer import RunWriter, compact_run, identity_of

if TYPE_CHECKING:
    from luxmeter.store.catalog import Catalog
    from luxmeter.store.query import Expression


class Lab:
    """The runs of one folder. `Lab.open()` finds the lab as git finds its own, and makes it if need be."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self.id = str(identity["id"])
        self.pool = BlobPool(folder)

    @cached_property
    def catalog(self) -> Catalog:
        """The index, kept true. Made when first asked: a process that only trains never loads the database's code."""
        from luxmeter.store.catalog import Catalog

        return Catalog(self.folder, self.id)

    @staticmethod
    def open(folder: str | Path | None = None, *, create: bool = True) -> Lab:
        """The lab in `folder`, or the one that holds here."""
        place = Path(folder).expanduser().absolute() if folder is not None else find_lab().folder
        identity = read_json(place / LAB_FILE)
        if identity is None:
            if not create:
                raise StoreError("no-lab", f"There is no lab in {place}.", "Make one with: luxmeter init")
            identity = _make(place)
        fits = isinstance(identity, dict) and isinstance(identity.get("id"), str)
        if not fits or type(identity.get("format")) is not int:
            raise StoreError(
                "file-damaged",
                f"{place / LAB_FILE} does not say which lab this is.",
                "Restore it from a copy. Or move it away: the next command makes one, and the runs stay.",
            )
        if identity["format"] > layout.LAB_FORMAT:
            raise StoreError(
                "lab-format",
                f"The lab in {place} has format {identity['format']}; this version reads up to {layout.LAB_FORMAT}.",
                "Update luxmeter to use it.",
            )
        return Lab(place, identity)

    # -- runs ---------------------------------------------------------------------------------------------------

    def create_run(
        self,
        name: str,
        *,
        params: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        tags: Iterable[str] = (),
        parent: str | None = None,
        kind: str = "run",
        run_id: str = "",
    ) -> RunWriter:
        """Begin a run. Its directory is there, whole, when this returns.

        `run_id` was reserved for it by `new_id`; if another run has begun under it, it gets a new one.
        """
        if not name or name != name.strip():
            raise UsageError(
                "run-name", f"{name!r} cannot name a run.", "Give it a text without outer spaces."
            )
        run_id, folder = self._reserved_folder(run_id) or self._new_folder()
        identity = identity_of(run_id, name, kind=kind, parent=parent, created_ns=time.time_ns())
        identity["mark"] = mark_of(identity, folder)
        if params:
            write_json(folder / layout.PARAMS, described(params))
        if environment:
            write_json(folder / layout.ENVIRONMENT, dict(environment))
        # The identity comes last: a folder without one is a run that was never begun, and gc removes it.
        write_json(folder / layout.IDENTITY, identity)
        run = RunWriter(folder, identity, self.folder)
        if tags:
            run.marks.tag(*tags)
        announce(self.folder, run_id)
        return run

    def reopen_run(self, run_id: str) -> RunWriter | None:
        """Go on writing a run whose process is gone: this one takes its place. None if it is gone, too, or still written."""
        folder = self.folder / layout.RUNS / layout.named("run", run_id)
        if not (folder / layout.IDENTITY).is_file() or self.is_running(folder):
            return None
        identity = {**read_identity(folder), "process": vars(Process.here())}
        write_json(folder / layout.IDENTITY, identity)
        (folder / layout.STATUS).unlink(missing_ok=True)
        run = RunWriter(folder, identity, self.folder)
        announce(self.folder, run_id)
        return run

    def put_finished(self, run: FinishedRun) -> Run:
        """Put in a run that is over, whole, in place of one with its id, whose tags and note stay."""
        put_finished(self.folder, run)
        return Run(self.folder / layout.RUNS / run.id, self.folder)

    def runs(
        self,
        where: str | Expression | None = "",
        *,
        sort: str = "-created",
        limit: int | None = None,
        archived: bool | None = False,
    ) -> list[RunRow]:
        """Runs that fulfil the filter (see query.py), sorted by comma-separated fields, `-` before a falling one."""
        return self.catalog.select(where, sort=sort, limit=limit, archived=archived)

    def find(self, reference: str | Path) -> Run:
        """The run that `reference` names: an id or its beginning, a name, a tag, `latest`, any of them with `~n`, a path."""
        from luxmeter.store.names import find_run

        return find_run(self.folder, self.catalog, str(reference))

    def delete(self, reference: str) -> str:
        """Move a run to the trash, from where `restore` brings it back; returns its id."""
        folder = self.folder_of(reference)
        # Of one that lies here the folder names it, whatever it calls itself: a damaged run can be removed, too.
        run_id = folder.name if folder.parent == self.folder / layout.RUNS else Run(folder).id
        if self.is_running(folder):
            raise StoreError(
                "run-is-running", f"Run {run_id} is still running.", "Stop it first, then remove it."
            )
        target = self.folder / layout.TRASH / layout.named("run", run_id)
        target.parent.mkdir(exist_ok=True)
        os.replace(folder, target)
        announce(self.folder, run_id)
        return run_id

    def restore(self, run_id: str) -> Path:
        """Bring a run back from the trash; returns its folder."""
        source = self.folder / layout.TRASH / run_id
        if not layout.is_named("run", run_id) or not is_begun(source):
            raise StoreError(
                "not-in-trash", f"The trash holds no run {run_id!r}.", "Look into the lab's trash folder."
            )
        target = self.folder / layout.RUNS / run_id
        os.replace(source, target)
        announce(self.folder, run_id)
        return target

    def folder_of(self, reference: str | Path) -> Path:
        """As `find`, the run's folder alone: it need not be readable."""
        from luxmeter.store.names import find_folder

        return find_folder(self.folder, self.catalog, str(reference))

    @staticmethod
    def is_running(folder: Path) -> bool:
        """Whether the run in a folder is being written, as far as it can be read."""
        try:
            return Run(folder).state == "running"
        except StoreError as error:
            if error.slug == "not-a-run":
                raise
            return False

    def adopt(self, source: Path, *, anew: bool = False) -> Run:
        """Copy a run's directory from elsewhere into this lab; `anew` under a new id, and it says which it had."""
        run = Run(source)
        run_id = self.new_id() if anew else run.id
        target = self.folder / layout.RUNS / run_id
        if target.exists():
            raise StoreError(
                "run-exists", f"This lab already has a run {run_id}.", "Remove one of the two first."
            )
        temporary = target.with_name(f".{run_id}.{os.getpid()}")
        try:
            shutil.copytree(source, temporary)
            if anew:
                write_json(temporary / layout.IDENTITY, {**run.identity, "id": run_id, "imported_as": run.id})
            os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        announce(self.folder, run_id)
        return Run(target, self.folder)

    # -- traces ---------------------------------------------------------------------------------------------------

    def new_trace(self) -> Path:
        """A new folder for a trace that belongs to no run."""
        return self._new_folder(layout.TRACES)[1]

    def traces(self, *, of_runs: bool = False) -> list[Result]:
        """The traces that belong to no run, the last begun last; with `of_runs`, those of the runs among them."""
        found = traces_in(self.folder / layout.TRACES)
        if of_runs:
            for calls in (self.folder / layout.RUNS).glob(f"*/{layout.CALLS}"):
                found += traces_in(calls)
        return sorted(found, key=lambda trace: (trace.made_ns, trace.folder.name))

    def find_trace(self, reference: str) -> Result:
        """A trace: `latest`, `latest~1` of all in the lab; of those in no run, by id, its beginning, or name."""
        from luxmeter.store.names import find_trace

        return find_trace(self.folder, self.traces, reference)

    # -- upkeep ---------------------------------------------------------------------------------------------------

    def reindex(self) -> int:
        """Make the index anew from the directories; returns how many runs it holds."""
        return self.catalog.rebuild()

    def gc(self, *, empty_trash: bool = True, older_than_s: float = 3600) -> dict[str, int]:
        """Compact what lost runs left, remove the trash, half-made runs and blobs that no run has any more.

        A run that cannot be read is counted and left as it is; what links lead to is none of the lab's.
        """
        done = {"compacted": 0, "half_made": 0, "trashed": 0, "blobs": 0, "damaged": 0}
        for folder in sorted((self.folder / layout.RUNS).iterdir()):
            if folder.is_symlink() or not folder.is_dir():
                continue
            if folder.name.startswith("."):
                done["half_made"] += _removed(folder, older_than_s)
            elif is_half_made(folder):
                if time.time() - folder.stat().st_mtime > older_than_s:  # younger: perhaps just being made
                    shutil.rmtree(folder, ignore_errors=True)
                    done["half_made"] += 1
            elif is_begun(folder) and [
                *folder.glob("tables/*/*.arrows"),
                *folder.glob("ranks/*/tables/*/*.arrows"),
            ]:
                try:
                    if Run(folder).state != "running":
                        for part in (folder, *rank_folders(folder).values()):
                            compact_run(part)
                        done["compacted"] += 1
                except StoreError:
                    done["damaged"] += 1
        if empty_trash and (self.folder / layout.TRASH).is_dir():
            for folder in sorted((self.folder / layout.TRASH).iterdir()):
                if folder.is_symlink() or not folder.is_dir():
                    folder.unlink(missing_ok=True)
                else:
                    shutil.rmtree(folder, ignore_errors=True)
                done["trashed"] += 1
        for note in (self.folder / layout.RANKS).glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # another gc was faster
                if time.time() - note.stat().st_mtime > max(older_than_s, 24 * 3600):
                    note.unlink()
        for pattern in STAGING:
            for folder in self.folder.glob(pattern):
                done["half_made"] += _removed(folder, older_than_s)
        for blob in self.pool.unused(older_than_s=older_than_s):
            blob.unlink(missing_ok=True)
            done["blobs"] += 1
        return done

    def close(self) -> None:
        """Let go of the index."""
        if "catalog" in vars(self):
            self.catalog.close()

    def new_id(self) -> str:
        """An id that no run of this lab has."""
        run_id, folder = self._new_folder()
        folder.rmdir()
        return run_id

    def trash(self) -> list[RunRow]:
        """The runs that were removed and can be brought back, the last removed first."""
        from luxmeter.store.catalog import entry_of

        place = self.folder / layout.TRASH
        found = [p for p in place.iterdir() if layout.is_named("run", p.name)] if place.is_dir() else []
        newest = sorted(found, key=lambda p: p.stat().st_ctime_ns, reverse=True)
        entries = (entry_of(folder, self.folder) for folder in newest)
        return [entry.row for entry in entries if entry is not None]

    def _reserved_folder(self, run_id: str) -> tuple[str, Path] | None:
        """The folder of a run whose id was reserved, unless it is there already."""
        if not run_id:
            return None
        folder = self.folder / layout.RUNS / layout.named("run", run_id)
        try:
            folder.mkdir(parents=True)
        except OSError:  # begun already; or nothing can be written, which the next one tells
            return None
        return run_id, folder

    def _new_folder(self, among: str = layout.RUNS) -> tuple[str, Path]:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        for _ in range(100):
            run_id = "".join(secrets.choice(layout.ID_LETTERS) for _ in range(5)) + "-" + stamp
            folder = self.folder / among / run_id
            try:
                folder.mkdir(parents=True)
                return run_id, folder
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(
                    "lab-not-writable",
                    f"No {among.removesuffix('s')} can be made in {self.folder}: {error.strerror}.",
                    "Make room or give rights there, or name another lab with LUXMETER_HOME.",
                ) from error
        raise StoreError("no-free-id", f"No free run id was found in {self.folder}.", "Try again.")


def _removed(folder: Path, older_than_s: float) -> bool:
    """Whether what something that was killed left is removed: it is, once nothing in it is young."""
    try:
        newest = max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return False  # somebody is at it
    if time.time() - newest <= older_than_s or folder.is_symlink():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True


def _make(folder: Path) -> dict[str, Any]:
    try:
        (folder / layout.RUNS).mkdir(parents=True, exist_ok=True)
        # In a project's folder: what runs leave is not the project's, neither for git nor for snapshots of its code.
        write_file(folder / ".gitignore", b"*\n")
        identity = {"format": layout.LAB_FORMAT, "id": secrets.token_hex(8), "created_ns": time.time_ns()}
        write_json(folder / LAB_FILE, identity, durable=True)
    except OSError as error:
        raise StoreError(
            "lab-not-writable",
            f"No lab can be made in {folder}: {error.strerror}.",
            "Give rights there, or name another place with LUXMETER_HOME.",
        ) from error
    return dict(read_json(folder / LAB_FILE))
