"""A trace as files for other tools: csv, json, parquet, DataFrame, Perfetto, collapsed stacks, one HTML page."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from luxmeter.calls.formats import format_of
from luxmeter.calls.results import TraceResult
from luxmeter.calls.session import Trace
from luxmeter.calls.table import BY
from luxmeter.calls.tree import CallTree
from luxmeter.errors import TraceError, UsageError, suggestion

if TYPE_CHECKING:
    import pandas as pd

WHAT = ("calls", *BY)
_ROWS = 65_536  # at a time: a file of any length needs little memory


@dataclass(frozen=True)
class Part:
    """Which calls are written: seconds since the first call, and levels of calls."""

    start_s: float | None = None
    end_s: float | None = None
    depth: int | None = None

    @classmethod
    def parse(cls, window: str, depth: int | None = None) -> Part:
        """From the command line: `1.5:2.0`, `:0.1`, `3:`."""
        ends = window.split(":") if window else ["", ""]
        try:
            start, end = (float(end) if end.strip() else None for end in ends)
        except ValueError:
            raise UsageError(
                "bad-window", f"{window!r} is no window of time.", "Give two times in seconds: 1.5:2.0."
            ) from None
        if start is not None and end is not None and end <= start:
            raise UsageError(
                "bad-window", f"The window {window!r} ends before it starts.", "Give the earlier time first."
            )
        return cls(start, end, depth)


def write(
    trace: Trace | TraceResult,
    path: str | Path,
    *,
    format: str | None = None,
    what: str = "calls",
    part: Part | None = None,
) -> Path:
    """Write a trace to a file; the format is that of the name's ending unless given.

    csv, json and parquet hold every call, or with `what` the table by "api", "signature", "module" and so on.
    """
    target = Path(path)
    chosen = format_of(target.name, format)
    result = _result(trace)
    with _new_file(target) as temporary:
        if chosen == "html":
            from luxmeter.calls.page import trace_page

            temporary.write_text(trace_page(result, title=target.stem, part=part or Part()), encoding="utf-8")
        elif chosen == "perfetto":
            with open(temporary, "w", encoding="utf-8") as stream:
                _write_perfetto(result, stream, part or Part())
        elif chosen == "collapsed":
            temporary.write_text("".join(f"{line}\n" for line in collapsed(result.tree())), encoding="utf-8")
        else:
            _write_rows(arrow(result, what, part=part), temporary, chosen)
    return target


@contextlib.contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A file beside the target that takes its place when all is written."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise TraceError(
            "trace-file-unwritable", f"{target} cannot be written: {error}.", "Give another place for it."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def arrow(trace: Trace | TraceResult, what: str = "calls", *, part: Part | None = None) -> pa.Table:
    """Every call with its signature in words, or the table by `what`, as an Arrow table."""
    result = _result(trace)
    if what not in WHAT:
        raise UsageError(
            "unknown-grouping",
            f"A file cannot hold {what!r}.",
            suggestion(what, WHAT) or f"It knows {', '.join(WHAT)}.",
        )
    if what != "calls":
        return pa.Table.from_pylist(
            [asdict(row) for row in result.table(what)], schema=_ROW_SCHEMA
        ).rename_columns([what if name == "name" else name for name in _ROW_SCHEMA.names])
    events = result.events()
    words = [str(s) if s is not None else "" for s in result.recording.signatures]
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    lookup = np.array([distinct[word] for word in words], dtype=np.int32)
    text = pa.DictionaryArray.from_arrays(lookup[events["signature"].to_numpy()], pa.array(list(distinct)))
    table = events.set_column(events.schema.get_field_index("signature"), "signature", text)
    at = chosen_events(result, part or Part())
    # `parent` is a row number: it follows the rows that are left, -1 where the caller is not among them.
    place = np.full(len(events) + 1, -1, dtype=np.int64)
    place[at] = np.arange(len(at))
    parent = place[events["parent"].to_numpy()[at]]
    kept = table.take(pa.array(at)).drop_columns(["own"])
    return kept.set_column(kept.schema.get_field_index("parent"), "parent", pa.array(parent))


_ROW_SCHEMA = pa.schema(
    [("name", pa.string()), ("detail", pa.string()), ("n", pa.int64()), ("total_ns", pa.int64()), ("self_ns", pa.int64()),
     ("mean_ns", pa.float64()), ("min_ns", pa.int64()), ("p50_ns", pa.int64()), ("p95_ns", pa.int64()),
     ("p99_ns", pa.int64()), ("max_ns", pa.int64()), ("first_ns", pa.int64()), ("share", pa.float64()),
     ("raised", pa.int64()), ("dispatch_ns", pa.int64()), ("framework", pa.string())]
)  # fmt: skip


def frame(trace: Trace | TraceResult, what: str = "calls", *, part: Part | None = None) -> pd.DataFrame:
    """The same as a pandas DataFrame."""
    from luxmeter.errors import MissingExtraError

    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "pandas-missing", "A DataFrame needs pandas, which is not installed.", "pip install pandas"
        ) from None
    found: pd.DataFrame = arrow(trace, what, part=part).to_pandas()
    return found


def _write_rows(table: pa.Table, path: Path, format: str) -> None:
    if format == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path, compression="zstd")
        return
    with open(path, "w", encoding="utf-8", newline="") as stream:
        if format == "csv":
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(table.column_names)
            for batch in table.to_batches(max_chunksize=_ROWS):
                writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            return
        stream.write("[")
        before = "\n"
        for batch in table.to_batches(max_chunksize=_ROWS):
            for row in batch.to_pylist():
                stream.write(before + json.dumps(row, ensure_ascii=False))
                before = ",\n"
        stream.write("\n]\n")


def chosen_events(result: TraceResult, part: Part) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Row numbers of the calls of a part, the recorder's own work left out."""
    from luxmeter.calls.records import OWN

    events = result.recording.events
    keep = (events["flags"] & OWN) == 0
    since = events["start_ns"] - (int(events["start_ns"].min()) if len(keep) else 0)
    if part.start_s is not None:
        keep &= since >= part.start_s * 1e9
    if part.end_s is not None:
        keep &= since < part.end_s * 1e9
    if part.depth is not None:
        keep &= events["depth"] < part.depth
    return np.flatnonzero(keep)


