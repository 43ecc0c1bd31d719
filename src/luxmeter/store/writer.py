"""A run while it is written. Logging costs the caller one queue entry; the background thread does the rest."""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from luxmeter.described import described
from luxmeter.errors import StoreError, UsageError
from luxmeter.files import make_below, read_json, write_file, write_json
from luxmeter.late import late
from luxmeter.store import background, layout, points
from luxmeter.store.blobs import BlobPool
from luxmeter.store.journal import announce
from luxmeter.store.liveness import TOUCH_EVERY_S, Process
from luxmeter.store.marks import Marks
from luxmeter.store.segments import SegmentWriter, compact
from luxmeter.store.troubles import Troubles
from luxmeter.store.values import number_of, object_of

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = late("pyarrow")

_MAX_PENDING_BYTES = 64 * 1024 * 1024  # kept in memory while the disk refuses; then the oldest is given up


class RunWriter:
    """A run of this process. Made by `Lab.create_run`; a context manager that records how it ended."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], lab_folder: Path) -> None:
        import pyarrow.parquet  # now, not in the thread that writes, nor at the end of the process  # noqa: F401

        self.folder = folder
        self.id: str = identity["id"]
        self.name: str = identity["name"]
        self.marks = Marks(folder, lab_folder)
        self._lab_folder = lab_folder
        self._pool = BlobPool(lab_folder)
        self._owner = os.getpid()
        self._queue: points.Queue = []
        self._put: Callable[[tuple[Any, ...]], None] = self._queue.extend
        self._objects: deque[tuple[Any, ...]] = deque()
        self._tables: dict[str, SegmentWriter] = {}
        self._pending: deque[tuple[str, pa.RecordBatch]] = deque()
        self._pending_bytes = 0
        self._schemas: dict[str, pa.Schema] = {}
        self._summaries: dict[str, points.Summary] = {}
        self._auto_steps: dict[str, int] = {}
        self._keys: set[str] = set()  # that were looked at
        self._sources: dict[str, str] = {}
        self._sources_lock = threading.Lock()
        self._troubles = Troubles(self.id)
        self._gone = False
        self._touched = 0.0
        self._lock = threading.Lock()
        self.lost_rows = 0
        self.state = "running"
        self._begin()

    # -- what training calls ------------------------------------------------------------------------------------

    def metric(self, key: str, value: Any, step: int | None = None) -> None:
        """Log one value: a point if it is one number, else an object. Without a step: counted a key, from 0."""
        if key.__class__ is not str or key not in self._keys:
            self._keys.add(points.checked_key(key))
        if value.__class__ is not float:
            number = number_of(value)
            if number is None:
                self._log_object(key, value, step)
                return
            value = number
        if step.__class__ is not int or step >> 63:  # beyond 64 bits, or below zero: looked at closely
            step = self._step(key, step)
        self._put((key, value, step, time.time_ns()))
        if self._troubles:
            self._troubles.tell()

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Log several values of one step: `run.log({"loss": 0.3, "acc": 0.9}, step=7)`.

        What cannot be logged is refused by an error, after all the others were logged.
        """
        now = time.time_ns()
        put = self._put
        known = self._keys
        known_step = step.__class__ is int and not step >> 63
        refused: list[Exception] = []
        for key, value in values.items():
            if value.__class__ is float and known_step and key in known:
                put((key, value, step, now))
            else:
                try:
                    self.metric(key, value, step)
                except Exception as problem:  # noqa: BLE001  (raised below: it must not cost the values after it)
                    refused.append(problem)
        if self._troubles:
            self._troubles.tell()
        if refused:
            for other in refused[1:3]:
                refused[0].add_note(str(other))
            raise refused[0]

    def log_from(self, source: str, values: Mapping[str, Any], step: int | None = None) -> None:
        """Log what another than the program's own log calls told; a name that somebody else uses gets the source before it."""
        named: dict[str, Any] = {}
        with self._sources_lock:
            before = len(self._sources)
            for key, value in values.items():
                free = self._sources.get(key, source) == source and (
                    key in self._sources or key not in self._keys
                )
                name = key if free else f"{source}/{key}"
                self._sources.setdefault(points.checked_key(name), source)
                named[name] = value
            if len(self._sources) > before:
                write_json(self.folder / layout.SOURCES, self._sources)
        self.log(named, step)

    def append_rows(self, table: str, rows: pa.RecordBatch) -> None:
        """Append rows to a table of the caller's own. Written by the background thread."""
        known = self._schemas.setdefault(table, rows.schema)
        if not rows.schema.equals(known):
            raise UsageError(
                "table-schema",
                f"The rows for the table {table!r} have {rows.schema}, those before {known}.".replace(
                    "\n", ", "
                ),
                "Give all rows of a table the same columns, or use another table.",
            )
        with self._lock:
            self._keep(table, rows)

    # -- what is written at once --------------------------------------------------------------------------------

    def set_params(self, params: Mapping[str, Any]) -> None:
        """The run's parameters, nested as they are."""
        write_json(self.folder / layout.PARAMS, described(params))
        announce(self._lab_folder, self.id)

    def add_params(self, params: Mapping[str, Any]) -> None:
        """Add parameters to those it has, which stay as they are."""
        before = read_json(self.folder / layout.PARAMS, {})
        merged = _merged(before, described(params))
        if merged != before:
            write_json(self.folder / layout.PARAMS, merged)
            announce(self._lab_folder, self.id)

    def rename(self, name: str, *, parent: str | None = None) -> None:
        """Give it another name, and a parent if one is named."""
        identity = read_json(self.folder / layout.IDENTITY)
        self.name = name
        write_json(
            self.folder / layout.IDENTITY, {**identity, "name": name, "parent": parent or identity["parent"]}
        )
        announce(self._lab_folder, self.id)

    def set_environment(self, environment: Mapping[str, Any]) -> None:
        """What the run ran on."""
        write_json(self.folder / layout.ENVIRONMENT, dict(environment))

    def put_file(self, name: str, content: bytes | str | Path) -> Path:
        """Put a file into the run, whole or not at all: bytes, text, or a copy of the file at a path."""
        target = inside(self.folder / layout.FILES, name)
        data = content.read_bytes() if isinstance(content, Path) else content
        try:
            make_below(self.folder, target.parent)
            write_file(target, data.encode() if isinstance(data, str) else data)
        except OSError as problem:
            raise self._cannot_put(name, problem) from problem
        return target

    def put_blob(self, body: bytes | Path) -> str:
        """Keep content under its SHA-256, once for all runs of the lab; returns that name."""
        try:
            return self._pool.put(body, self.folder)
        except OSError as problem:
            raise self._cannot_put("a blob", problem) from problem

    def is_here(self) -> bool:
        """Whether this process began it; a forked one did not."""
        return os.getpid() == self._owner

    # -- the end ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write out what is buffered now, and tell if that does not work."""
        self.drain()
        if self._troubles:
            self._troubles.tell()

    def finish(self, state: str = "finished", *, error: str = "") -> None:
        """End the run: everything on disk, tables compacted, status written. Once; later calls do nothing."""
        if state not in ("finished", "failed", "interrupted"):
            raise UsageError(
                "run-end-state", f"A run cannot end as {state!r}.", "Use finished, failed or interrupted."
            )
        if self.state != "running":
            return
        self._put = self._refuse
        background.remove(self)
        self.drain()  # after the thread has gone: what another thread put in at the last moment is taken too
        self.state = state
        if os.getpid() != self._owner:
            return  # a forked child writes its rows; the end of the run is its parent's
        try:
            self._close(state, error)
        except OSError as problem:
            self._blame(problem)
        if self._troubles:
            self._troubles.tell()

    def fail(self, error: BaseException) -> None:
        """End the run with an exception: interrupted for Ctrl-C, else failed, with the traceback."""
        state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        self.finish(state, error="".join(traceback.format_exception(error)))

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.finish()
        else:
            self.fail(error)

    # -- the background thread's side ---------------------------------------------------------------------------

    def drain(self) -> None:
        """Write what is buffered. Raises nothing: trouble is told at the user's next call."""
        with self._lock:
            try:
                self._collect()
                self._write_pending()
                self._sign_of_life()
            except OSError as problem:
                self._blame(problem)
            except Exception as problem:  # noqa: BLE001  (a broken value must not end the writer of all runs)
                self._troubles.internal(problem)

    def after_fork(self) -> None:
        """In a child: the parent writes what was buffered; the first point logged here starts a writer of its own."""
        self._lock = threading.Lock()
        self._queue = []
        self._objects = deque()
        self._pending = deque()
        self._pending_bytes = 0
        self._tables = {}
        self._summaries = {}
        if self.state == "running":
            self._put = self._first_in_child

    def at_exit(self) -> None:
        """The program ended and nobody finished the run."""
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException):
            self.fail(error)
        else:
            self.finish()

    # -- inside -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        (self.folder / layout.ALIVE).touch()
        background.add(self)

    def _keep_blob(self, body: bytes) -> str:
        return self._pool.put(body, self.folder)

    def _step(self, key: str, step: Any) -> int:
        if step is None:
            step = self._auto_steps.get(key, -1) + 1
            self._auto_steps[key] = step
        return points.checked_step(key, step)

    def _log_object(self, key: str, value: Any, step: Any) -> None:
        stored, step = object_of(key, value), self._step(key, step)
        try:
            blob = self._keep_blob(stored.body) if stored.body else ""
        except OSError as problem:  # training goes on without this one
            self.lost_rows += 1
            self._blame(problem)
            self._troubles.tell()
            return
        row = (key, step, time.time_ns(), stored.kind, stored.text, blob, stored.suffix)
        if self.state != "running":
            self._refuse(row)
        self._objects.append(row)
        if self._put == self._first_in_child:  # a forked child whose first value is an object
            self._put = self._queue.extend
            background.add(self)

    def _first_in_child(self, point: tuple[Any, ...]) -> None:
        self._put = self._queue.extend
        self._put(point)
        background.add(self)

    def _refuse(self, point: tuple[Any, ...]) -> None:
        raise StoreError(
            "run-ended",
            f"Run {self.id} has ended ({self.state}); {point[0]!r} cannot be logged to it.",
            "Log before the end, or start a new run.",
        )

    def _collect(self) -> None:
        dropped: list[points.Dropped] = []
        taken = points.take(self._queue)
        if taken:
            self._keep(layout.METRICS, points.to_batch(taken, self._summaries, dropped))
        if self._objects:
            rows = [self._objects.popleft() for _ in range(len(self._objects))]
            self._keep(layout.OBJECTS, points.to_object_batch(rows, dropped))
        if dropped:
            self.lost_rows += len(dropped)
            self._troubles.missing(dropped)

    def _keep(self, table: str, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._pending.append((table, batch))
        self._pending_bytes += batch.nbytes
        while self._pending_bytes > _MAX_PENDING_BYTES and len(self._pending) > 1:
            _, dropped = self._pending.popleft()
            self._pending_bytes -= dropped.nbytes
            self.lost_rows += dropped.num_rows

    def _write_pending(self) -> None:
        if self._gone:
            self.lost_rows += sum(batch.num_rows for _, batch in self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            return
        wrote = False
        while self._pending:
            table, batch = self._pending[0]
            try:
                if table not in self._tables:
                    self._tables[table] = SegmentWriter(
                        self.folder / layout.TABLES / table, within=self.folder
                    )
                self._tables[table].append(batch)
                wrote = True
            except OSError:
                raise  # the disk: it is tried again
            except Exception as problem:  # noqa: BLE001  (rows that do not fit their table must not hold up the others)
                self.lost_rows += batch.num_rows
                self._troubles.unfit(table, batch.num_rows, problem)
            self._pending.popleft()
            self._pending_bytes -= batch.nbytes
        if wrote and self._summaries and os.getpid() == self._owner:
            self._write_summary()

    def _write_summary(self) -> None:
        write_json(self.folder / layout.SUMMARY, {key: s.record() for key, s in self._summaries.items()})

    def _sign_of_life(self) -> None:
        now = time.monotonic()
        if now - self._touched < TOUCH_EVERY_S or self._gone:
            return
        # Not touch(): a file that is not there means that somebody removed the run, and it stays removed.
        os.utime(self.folder / layout.ALIVE)
        self._touched = now

    def _close(self, state: str, error: str) -> None:
        for writer in self._tables.values():
            writer.close()
        if self._gone:
            return
        with self._lock:
            try:
                compact_run(self.folder)
            except OSError:
                raise
            except Exception as problem:  # noqa: BLE001  (rows can be read as they are; how the run ended must be said)
                self._troubles.internal(problem, "The rows are kept as they were written; please report it.")
            if self._summaries:
                write_json(self.folder / layout.SUMMARY, points.final_summary(self.folder, self._summaries))
            status = {"state": state, "ended_ns": time.time_ns(), "error": error, "lost_rows": self.lost_rows}
            write_json(self.folder / layout.STATUS, status, durable=True)
        announce(self._lab_folder, self.id)

    def _blame(self, problem: OSError) -> None:
        if self.folder.exists():
            self._troubles.disk(problem, self.folder)
        else:
            self._gone = True
            self._troubles.gone(self.folder)

    def _cannot_put(self, name: str, problem: OSError) -> StoreError:
        gone = not self.folder.exists()
        return StoreError(
            "file-not-put",
            f"{name!r} cannot be put into run {self.id}: {'its folder is gone' if gone else problem.strerror or problem}.",
            f"The run was removed from {self.folder.parent}; the program may go on without it."
            if gone
            else "Make room or give rights; the run itself goes on.",
        )


def identity_of(
    run_id: str, name: str, *, kind: str = "run", parent: str | None, created_ns: int
) -> dict[str, Any]:
    """What run.json holds."""
    return {
        "format": layout.RUN_FORMAT,
        "id": run_id,
        "name": name,
        "kind": kind,
        "parent": parent,
        "created_ns": created_ns,
        "process": vars(Process.here()),
    }


def _merged(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = copy.copy(before)  # type: ignore[arg-type]  # with its type, if it has one
    for key, value in more.items():
        if isinstance(merged.get(key), Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(merged[key], value)
        else:
            merged.setdefault(str(key), value)
    return merged


def inside(folder: Path, name: str | Path) -> Path:
    """`folder / name`, refused if that would lie outside of `folder`."""
    relative = Path(name)
    if (
        relative.is_absolute()
        or ".." in relative.parts
        or not relative.parts
        or "\\" in str(name)
        or "\0" in str(name)
    ):
        raise UsageError(
            "name-outside",
            f"The file name {str(name)!r} points outside of the run.",
            "Use a relative name without '..'.",
        )
    return folder / relative


def compact_run(run_folder: Path) -> None:
    """Fold every table of an ended run into Parquet. Segments of a forked child that still writes are left."""
    for folder in sorted((run_folder / layout.TABLES).glob("*")):
        if folder.is_symlink():
            continue  # what lies behind it is not the run's
        if folder.name == layout.METRICS:
            compact(folder, sort_by="key", options=points.METRIC_PARQUET)
        else:
            compact(folder)


def tables_of(run_folder: Path) -> Iterable[str]:
    """The names of a run's tables."""
    return sorted(path.name for path in (run_folder / layout.TABLES).glob("*") if path.is_dir())
