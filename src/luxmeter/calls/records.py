"""What rests on disk of a trace, and its version.

Format history
1: `trace.json` (identity and options); for each process a folder `rank<r>-<pid>` with `words.jsonl` (what ids stand
   for: callables, signatures, threads; appended), events of the schema below in parts (`events/<nnnn>/`,
   Arrow segments while a part grows, then `events/<nnnn>.parquet`; where both are, Parquet counts) and `end.json`
   (counters, cost, float ranges; totals in totals mode; absent if the process was killed).
   An event is written when its call ends. Its parent is not written: it is the next event of its thread, in
   order of writing, whose depth is one less and whose time contains it.
   A signature may say the shapes that its first call gave (`outputs`). `end.json` may say what could not be written
   (`lost_on_disk`, `trouble`); a folder `spawned` has a file for each spawned child that joined, or could not and why.
   `end.json` may say what the version of the framework meant for the trace (`remarks`: lines for notes()).
   `end.json` may say which clock the times are by (`clock`: the boot of a machine, all of whose processes share one).
   A signature may name the group of a collective (a word of kind `group`: its ranks).
   A callable's words may name its framework; where they do not, it is torch (all there was before).
   `trace.json` may say on what it was made (`environment`: processor, versions, threads of torch).
2: An event has a `site`: the line of the program that made the call (0: none). `words.jsonl` says what sites stand for (`site`:
   file, function, line, and what the text of the file is called); texts lie in `sources/`, by content. A row of totals has the
   site before its histogram. A callable's words may say that its end is the end of a training step (`boundary`); `t.step()`
   leaves an event of the recorder's own, of the callable `(step)`. `end.json` has the pauses of each thread (`pauses`: kind, thread,
   start, duration; `short_pauses`: the number and time of those too short to keep). Format 1 is read as if no line were known.
   What calls took on an accelerator, if that was asked for, lies beside the events (`device/<nnnn>`: device_time.py); `end.json` says of which, and
   what was not timed (`device`: name, remarks).
   Every line of `words.jsonl` ends with its CRC-32 (`sum`), `end.json` has one (`$sum`), events are sealed (store/sealed.py).
3: Events lie as the core packed them, not as columns: the segments and the Parquet of a part have one column, `packed`, of pieces
   (what is in one: core/_core.c at "packed events", docs/format.md). Formats 1 and 2 are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from luxmeter.signature import Signature

FORMAT = 3
Shapes: TypeAlias = tuple[tuple[int, ...], ...]

CALL, SPAN, SECTION, OPENS = 0, 1, 2, 3
STEP = "(step)"  # the name of the recorder's own event that t.step() leaves
RAISED, INSIDE, SPANNED, FIRST, COMPLETED, OWN = 1, 2, 4, 8, 16, 32

# The layout of one event in the core's buffers, and the order of the columns on disk.
EVENT_DTYPE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("duration_ns", "<i8"),
        ("child_ns", "<i8"),
        ("wait_ns", "<i8"),
        ("callable", "<u4"),
        ("signature", "<u4"),
        ("thread", "<u4"),
        ("section", "<u4"),
        ("module", "<u4"),
        ("depth", "<u2"),
        ("flags", "<u2"),
        ("site", "<u4"),
    ],
    align=True,
)
assert EVENT_DTYPE.names is not None
EVENT_SCHEMA = pa.schema(
    [pa.field(name, pa.from_numpy_dtype(EVENT_DTYPE[name]), nullable=False) for name in EVENT_DTYPE.names],
    metadata={b"luxmeter.calls": str(FORMAT).encode()},
)


def to_batch(chunks: Sequence[bytes]) -> pa.RecordBatch:
    """Events as they leave the core -> one Arrow batch."""
    events = np.frombuffer(b"".join(chunks), dtype=EVENT_DTYPE)
    # From buffers, not by pa.array: that imports pandas on its first call, a third of a second.
    columns = [
        pa.Array.from_buffers(
            field.type, len(events), [None, pa.py_buffer(np.ascontiguousarray(events[field.name]))]
        )
        for field in EVENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA)


_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}  # what Arrow calls otherwise


def numbers_of(column: pa.Array) -> np.ndarray[Any, Any]:
    """A column of events without a gap as numpy sees it; what pyarrow has for that may import pandas, if there is one."""
    kind = str(column.type)
    found: np.ndarray[Any, Any] = np.frombuffer(column.buffers()[1], _FLOATS.get(kind, kind))
    return found[column.offset : column.offset + len(column)]


@dataclass(frozen=True, slots=True)
class CallableNames:
    """What a callable id stands for."""

    name: str
    label: str = ""  # shown instead of the name where there is a shorter way to write it
    kind: int = CALL
    path: str = ""  # of a module in its model
    framework: str = ""  # whose it is: "torch", "mindspore"; empty for sections and functions of the user's
    boundary: bool = False  # its end is the end of a training step

    @property
    def shown(self) -> str:
        """As the user wrote it."""
        return self.label or self.name


@dataclass(frozen=True, slots=True)
class SignatureNames:
    """What a signature id stands for. `general`: all that came after the limit of one callable."""

    callable: int
    signature: Signature
    general: bool = False
    float_ranges: tuple[tuple[float, float], ...] = ()
    outputs: Shapes | None = None  # of the tensors that its first call gave

    def __str__(self) -> str:
        return "(any: too many signatures)" if self.general else str(self.signature)


@dataclass(frozen=True, slots=True)
class SiteNames:
    """A line of the program that calls. `source`: what the text of its file is called in the trace's folder."""

    file: str
    function: str
    line: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process of a trace: what its ids stand for and what it counted."""

    rank: int
    pid: int
    callables: Mapping[int, CallableNames]
    signatures: Mapping[int, SignatureNames]
    threads: Mapping[int, str]
    end: Mapping[str, Any] = field(default_factory=dict)
    sites: Mapping[int, SiteNames] = field(default_factory=dict)
    has_ended: bool = False  # and said so: all its names were told

    @property
    def complete(self) -> bool:
        """Whether it ended in order (otherwise its last half second may be missing)."""
        return bool(self.end)