def _write_perfetto(result: TraceResult, stream: IO[str], part: Part) -> None:
    """The Trace Event Format's JSON object: complete events ("X"), times in microseconds, names of lanes ("M")."""
    stream.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    table = result.events()
    at = chosen_events(result, part)
    words = [str(s) if s is not None else "" for s in result.recording.signatures]
    lines = []
    for process in result.recording.processes:
        lines.append({"ph": "M", "name": "process_name", "pid": process.pid, "tid": 0,
                      "args": {"name": f"rank {process.rank} (process {process.pid})"}})  # fmt: skip
        lines += [
            {"ph": "M", "name": "thread_name", "pid": process.pid, "tid": number, "args": {"name": name}}
            for number, name in process.threads.items()
        ]
    stream.write(",\n".join(json.dumps(line, ensure_ascii=False) for line in lines))
    before = ",\n" if lines else ""
    start = int(result.recording.events["start_ns"].min()) if len(at) else 0
    columns = (
        "label",
        "name",
        "path",
        "section",
        "signature",
        "start_ns",
        "duration_ns",
        "thread",
        "pid",
        "raised",
    )
    for first in range(0, len(at), _ROWS):
        rows = table.select(columns).take(pa.array(at[first : first + _ROWS]))
        for label, name, path, section, signature, start_ns, duration_ns, thread, pid, raised in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            said = {
                "api": name,
                "with": words[signature],
                "module": path,
                "section": section,
                "raised": raised,
            }
            event = {
                "ph": "X", "name": label, "cat": "module" if path else "call", "pid": pid, "tid": thread,
                "ts": (start_ns - start) / 1e3, "dur": duration_ns / 1e3, "args": {k: v for k, v in said.items() if v},
            }  # fmt: skip
            stream.write(before + json.dumps(event, ensure_ascii=False, separators=(",", ":")))
            before = ",\n"
    stream.write("\n]}\n")


def collapsed(tree: CallTree) -> Iterator[str]:
    """Lines `outer;inner nanoseconds`, as flame-graph tools read them; the number is self time."""

    def walk(node: CallTree, above: tuple[str, ...]) -> Iterator[str]:
        here = (*above, (f"{node.name} ({node.path})" if node.path else node.name).replace(";", ":"))
        if node.self_ns > 0:
            yield f"{';'.join(here)} {node.self_ns}"
        for child in node.children:
            yield from walk(child, here)

    for child in tree.children:
        yield from walk(child, ())


def _result(trace: Trace | TraceResult) -> TraceResult:
    return trace.result if isinstance(trace, Trace) else trace
