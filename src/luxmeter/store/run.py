"""A run, read: the one class for it, whether it is named, listed by the index or just being written.

Everything is read when it is asked for, so a living run shows what it has now; what a list told is not read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from luxmeter.by_name import by_name
from luxmeter.described import TYPE, DescribedMapping, type_of, with_type
from luxmeter.errors import LuxmeterError, MissingNameError, StoreError, suggestion
from luxmeter.files import from_json, json_text
from luxmeter.late import late
from luxmeter.settings import globs
from luxmeter.store import checked, layout
from luxmeter.store.blobs import read_blob
from luxmeter.store.liveness import Process, is_alive
from luxmeter.store.marks import Marks
from luxmeter.store.output_follower import OutputFollower
from luxmeter.store.points import Points, metric_schema, object_schema, summarise_table
from luxmeter.store.rank_writer import rank_folders
from luxmeter.store.records import (
    OWN_FILES,
    SEED_NAMES,
    Code,
    Command,
    Ending,
    FileChange,
    read_changes,
    read_children,
    read_code,
    read_command,
    read_ending,
    read_output,
    read_output_end,
    read_random,
)
from luxmeter.store.results import Result, results_of
from luxmeter.store.rows import RunHead, RunRow, finite, flatten
from luxmeter.store.segments import Follower, read_segments, reading
from luxmeter.store.writer import inside, tables_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from luxmeter.calls import TraceResult
    from luxmeter.model import ModelCost
    from luxmeter.operators import BenchResult, CheckResult, Operators
    from luxmeter.train import Answer
else:
    pa = late("pyarrow")


class Watched(Protocol):
    """A cell of a notebook that shows a run."""

    def stop(self) -> None:
        """Show no more of it; the run goes on."""


class Values(DescribedMapping):
    """Parameters as they were given: `run.params.optim.lr`, `run.params["optim"]["lr"]` or `["optim.lr"]`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(
            {key: Values(value) if isinstance(value, dict) else value for key, value in values.items()}
        )
        with_type(self, type_of(values))

    def __missing__(self, key: str) -> Any:
        if key == TYPE and type_of(self):
            return type_of(self)
        head, dot, rest = str(key).partition(".")
        if dot and isinstance(self.get(head), Values):
            return self[head][rest]
        raise MissingNameError(
            "no-such-parameter",
            f"The run has no parameter {key!r}.",
            suggestion(str(key), self) or f"It has: {', '.join(self) or 'none'}.",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


class Run:
    """One run's directory."""

    def __init__(self, folder: Path, lab_folder: Path | None = None) -> None:
        self.folder = folder
        self._lab_folder = lab_folder
        self._listed: RunHead | RunRow | None = None
        _ = self.identity  # what is no run is told at once

    @classmethod
    def listed(cls, row: RunHead | RunRow, lab_folder: Path) -> Run:
        """The run of a list's row. Its directory is not opened before something is asked that the row does not tell."""
        made = cls.__new__(cls)
        made._lab_folder, made._listed = lab_folder, row
        return made

    @cached_property
    def folder(self) -> Path:
        """Where it rests."""
        assert self._lab_folder is not None and self._listed is not None  # else it was given
        return self._lab_folder / layout.RUNS / self._listed.id

    @cached_property
    def identity(self) -> dict[str, Any]:
        """id, name, when and by which process it was made."""
        found = checked.read_identity(self.folder)
        if self._lab_folder is not None and found["id"] != self.folder.name:
            raise checked.damaged(self.folder / layout.IDENTITY, f"it calls the run {found['id']}")
        return found

    @cached_property
    def marks(self) -> Marks:
        """What people add to it: tags, a note, archived or not."""
        return Marks(self.folder, self._lab_folder or self.folder.parent.parent)

    @cached_property
    def row(self) -> RunRow:
        """As the index holds it."""
        return self._listed if isinstance(self._listed, RunRow) else self.row_with(self.flat_params)

    def row_with(
        self, params: Mapping[str, Any], metrics: Mapping[str, Mapping[str, Any]] | None = None
    ) -> RunRow:
        """`row`, for who has read the flat parameters, or the metrics' summaries, already."""
        told = self.metrics if metrics is None else metrics
        metrics = {key: {k: finite(v) for k, v in summary.items()} for key, summary in told.items()}
        return RunRow(
            id=self.id,
            name=self.name,
            state=self.state,
            created_ns=self.created_ns,
            ended_ns=self.ended_ns,
            archived=self.archived,
            note=self.note,
            host=self.identity["process"]["host"],
            params_json=json_text(params, indent=None).rstrip("\n"),
            metrics_json=json.dumps(metrics, ensure_ascii=False),
            tags_json=json.dumps(self.tags, ensure_ascii=False),
        )

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its id."""
        return self._listed.id if self._listed is not None else str(self.identity["id"])

    @property
    def name(self) -> str:
        """The name it was given; runs of one experiment share it."""
        return self._listed.name if self._listed is not None else str(self.identity["name"])

    @property
    def kind(self) -> str:
        """What made it: a run of a program, or a search."""
        return str(self.identity.get("kind", "run"))

    @property
    def parent(self) -> str | None:
        """The id of the run it belongs to or repeats."""
        found = self.identity.get("parent")
        return None if found is None else str(found)

    @property
    def children(self) -> list[str]:
        """The ids of the runs that were begun inside it."""
        return read_children(self.folder)

    @property
    def created_ns(self) -> int:
        """When it was made, in Unix nanoseconds."""
        return self._listed.created_ns if self._listed else int(self.identity["created_ns"])

    @property
    def created(self) -> datetime:
        """When it was made, in local time."""
        return datetime.fromtimestamp(self.created_ns / 1e9).astimezone()

    # -- how it went ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """running, finished, failed, interrupted or lost; in a list also damaged."""
        listed = self._listed
        if listed is not None and listed.state != "running":
            return listed.state
        ended = checked.read_status(self.folder)
        if ended is not None:
            return str(ended["state"])
        process = Process.of(self.identity["process"])
        alive = is_alive(process, self.folder, lost_after_s=globs["store.lost_after_s"])
        return "running" if alive else "lost"

    @property
    def ended_ns(self) -> int | None:
        """When it ended, in Unix nanoseconds; None while it runs, or if nobody knows."""
        if self._listed and self._listed.ended_ns is not None:
            return self._listed.ended_ns
        found = checked.read_status(self.folder)
        return None if found is None else found["ended_ns"]

    @property
    def duration(self) -> float | None:
        """How many seconds it took; None while it runs, or if nobody knows when it ended."""
        ended_ns = self.ended_ns
        return None if ended_ns is None else (ended_ns - self.created_ns) / 1e9

    @property
    def error(self) -> str:
        """The traceback, if it failed."""
        found = checked.read_status(self.folder)
        return "" if found is None else str(found["error"])

    @property
    def lost_rows(self) -> int:
        """How many logged rows could not be written."""
        found = checked.read_status(self.folder)
        return 0 if found is None else int(found["lost_rows"])

    @property
    def ending(self) -> Ending | None:
        """How the program left it; None while it runs, or if it was lost."""
        return read_ending(self.folder)

    def control(
        self, what: str = "status", changes: Mapping[str, Any] | None = None, *, wait_s: float = 10.0
    ) -> Answer:
        """Ask the Trainer that it is in the middle of: status, pause, resume, checkpoint, stop, or set ({"lr": 0.01}).

        Obeyed at the end of the step at hand; waits for the answer, and raises what was refused. 0 seconds: does not wait.
        """
        found: Answer = by_name("control run")(self, what, changes, wait_s=wait_s)
        return found

    def control_buttons(self) -> None:
        """In a notebook: buttons for `control` (needs ipywidgets; without it, a line that says how to call)."""
        by_name("control buttons")(self)

    def watch(
        self, metrics: Sequence[str] | str = (), *, every_s: float = 1.0, block: bool | None = None
    ) -> Watched:
        """In a notebook: the curves of these metrics, or of the first few, in the cell, drawn anew until the run ends.

        A run of another process is waited for, until Ctrl-C; one of this kernel is shown in the background, so that it can be
        trained in the same cell. `block` says otherwise.
        """
        made: Watched = by_name("watch run")(self, metrics, every_s=every_s, block=block)
        return made

    # -- what it was given ----------------------------------------------------------------------------------------

    @property
    def params(self) -> Values:
        """Its parameters, nested as they were given."""
        return Values(checked.read_mapping(self.folder / layout.PARAMS))

    @property
    def flat_params(self) -> dict[str, Any]:
        """Its parameters with dotted names."""
        return flatten(checked.read_mapping(self.folder / layout.PARAMS))

    @cached_property
    def variant(self) -> dict[str, Any]:
        """Its flat parameters as JSON holds them, without the seed: what its repeats share."""
        return {key: value for key, value in self.row.params.items() if not _is_seed(key)}

    @cached_property
    def seed(self) -> int | None:
        """The parameter of that name, else what its command's record says."""
        params = self.row.params
        for key in sorted((k for k in params if _is_seed(k)), key=lambda k: (k.count("."), k)):
            if isinstance(params[key], int) and not isinstance(params[key], bool):
                return int(params[key])
        try:
            command = self.command
        except (LuxmeterError, OSError):  # damaged: then nobody knows
            return None
        return command.seed if command is not None else None

    @property
    def environment(self) -> dict[str, Any]:
        """What it ran on: machine, packages, variables."""
        return checked.read_mapping(self.folder / layout.ENVIRONMENT)

    @property
    def command(self) -> Command | None:
        """How it was started; None if it keeps no such record."""
        return read_command(self.folder)

    @property
    def snapshot(self) -> Code | None:
        """Which code ran: its files by name of content, and what git says; None if it keeps none."""
        return read_code(self.folder)

    @property
    def code(self) -> dict[str, str]:
        """The source files that ran: path -> text."""
        kept = self.snapshot
        files = {} if kept is None else kept.files
        return {path: self.blob(content).decode("utf-8", "replace") for path, content in files.items()}

    @property
    def random_state(self) -> dict[str, Any] | None:
        """The state of the generators at its start; None if it keeps none."""
        return read_random(self.folder)

    # -- what people say of it ------------------------------------------------------------------------------------

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return self.marks.tags

    @property
    def note(self) -> str:
        """What somebody wrote about it."""
        return self.marks.note

    @property
    def archived(self) -> bool:
        """Whether lists leave it out."""
        return self.marks.archived

    def tag(self, *tags: str) -> None:
        """Add tags."""
        self.marks.tag(*tags)

    def untag(self, *tags: str) -> None:
        """Take tags away."""
        self.marks.untag(*tags)

    def set_note(self, note: str) -> None:
        """Write a note in place of the one there is."""
        self.marks.set_note(note)

    def archive(self, archived: bool = True) -> None:
        """Leave it out of lists, or bring it back."""
        self.marks.set_archived(archived)

    # -- what it logged -------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Each metric's n, last, last_step, min and max."""
        return self.metrics_of(0)

    @property
    def ranks(self) -> list[int]:
        """The other ranks than 0 that logged something in it."""
        return list(rank_folders(self.folder))

    def metrics_of(self, rank: int) -> dict[str, dict[str, Any]]:
        """The same of what another rank logged; of rank 0 it is `metrics`."""
        folder = self._of_rank(rank)
        kept = checked.read_summary(folder)
        if kept is None:
            place = folder / layout.TABLES / layout.METRICS
            with reading(place):
                made = {key: summary.record() for key, summary in summarise_table(folder).items()}
            kept = checked.check_summary(place, made)
        return kept

    def _of_rank(self, rank: int) -> Path:
        if rank == 0:
            return self.folder
        found = rank_folders(self.folder)
        if rank not in found:
            has = f"ranks 0, {', '.join(map(str, found))}" if found else "rank 0 alone"
            raise StoreError(
                "rank-not-logged", f"Run {self.id} has nothing of rank {rank}.", f"It has what {has} logged."
            )
        return found[rank]

    @cached_property
    def summary(self) -> dict[str, dict[str, Any]]:
        """`metrics` as lists show them: what is not a number is None."""
        return self.row.metrics

    def metric(self, key: str, *, rank: int = 0) -> Points:
        """The points of one metric, in the order they were logged; `rank=1`, or `loss@rank1`: those that this rank logged."""
        columns = ["step", "value", "time_ns"]
        place = self._of_rank(rank) / layout.TABLES / layout.METRICS
        table = read_segments(place, columns=columns, only=("key", key))
        if table is None or not table.num_rows:
            of_rank = split_rank(key) if rank == 0 else None
            if of_rank is not None and of_rank[1] in self.ranks:
                return self.metric(of_rank[0], rank=of_rank[1])
            known = self.metrics_of(rank)
            raise StoreError(
                "metric-missing",
                f"Run {self.id} has no metric {key!r}{f' of rank {rank}' if rank else ''}.",
                suggestion(key, known) or f"It has: {', '.join(known) or 'none'}.",
            )
        with reading(place):
            return Points(key, table.cast(pa.schema([metric_schema().field(name) for name in columns])))

    @property
    def sources(self) -> dict[str, str]:
        """Of metrics that the program did not log itself: from where they were taken (tensorboard, wandb, mlflow, output)."""
        return checked.read_sources(self.folder)

    def tables(self) -> list[str]:
        """The names of its tables."""
        return list(tables_of(self.folder))

    def table(self, name: str, *, columns: list[str] | None = None) -> pa.Table:
        """A table as Arrow. `metrics` and `objects` are there, empty, even if nothing was logged."""
        known = {layout.METRICS: metric_schema(), layout.OBJECTS: object_schema()}
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

    def objects(self, key: str | None = None, *, rank: int = 0) -> list[dict[str, Any]]:
        """What was logged that is not a number, with its text decoded: text, arrays, histograms, images, files."""
        place = self._of_rank(rank) / layout.TABLES / layout.OBJECTS
        table = read_segments(place)
        with reading(place):
            rows = [] if table is None else table.to_pylist()
            return [
                {**row, "text": from_json(json.loads(row["text"]))}
                for row in rows
                if key is None or row["key"] == key
            ]

    def follow(
        self, name: str = layout.METRICS, *, position: Mapping[str, Sequence[int]] | None = None
    ) -> Follower:
        """A reader of a growing table: each `new()` gives only the rows that came since (or since another's `position`)."""
        return Follower(self.folder / layout.TABLES / name, position)

    def follow_output(self, position: Mapping[str, Sequence[int]] | None = None) -> OutputFollower:
        """A reader of what it prints: each `new()` gives only what came since (or since another's `position`)."""
        return OutputFollower(self.folder, position)

    def blob(self, name: str) -> bytes:
        """The content kept under its SHA-256."""
        return read_blob(self.folder, name)

    @property
    def log_text(self) -> str:
        """What the program printed, stdout and stderr; empty if it keeps none."""
        return read_output(self.folder)

    @property
    def log_end(self) -> str:
        """The last lines of it; of a long one not all is read."""
        return read_output_end(self.folder)

    # -- what was measured in it ----------------------------------------------------------------------------------

    def results(self, kind: str = "") -> list[Result]:
        """What was measured in it: all, or of one kind (trace, ops, bench, model, zen, search, eval), the last made last."""
        return results_of(self.folder, kind)

    @property
    def trace(self) -> TraceResult | None:
        """Its last trace; None if it has none."""
        found: TraceResult | None = self._last("trace")
        return found

    @property
    def ops(self) -> Operators | None:
        """The operators that were extracted last; None if there are none."""
        found: Operators | None = self._last("ops")
        return found

    @property
    def bench(self) -> BenchResult | None:
        """Its last benchmark; None if it has none."""
        found: BenchResult | None = self._last("bench")
        return found

    @property
    def check(self) -> CheckResult | None:
        """Its last check; None if it has none."""
        found: CheckResult | None = self._last("check")
        return found

    @property
    def model(self) -> ModelCost | None:
        """What a model costs, as it was analysed last; None if none was."""
        found: ModelCost | None = self._last("model")
        return found

    def _last(self, kind: str) -> Any:
        found = self.results(kind)
        return found[-1].load() if found else None

    # -- its files ------------------------------------------------------------------------------------------------

    @property
    def files(self) -> list[str]:
        """The names of its files: what was put into it, and what it left in the folders that were watched."""
        put = [name for name in self.put_files() if name not in OWN_FILES]
        return sorted({*put, *(change.name for change in self.final_files.values())})

    def put_files(self) -> list[str]:
        """The files that were put into it, by name, its own records among them."""
        root = self.folder / layout.FILES
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    def file(self, name: str) -> Path:
        """Where a file lies that was put into it."""
        path = inside(self.folder / layout.FILES, name)
        if not path.is_file():
            raise StoreError(
                "file-missing",
                f"Run {self.id} has no file {name!r}.",
                suggestion(name, self.put_files()) or f"It has {len(self.put_files())} files.",
            )
        return path

    def read_file(self, name: str) -> bytes:
        """The content of one of `files`."""
        if name in self.put_files():
            return self.file(name).read_bytes()
        for change in self.final_files.values():
            if change.name == name:
                if change.kept:
                    return self.blob(change.sha256)
                raise StoreError(
                    "file-not-kept",
                    f"Run {self.id} knows {name} by its content's hash only ({change.size_bytes} bytes).",
                    f"It was written to {change.folder}.",
                )
        raise StoreError(
            "run-file-missing",
            f"Run {self.id} has no file {name!r}.",
            suggestion(name, self.files) or f"It has {len(self.files)} files.",
        )

    @property
    def changed_files(self) -> list[FileChange]:
        """What happened to files in the watched folders, in the order it was seen."""
        return read_changes(self.folder)

    @property
    def final_files(self) -> dict[tuple[str, str], FileChange]:
        """(folder, path) -> the last that was seen of each file that is still there."""
        last = {(change.folder, change.path): change for change in self.changed_files}
        return {place: change for place, change in last.items() if change.event != "removed"}

    # -- as a value -----------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """Everything that is known of it, as plain values."""
        snapshot, command = self.snapshot, self.command
        git = dict(snapshot.git) if snapshot and snapshot.git else None
        changes = str(git.pop("diff", "")) if git else ""
        others = {f"rank {rank}": self.metrics_of(rank) for rank in self.ranks}
        return {
            "id": self.id,
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "error": self.error,
            "created": self.created.isoformat(timespec="seconds"),
            "duration": self.duration,
            "parent": self.parent,
            "children": self.children,
            "tags": self.tags,
            "note": self.note,
            "archived": self.archived,
            "params": dict(self.params),
            "metrics": self.metrics,
            **({"metrics_from": sources} if (sources := self.sources) else {}),
            **({"metrics_of_other_ranks": others} if others else {}),
            "command": None if command is None else command.record(),
            "code": None
            if snapshot is None
            else {"root": snapshot.root, "files": sorted(snapshot.files), "git": git},
            "changes": changes,
            "environment": self.environment,
            "files": self.files,
            "results": [result.record() for result in self.results()],
            "process": self.identity.get("process"),
            "folder": str(self.folder),
        }

    def __repr__(self) -> str:
        return f"<run {self.id} {self.name!r} {self.state}>"

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("run html")(self)
        return shown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.folder == other.folder

    def __hash__(self) -> int:
        return hash(self.folder)


def split_rank(key: str) -> tuple[str, int] | None:
    """`loss@rank1` -> ("loss", 1); None if a name says no rank."""
    name, at, number = key.rpartition("@rank")
    return (
        (name, int(number)) if at and number.isascii() and number.isdecimal() and len(number) < 10 else None
    )


def _is_seed(key: str) -> bool:
    return key.rpartition(".")[2] in SEED_NAMES
