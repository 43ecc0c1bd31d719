"""A run as it rests on disk, read part by part: records, Arrow, or pandas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from luxmeter.errors import StoreError, suggestion
from luxmeter.files import from_json
from luxmeter.settings import globs
from luxmeter.store import checked, layout
from luxmeter.store.blobs import read_blob
from luxmeter.store.liveness import Process, is_alive
from luxmeter.store.marks import Marks
from luxmeter.store.points import METRIC_SCHEMA, OBJECT_SCHEMA, summarise_table
from luxmeter.store.segments import Follower, read_segments, reading
from luxmeter.store.writer import inside, tables_of

if TYPE_CHECKING:
    import pandas as pd


class Run:
    """One run's directory. Everything is read when asked for, so a living run shows what it has now."""

    def __init__(self, folder: Path, lab_folder: Path | None = None) -> None:
        self.folder = folder
        # id, name, when and by which process it was made
        self.identity: dict[str, Any] = checked.read_identity(folder)
        if lab_folder is not None and self.id != folder.name:
            raise checked.damaged(folder / layout.IDENTITY, f"it calls the run {self.id}")
        self.marks = Marks(folder, lab_folder or folder.parent.parent)

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.identity["id"])

    @property
    def name(self) -> str:
        """The name it was given; runs of one experiment share it."""
        return str(self.identity["name"])

    @property
    def created_ns(self) -> int:
        """When it was made, in Unix nanoseconds."""
        return int(self.identity["created_ns"])

    @property
    def status(self) -> dict[str, Any]:
        """How it ended: state, ended_ns, error, lost_rows. For a run that has not: running or lost."""
        ended = checked.read_status(self.folder)
        if ended is not None:
            return ended
        alive = is_alive(
            Process.of(self.identity["process"]), self.folder, lost_after_s=globs["store.lost_after_s"]
        )
        return {"state": "running" if alive else "lost", "ended_ns": None, "error": "", "lost_rows": 0}

    @property
    def state(self) -> str:
        """running, finished, failed, interrupted or lost; lists have `damaged`, too."""
        return str(self.status["state"])

    @property
    def params(self) -> dict[str, Any]:
        """Its parameters, nested as they were given."""
        return checked.read_mapping(self.folder / layout.PARAMS)

    @property
    def environment(self) -> dict[str, Any]:
        """What it ran on."""
        return checked.read_mapping(self.folder / layout.ENVIRONMENT)

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return self.marks.tags

    @property
    def summary(self) -> dict[str, dict[str, Any]]:
        """Each metric's n, last, last_step, min and max."""
        kept = checked.read_summary(self.folder)
        if kept is None:
            place = self.folder / layout.TABLES / layout.METRICS
            with reading(place):
                made = {key: summary.record() for key, summary in summarise_table(self.folder).items()}
            kept = checked.check_summary(place, made)
        return kept

    def tables(self) -> list[str]:
        """The names of its tables."""
        return list(tables_of(self.folder))

    def table(self, name: str, *, columns: list[str] | None = None) -> pa.Table:
        """A table as Arrow. `metrics` and `objects` are there, empty, even if nothing was logged."""
        known = {layout.METRICS: METRIC_SCHEMA, layout.OBJECTS: OBJECT_SCHEMA}
        if name not in known and name not in self.tables():
            raise StoreError(
                "table-missing",
                f"Run {self.id} has no table {name!r}.",
                suggestion(name, [*self.tables(), *known])
                or f"It has: {', '.join(self.tables()) or 'none'}.",
            )
        table = read_segments(self.folder / layout.TABLES / name, columns=columns)
        if table is not None:
            return table
        empty = known[name].empty_table() if name in known else pa.table({})
        return empty.select(columns) if columns else empty

    def records(self, name: str) -> list[dict[str, Any]]:
        """A table as a list of dictionaries."""
        with reading(self.folder / layout.TABLES / name):
            rows: list[dict[str, Any]] = self.table(name).to_pylist()
        return rows

    def frame(self, name: str) -> pd.DataFrame:
        """A table as a pandas DataFrame."""
        frame: pd.DataFrame = self.table(name).to_pandas()
        return frame

    def metric(self, key: str) -> pa.Table:
        """The points of one metric: step, value, time_ns, in the order they were logged."""
        columns = ["step", "value", "time_ns"]
        table = read_segments(
            self.folder / layout.TABLES / layout.METRICS, columns=columns, only=("key", key)
        )
        if table is None or not table.num_rows:
            raise StoreError(
                "metric-missing",
                f"Run {self.id} has no metric {key!r}.",
                suggestion(key, self.summary) or f"It has: {', '.join(self.summary) or 'none'}.",
            )
        with reading(self.folder / layout.TABLES / layout.METRICS):
            return table.cast(pa.schema([METRIC_SCHEMA.field(name) for name in columns]))

    def objects(self, key: str | None = None) -> list[dict[str, Any]]:
        """What was logged that is not a number, with its text decoded: text, arrays, histograms, images, files."""
        rows = self.records(layout.OBJECTS)
        with reading(self.folder / layout.TABLES / layout.OBJECTS):
            return [
                {**row, "text": from_json(json.loads(row["text"]))}
                for row in rows
                if key is None or row["key"] == key
            ]

    def follow(self, name: str = layout.METRICS) -> Follower:
        """A reader of a growing table: each `new()` gives only the rows that came since."""
        return Follower(self.folder / layout.TABLES / name)

    def blob(self, name: str) -> bytes:
        """The content kept under its SHA-256."""
        return read_blob(self.folder, name)

    def files(self) -> list[str]:
        """The files that were put into the run, by name."""
        root = self.folder / layout.FILES
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    def file(self, name: str) -> Path:
        """Where a file of the run lies."""
        path = inside(self.folder / layout.FILES, name)
        if not path.is_file():
            raise StoreError(
                "file-missing",
                f"Run {self.id} has no file {name!r}.",
                suggestion(name, self.files()) or f"It has {len(self.files())} files.",
            )
        return path

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.name!r} {self.state}>"
