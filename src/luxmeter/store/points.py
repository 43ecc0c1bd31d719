"""Metric points: from the tuples that training leaves in a queue to record batches and running summaries; and read back."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from luxmeter.errors import UsageError
from luxmeter.late import late
from luxmeter.store import layout, segments

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray
else:
    pa = late("pyarrow")
    np = late("numpy")


# Format history of tables/metrics
# 1: key, step, value, time_ns (Unix time).
@cache
def metric_schema() -> pa.Schema:
    """Of the points of metrics."""
    return pa.schema(
        [
            pa.field("key", pa.dictionary(pa.int32(), pa.string())),
            pa.field("step", pa.int64()),
            pa.field("value", pa.float64()),
            pa.field("time_ns", pa.int64()),
        ],
        metadata={"luxmeter.format": "1"},
    )


# Format history of tables/objects
# 1: key, step, time_ns, kind, text (JSON), blob (SHA-256, empty if it has no body), suffix of the blob's content.
@cache
def object_schema() -> pa.Schema:
    """Of what is no number."""
    return pa.schema(
        [
            pa.field("key", pa.string()),
            pa.field("step", pa.int64()),
            pa.field("time_ns", pa.int64()),
            pa.field("kind", pa.string()),
            pa.field("text", pa.string()),
            pa.field("blob", pa.string()),
            pa.field("suffix", pa.string()),
        ],
        metadata={"luxmeter.format": "1"},
    )


METRIC_PARQUET = {
    "use_dictionary": ["key"],
    "column_encoding": {
        "step": "DELTA_BINARY_PACKED",
        "time_ns": "DELTA_BINARY_PACKED",
        "value": "BYTE_STREAM_SPLIT",
        "_order": "DELTA_BINARY_PACKED",
    },
}

# One point after the other, flat: key, value (a float, or a one-element tensor still to be read), step, time_ns.
# Flat, because a tuple a point kept for half a second is work for the garbage collector. `list.extend` with a tuple
# and the two slice operations of `take` are each one step to other threads, so no lock is needed.
Queue = list[Any]
Dropped = tuple[Any, str]  # the key of a point that no table takes, and why
EDGE = 1 << 63  # steps and times have 64 bits


@dataclass
class Summary:
    """What lists show of a metric: its points in short. Not-a-number counts, but is neither least nor greatest."""

    n: int = 0
    last: float = math.nan
    last_step: int = 0
    least: float = math.inf
    greatest: float = -math.inf

    def add(self, values: np.ndarray[Any, Any], last_step: int) -> None:
        """Take in further points."""
        self.n += values.size
        self.last = float(values[-1])
        self.last_step = last_step
        numbers = values[~np.isnan(values)]
        if numbers.size:
            self.least = min(self.least, float(numbers.min()))
            self.greatest = max(self.greatest, float(numbers.max()))

    def record(self) -> dict[str, Any]:
        """As it rests in summary.json."""
        seen = self.least <= self.greatest
        return {
            "n": self.n,
            "last": self.last,
            "last_step": self.last_step,
            "min": self.least if seen else math.nan,
            "max": self.greatest if seen else math.nan,
        }


def take(queue: Queue) -> list[Any]:
    """Everything that is in the queue now. Points put in meanwhile stay; none is lost or taken twice."""
    taken = queue[: len(queue)]
    del queue[: len(taken)]
    return taken


def to_batch(flat: list[Any], summaries: dict[str, Summary], dropped: list[Dropped]) -> pa.RecordBatch:
    """The points as a record batch; `summaries` take them in. A point that no table takes is `dropped`, alone."""
    try:
        return _batch(flat, summaries)
    except Exception:  # noqa: BLE001  (whatever a value that is read only now may raise)
        return _batch(_sound(flat, dropped), summaries)


def _batch(flat: list[Any], summaries: dict[str, Summary]) -> pa.RecordBatch:
    keys, values, steps, times = flat[0::4], flat[1::4], flat[2::4], flat[3::4]
    n = len(keys)
    names = list(dict.fromkeys(keys))
    code_of = {name: code for code, name in enumerate(names)}
    codes = np.fromiter(map(code_of.__getitem__, keys), np.int32, n)
    numbers = np.fromiter(values, np.float64, n)
    step_array = np.fromiter(steps, np.int64, n)
    columns = [
        pa.DictionaryArray.from_arrays(_numbers(codes, pa.int32()), _texts(names)),
        _numbers(step_array, pa.int64()),
        _numbers(numbers, pa.float64()),
        _numbers(np.fromiter(times, np.int64, n), pa.int64()),
    ]
    _summarise(summaries, names, codes, numbers, step_array)  # last: what failed above is not counted
    return pa.RecordBatch.from_arrays(columns, schema=metric_schema())


def _sound(flat: list[Any], dropped: list[Dropped]) -> list[Any]:
    """The points that a table takes, each looked at by itself."""
    sound: list[Any] = []
    for at in range(0, len(flat), 4):
        key, value, step, time_ns = flat[at : at + 4]
        try:
            point = (key, float(value), int(step), int(time_ns))
            why = key_problem(key) or step_problem(step)
            if not why and not fits(time_ns):
                why = f"has the time {time_ns}"
        except Exception as error:  # noqa: BLE001  (as above)
            why = f"cannot be read as a number ({type(error).__name__}: {error})"
        if why:
            dropped.append((key, why))
        else:
            sound += point
    return sound


def to_object_batch(rows: Sequence[tuple[Any, ...]], dropped: list[Dropped]) -> pa.RecordBatch:
    """Object rows (in the schema's order) as a record batch. A row that no table takes is `dropped`, alone."""
    try:
        return _object_batch(rows)
    except Exception:  # noqa: BLE001  (whatever is wrong with one of them)
        sound = []
        for row in rows:
            try:
                _object_batch([row])
                sound.append(row)
            except Exception as error:  # noqa: BLE001  (as above)
                dropped.append((row[0], f"cannot be kept ({type(error).__name__}: {error})"))
        return _object_batch(sound)


def _object_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    listed = zip(*rows, strict=True) if rows else [()] * len(object_schema())
    columns = [
        _texts(column) if field.type == pa.string() else _numbers(np.array(column, np.int64), pa.int64())
        for column, field in zip(listed, object_schema(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=object_schema())


def key_problem(key: Any) -> str:
    """Why a metric cannot have this name; empty if it can."""
    if not isinstance(key, str):
        return f"is of type {type(key).__name__}, not text"
    return "" if is_storable(key) else "holds half a character, which no file of text can hold"


def checked_key(key: Any) -> str:
    """The name of a metric, or an error that says why it cannot be one."""
    if why := key_problem(key):
        raise UsageError("metric-key", f"{key!r} {why}.", "Name a metric by a text.")
    return str(key)


def checked_step(key: str, step: Any) -> int:
    """The step as an integer that a table takes, or an error that names the key."""
    try:
        number = operator.index(step.item() if hasattr(step, "item") else step)
    except Exception:  # noqa: BLE001  (a tensor of several elements, or without data, raises what it likes)
        raise UsageError(
            "step-not-integer", f"{key!r} has the step {step!r}.", "A step is an integer."
        ) from None
    if why := step_problem(number):
        raise UsageError("step-too-large", f"{key!r} {why}.", "Count steps from 0.")
    return number


def is_storable(text: str) -> bool:
    """Whether the text has bytes in UTF-8: half characters (odd bytes of a file name) have none."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def step_problem(step: int) -> str:
    """Why a point cannot have this step; empty if it can."""
    return "" if fits(step) else f"has the step {step}, which is beyond 64 bits"


def fits(number: int) -> bool:
    """Whether an integer has room in a column."""
    return -EDGE <= number < EDGE


def dropped_text(dropped: Sequence[Dropped]) -> str:
    """Which points were dropped, and why."""
    told = dict.fromkeys(f"{key!r} {why}" for key, why in dropped)
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return f"{len(dropped)} point{'s were' if len(dropped) > 1 else ' was'} left out: {'; '.join(list(told)[:3])}{more}"


# From buffers, not by pa.array: that imports pandas on its first call, which can hold the writer up for a second.
def _numbers(array: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, array.size, [None, pa.py_buffer(array)])


def _texts(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def final_summary(run_folder: Path, summaries: dict[str, Summary]) -> dict[str, Any]:
    """The summary of a whole run: as kept while it was written, or made anew if forked children wrote rows too."""
    rows = segments.count_rows(run_folder / layout.TABLES / layout.METRICS)
    if rows != sum(summary.n for summary in summaries.values()):
        summaries = summarise_table(run_folder)
    return {key: summary.record() for key, summary in summaries.items()}


def summarise_table(run_folder: Path) -> dict[str, Summary]:
    """The summaries of a run's metrics, read from its table."""
    table = segments.read_segments(run_folder / layout.TABLES / layout.METRICS)
    summaries: dict[str, Summary] = {}
    if table is not None and table.num_rows:
        add_rows(summaries, table)
    return summaries


def add_rows(summaries: dict[str, Summary], table: pa.Table) -> None:
    """Take rows of the metrics' table into the summaries, in the order they were logged."""
    encoded = table.column("key").combine_chunks().dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    _summarise(summaries, names, codes, table.column("value").to_numpy(), table.column("step").to_numpy())


def _summarise(
    summaries: dict[str, Summary],
    names: list[str],
    codes: np.ndarray[Any, Any],
    values: np.ndarray[Any, Any],
    steps: np.ndarray[Any, Any],
) -> None:
    order = np.argsort(codes, kind="stable") if len(names) > 1 else np.arange(codes.size)
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    start = 0
    for name, end in zip(names, ends, strict=True):
        mine = order[start:end]
        summaries.setdefault(name, Summary()).add(values[mine], int(steps[mine[-1]]))
        start = end


def _as_numpy(column: pa.ChunkedArray, kind: Any) -> Any:
    """From its buffers where no row is null: Arrow's own to_numpy imports pandas, half a second before a run is shown."""
    if column.null_count:
        return column.to_numpy()
    parts = [np.frombuffer(c.buffers()[1], kind, len(c), c.offset * 8) for c in column.chunks if len(c)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


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
        array: NDArray[np.int64] = _as_numpy(self._table.column("step"), np.int64)
        return array

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, as an array."""
        array: NDArray[np.float64] = _as_numpy(self._table.column("value"), np.float64)
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
            return Points(self.key, self._table.take(pa.array(chosen, pa.int64())))
        at = range(len(self))[index]  # negative ones, and the error for those outside
        return Point(*(self._table.column(name)[at].as_py() for name in Point._fields))

    def __iter__(self) -> Iterator[Point]:
        columns = (self._table.column(name).to_pylist() for name in Point._fields)
        return map(Point._make, zip(*columns, strict=True))

    def __repr__(self) -> str:
        if not len(self):
            return f"<Points {self.key!r}: none>"
        return f"<Points {self.key!r}: {len(self)}, from {self[0].value:.6g} to {self[-1].value:.6g}>"
