"""Metric points: from the tuples that training leaves in a queue to record batches and running summaries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from luxmeter.store import layout, segments

# Format history of tables/metrics
# 1: key, step, value, time_ns (Unix time).
METRIC_SCHEMA = pa.schema(
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
OBJECT_SCHEMA = pa.schema(
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


def to_batch(flat: list[Any], summaries: dict[str, Summary]) -> pa.RecordBatch:
    """The points as a record batch; `summaries` take them in."""
    keys, values, steps, times = flat[0::4], flat[1::4], flat[2::4], flat[3::4]
    n = len(keys)
    names = list(dict.fromkeys(keys))
    code_of = {name: code for code, name in enumerate(names)}
    codes = np.fromiter(map(code_of.__getitem__, keys), np.int32, n)
    numbers = np.fromiter(values, np.float64, n)
    step_array = np.fromiter(steps, np.int64, n)
    _summarise(summaries, names, codes, numbers, step_array)
    columns = [
        pa.DictionaryArray.from_arrays(_numbers(codes, pa.int32()), _texts(names)),
        _numbers(step_array, pa.int64()),
        _numbers(numbers, pa.float64()),
        _numbers(np.fromiter(times, np.int64, n), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=METRIC_SCHEMA)


def to_object_batch(rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Object rows (in the schema's order) as a record batch."""
    columns = [
        _texts(column) if field.type == pa.string() else _numbers(np.array(column, np.int64), pa.int64())
        for column, field in zip(zip(*rows, strict=True), OBJECT_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OBJECT_SCHEMA)


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
        encoded = table.column("key").combine_chunks().dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        _summarise(summaries, names, codes, table.column("value").to_numpy(), table.column("step").to_numpy())
    return summaries


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
