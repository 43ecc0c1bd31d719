"""Events in the core's own packed form, on their way to the disk and back: pieces as rows of a table with one column."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from luxmeter.calls import core, records
from luxmeter.calls.core import _pypack

COLUMN = "packed"
_PIECES = 32  # unpacked at a time: 4 MiB
_SMALL = 1024  # events: pieces that have fewer are worth packing anew
MOST_EVENTS = 1 << 21  # of a part; the writer begins a new one at a sixteenth of it
SCHEMA = pa.schema(
    [pa.field(COLUMN, pa.large_binary(), nullable=False)],
    metadata={b"luxmeter.calls": str(records.FORMAT).encode()},
)
# A row group is 65,536 events at most: what a damaged byte costs. The sizes of pieces are no better for a dictionary.
PARQUET_OPTIONS: dict[str, Any] = {
    "row_group_size": 32,
    "use_dictionary": False,
    "compression": "zstd",
    "compression_level": 1,
    "write_statistics": False,
}


def count(piece: bytes) -> tuple[int, int]:
    """How many events a piece of the core's has, and how many of them are the program's."""
    _, events, own, *_ = struct.unpack_from(_pypack.HEAD, piece)
    return events, events - own


def ids_in(pieces: Iterable[bytes]) -> tuple[set[int], set[int]]:
    """The callables (sections and modules are some, too) and the sites that occur in pieces of the core's."""
    callables: set[int] = set()
    sites: set[int] = set()
    for piece in pieces:
        _, _, _, many, *_ = struct.unpack_from(_pypack.HEAD, piece)
        shapes = np.frombuffer(piece, _pypack.SHAPE, many, _pypack.HEAD_BYTES)
        for name in ("callable", "section", "module"):
            callables.update(shapes[name].tolist())
        sites.update(shapes["site"].tolist())
    return callables, sites


def to_batch(pieces: Sequence[bytes]) -> pa.RecordBatch:
    """Pieces -> what a segment holds of them, as they are."""
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    # From buffers, not by pa.array: that imports pandas on its first call.
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(pieces))]
    column = pa.Array.from_buffers(pa.large_binary(), len(pieces), buffers)
    return pa.RecordBatch.from_arrays([column], schema=SCHEMA)


def to_columns(table: pa.Table) -> pa.Table:
    """What a part holds -> the columns of its events. ValueError if it holds none of ours."""
    unpack = core.load()[0].unpack
    batches, events = [], 0
    for start in range(0, table.num_rows, _PIECES):
        pieces = table.column(COLUMN).slice(start, _PIECES).to_pylist()
        events += sum(count(piece)[0] for piece in pieces)
        if (
            events > MOST_EVENTS
        ):  # three bytes can claim an event of 64, and thousands of such bytes are packed into one
            raise ValueError(f"a part of a trace has no more than {MOST_EVENTS:,} events")
        batches.append(records.to_batch([unpack(piece) for piece in pieces]))
    return pa.Table.from_batches(batches, schema=records.EVENT_SCHEMA)


def folded(table: pa.Table) -> tuple[pa.Table, int]:
    """The same events in pieces that are full, and how many they are. Small pieces, of a program that calls seldom, are packed
    anew: thread by thread, each thread's in their order."""
    pieces = table.column(COLUMN).to_pylist()
    rows = sum(count(piece)[0] for piece in pieces)
    if rows < _SMALL * len(pieces):
        chosen = core.load()[0]
        events = np.frombuffer(b"".join(map(chosen.unpack, pieces)), records.EVENT_DTYPE)
        threads = np.unique(events["thread"])
        pieces = [p for number in threads for p in chosen.pack(events[events["thread"] == number].tobytes())]
    return pa.Table.from_batches([to_batch(pieces)]), rows
