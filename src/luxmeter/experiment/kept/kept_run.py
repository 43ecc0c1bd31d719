"""A run that is kept, as people ask about it: its parts by name, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from luxmeter.described import TYPE, Kept, type_of, with_type
from luxmeter.errors import MissingNameError, StoreError, suggestion
from luxmeter.experiment import records
from luxmeter.experiment.kept import source_code
from luxmeter.store import Run, RunHead
from luxmeter.store.rows import flatten

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

OWN_FILES = (
    records.COMMAND,
    records.CODE,
    records.RANDOM,
    records.CHILDREN,
    records.ENDING,
)  # ours, not the program's


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    value: float
    time_ns: int


class Points(Sequence[Point]):
    """The points of one metric, in the order they were logged."""

    def __init__(self, key: str, table: pa.Table) -> None:
        self.key = key
        self._table = table

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps, as an array."""
        array: NDArray[np.int64] = self._table.column("step").to_numpy()
        return array

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, as an array."""
        array: NDArray[np.float64] = self._table.column("value").to_numpy()
        return array

    def to_arrow(self) -> pa.Table:
        """As an Arrow table: step, value, time_ns."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """As a DataFrame: step, value, time_ns."""
        frame: pd.DataFrame = self._table.to_pandas()
        return frame

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> Points: ...
    def __getitem__(self, index: int | slice) -> Point | Points:
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            return Points(self.key, self._table.take(list(chosen)))
        at = range(len(self))[index]  # negative ones, and the error for those outside
        return Point(*(self._table.column(name)[at].as_py() for name in Point._fields))

    def __iter__(self) -> Iterator[Point]:
        columns = (self._table.column(name).to_pylist() for name in Point._fields)
        return map(Point._make, zip(*columns, strict=True))

    def __repr__(self) -> str:
        if not len(self):
            return f"<Points {self.key!r}: none>"
        return f"<Points {self.key!r}: {len(self)}, from {self[0].value:.6g} to {self[-1].value:.6g}>"


class Values(Kept):
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


class KeptRun:
    """One run. What lists show comes from the index; everything else is read from its folder when it is asked for."""

    def __init__(self, head: RunHead, lab_folder: Path) -> None:
        self.head = head
        self._lab_folder = lab_folder

    @classmethod
    def of(cls, run: Run) -> KeptRun:
        """From a run that is at hand, wherever it lies."""
        status = run.status
        head = RunHead(run.id, run.name, status["state"], run.created_ns, status["ended_ns"])
        made = cls(head, run.folder.parent.parent)
        made.__dict__["stored"] = run
        return made

    @cached_property
    def stored(self) -> Run:
        """The run's directory."""
        return Run(self._lab_folder / "runs" / self.id, self._lab_folder)

    @property
    def id(self) -> str:
        """Its id."""
        return self.head.id

    @property
    def name(self) -> str:
        """The experiment it belongs to."""
        return self.head.name

    @property
    def status(self) -> str:
        """running, finished, failed, interrupted, lost or damaged."""
        return self.stored.state if self.head.state == "running" else self.head.state

    @property
    def params(self) -> Values:
        """Its parameters, nested as they were given."""
        return Values(self.stored.params)

    @property
    def flat_params(self) -> dict[str, Any]:
        """Its parameters with dotted names."""
        return flatten(self.stored.params)

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return self.stored.tags

    @property
    def note(self) -> str:
        """What somebody wrote about it."""
        return self.stored.marks.note

    @property
    def archived(self) -> bool:
        """Whether lists leave it out."""
        return self.stored.marks.archived

    @property
    def duration(self) -> float | None:
        """How many seconds it took; None while it runs, or if nobody knows when it ended."""
        ended = self.stored.status["ended_ns"] if self.head.ended_ns is None else self.head.ended_ns
        return None if ended is None else (ended - self.head.created_ns) / 1e9

    @property
    def created(self) -> datetime:
        """When it began, in local time."""
        return datetime.fromtimestamp(self.head.created_ns / 1e9).astimezone()

    @property
    def environment(self) -> dict[str, Any]:
        """What it ran on: machine, packages, variables."""
        return self.stored.environment

    @property
    def error(self) -> str:
        """The traceback, if it failed."""
        return str(self.stored.status["error"])

    @property
    def parent(self) -> str | None:
        """The id of the run it belongs to or repeats."""
        found = self.stored.identity.get("parent")
        return None if found is None else str(found)

    @property
    def children(self) -> list[str]:
        """The ids of the runs that were begun inside it."""
        return records.read_children(self.stored)

    @property
    def command(self) -> records.Command | None:
        """How it was started."""
        return records.read_command(self.stored)

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Each metric's n, last, last_step, min and max."""
        return self.stored.summary

    def metric(self, key: str) -> Points:
        """The points of one metric."""
        return Points(key, self.stored.metric(key))

    @property
    def files(self) -> list[str]:
        """The names of its files: what was put into it, and what it left in the folders that were watched."""
        put = [name for name in self.stored.files() if name not in OWN_FILES]
        return sorted({*put, *(f"{c.part}/{c.path}" for c in records.final_files(self.stored).values())})

    @property
    def changed_files(self) -> list[records.FileChange]:
        """What happened to files in the watched folders."""
        return records.changed_files(self.stored)

    def read_file(self, name: str) -> bytes:
        """The content of one of `files`."""
        if name in self.stored.files():
            return self.stored.file(name).read_bytes()
        for change in records.final_files(self.stored).values():
            if f"{change.part}/{change.path}" == name:
                if change.kept:
                    return self.stored.blob(change.sha256)
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
    def log_text(self) -> str:
        """What the program printed."""
        return records.log_text(self.stored)

    @property
    def code(self) -> dict[str, str]:
        """The source files that ran: path -> text."""
        return source_code.texts(self.stored)

    @property
    def folder(self) -> Path:
        """Where it rests."""
        return self.stored.folder

    def tag(self, *tags: str) -> None:
        """Add tags."""
        self.stored.marks.tag(*tags)

    def untag(self, *tags: str) -> None:
        """Take tags away."""
        self.stored.marks.untag(*tags)

    def set_note(self, note: str) -> None:
        """Write a note in place of the one there is."""
        self.stored.marks.set_note(note)

    def archive(self, archived: bool = True) -> None:
        """Leave it out of lists, or bring it back."""
        self.stored.marks.set_archived(archived)

    def __repr__(self) -> str:
        return f"<run {self.id} {self.name!r} {self.head.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptRun) and (self.id, self._lab_folder) == (other.id, other._lab_folder)

    def __hash__(self) -> int:
        return hash(self.id)
