"""A trace as files for other tools: csv, json, parquet, DataFrame, Perfetto, collapsed stacks, one HTML page."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from luxmeter.by_name import by_name
from luxmeter.calls.callers import callers_of
from luxmeter.calls.formats import trace_format_of
from luxmeter.calls.groups import distinct_rows
from luxmeter.calls.reader import Numbers
from luxmeter.calls.records import OWN, RAISED
from luxmeter.calls.result import TraceResult, write_parquet
from luxmeter.calls.table import BY, on_device
from luxmeter.calls.tree import CallTree
from luxmeter.calls.window import Window, in_window
from luxmeter.csv_text import csv_text
from luxmeter.errors import MissingExtraError, TraceError, UsageError, suggestion

if TYPE_CHECKING:
    import pandas as pd


class HasResult(Protocol):
    """A Trace: what it has recorded until now."""

    @property
    def result(self) -> TraceResult:
        """All of it."""


WHAT = ("calls", *BY)
_ROWWISE = ("csv", "json", "parquet")
_ROWS = 65_536  # at a time: a file of any length needs little memory


def write(
    trace: HasResult | TraceResult,
    path: str | Path,
    *,
    format: str | None = None,
    what: str = "calls",
    window: Window | None = None,
) -> Path:
    """Write a trace, or a part of it, to a file; the format is that of the name's ending unless given.

    csv, json and parquet hold every call, or with `what` the table by "api", "signature", "module" and so on.
    """
    target = Path(path)
    chosen = trace_format_of(target.name, format)
    check_what(chosen, what)
    whole = _result(trace)
    result = in_window(whole, window)
    with _new_file(target) as temporary:
        if chosen == "html":
            page = by_name("trace page")(result, title=target.stem, window=window or Window())
            temporary.write_text(page, encoding="utf-8")
        elif chosen == "perfetto":
            with open(temporary, "w", encoding="utf-8") as stream:
                _write_perfetto(result, stream, whole.recording.first_ns)
        elif chosen == "collapsed":
            temporary.write_text("".join(f"{line}\n" for line in collapsed(result.tree())), encoding="utf-8")
        else:
            _write_rows(_tables(result, what, temporary.parent), temporary, chosen)
    return target


def check_what(format: str, what: str) -> None:
    """Refuse what a file of this format cannot hold."""
    if what not in WHAT:
        raise UsageError(
            "unknown-grouping",
            f"A file cannot hold a table by {what!r}.",
            suggestion(what, WHAT) or f"It knows {', '.join(WHAT)}.",
        )
    if what != "calls" and format not in _ROWWISE:
        raise UsageError(
            "no-table-in-format",
            f"A file of the format {format} does not hold the table by {what}.",
            f"The formats of rows do: {', '.join(_ROWWISE)}.",
        )


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


def arrow(trace: HasResult | TraceResult, what: str = "calls", *, window: Window | None = None) -> pa.Table:
    """Every call with its signature in words, or the table by `what`, as an Arrow table."""
    check_what("parquet", what)
    result = in_window(_result(trace), window)
    if what != "calls":
        return pa.Table.from_pylist(
            [asdict(row) for row in result.table(what)], schema=_ROW_SCHEMA
        ).rename_columns([what if name == "name" else name for name in _ROW_SCHEMA.names])
    return pa.concat_tables(_tables(result, what)).combine_chunks()


def _tables(result: TraceResult, what: str, folder: Path | None = None) -> Iterator[pa.Table]:
    """The rows of a file, chunk by chunk. `folder`: where a temporary file may lie."""
    if what != "calls":
        yield pa.Table.from_pylist(
            [asdict(row) for row in result.table(what)], schema=_ROW_SCHEMA
        ).rename_columns([what if name == "name" else name for name in _ROW_SCHEMA.names])
        return
    result.need_events("events()")
    recording = result.recording
    words = [str(s) if s is not None else "" for s in recording.signatures]
    distinct = {word: i for i, word in enumerate(dict.fromkeys(words))}
    lookup = np.array([distinct[word] for word in words], dtype=np.int32)
    with callers_of(recording, folder, own_work=False) as parent:
        for row, events in recording.chunks():
            at = np.flatnonzero((events["flags"] & OWN) == 0)
            chosen = {name: column[at] for name, column in events.items()}
            table = result.table_of(chosen, parent[row + at])
            text = pa.DictionaryArray.from_arrays(
                lookup[chosen["signature"]], pa.array(list(distinct), pa.string())
            )
            table = table.set_column(table.schema.get_field_index("signature"), "signature", text)
            yield table.drop_columns(["own"])


_ROW_SCHEMA = pa.schema(
    [("name", pa.string()), ("detail", pa.string()), ("n", pa.int64()), ("total_ns", pa.int64()), ("self_ns", pa.int64()),
     ("mean_ns", pa.float64()), ("min_ns", pa.int64()), ("p50_ns", pa.int64()), ("p95_ns", pa.int64()),
     ("p99_ns", pa.int64()), ("max_ns", pa.int64()), ("first_ns", pa.int64()), ("share", pa.float64()),
     ("raised", pa.int64()), ("dispatch_ns", pa.int64()), ("framework", pa.string()), ("device_ns", pa.int64()),
     ("memory_bytes", pa.int64())]
)  # fmt: skip


def frame(
    trace: HasResult | TraceResult, what: str = "calls", *, window: Window | None = None
) -> pd.DataFrame:
    """The same as a pandas DataFrame."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "pandas-missing", "A DataFrame needs pandas, which is not installed.", "pip install pandas"
        ) from None
    found: pd.DataFrame = arrow(trace, what, window=window).to_pandas()
    return found


def _write_rows(tables: Iterator[pa.Table], path: Path, format: str) -> None:
    if format == "parquet":
        write_parquet(tables, path)
        return
    with open(path, "w", encoding="utf-8", newline="") as stream:
        if format == "csv":
            for number, table in enumerate(tables):
                if not number:
                    stream.write(csv_text([table.column_names]))
                for batch in table.to_batches(max_chunksize=_ROWS):
                    stream.write(csv_text(zip(*map(_python_values, batch.columns), strict=True)))
            return
        stream.write("[")
        before = "\n"
        for table in tables:
            for batch in table.to_batches(max_chunksize=_ROWS):
                for row in zip(*map(_python_values, batch.columns), strict=True):
                    stream.write(
                        before
                        + json.dumps(dict(zip(table.column_names, row, strict=True)), ensure_ascii=False)
                    )
                    before = ",\n"
        stream.write("\n]\n")


def _python_values(column: pa.Array) -> list[Any]:
    """As to_pylist(), but text that recurs is made once: an order of magnitude quicker."""
    if isinstance(column, pa.DictionaryArray):
        words = column.dictionary.to_pylist()
        return [words[k] for k in column.indices.to_numpy().tolist()]
    values: list[Any] = (
        column.to_pylist() if column.null_count else column.to_numpy(zero_copy_only=False).tolist()
    )
    return values


def _write_perfetto(result: TraceResult, stream: IO[str], zero_ns: int) -> None:
    """The Trace Event Format's JSON object: complete events ("X"), times in microseconds, names of lanes ("M")."""
    stream.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    recording = result.recording
    lines = []
    for process in recording.processes:
        lines.append({"ph": "M", "name": "process_name", "pid": process.pid, "tid": 0,
                      "args": {"name": f"rank {process.rank} (process {process.pid})"}})  # fmt: skip
        lines += [
            {"ph": "M", "name": "thread_name", "pid": process.pid, "tid": number, "args": {"name": name}}
            for number, name in process.threads.items()
        ]
    stream.write(",\n".join(json.dumps(line, ensure_ascii=False) for line in lines))
    before = ",\n" if lines else ""
    heads: dict[tuple[int, ...], str] = {}
    # From the last chunk on: a caller ends after what it calls, and is to come before it.
    for _, events in recording.chunks(backwards=True):
        at = np.flatnonzero((events["flags"] & OWN) == 0)
        at = at[np.lexsort([events[name][at] for name in ("depth", "start_ns", "thread", "process")])]
        for first in range(0, len(at), _ROWS):
            here = at[first : first + _ROWS]
            part = {name: events[name][here] for name in (*_KIND, "flags")}
            kinds, code = _kinds_of_events(part)
            for kind in kinds:
                if tuple(kind) not in heads:
                    heads[tuple(kind)] = _head(result, *kind)
            begin = [heads[tuple(kind)] for kind in kinds]
            starts = ((events["start_ns"][here] - zero_ns) / 1e3).tolist()
            lengths = ((events["duration_ns"][here] + events["own_ns"][here]) / 1e3).tolist()
            stream.write(before)
            stream.write(
                ",\n".join(
                    [f'{begin[k]}"ts":{ts},"dur":{dur}}}' for k, ts, dur in zip(code.tolist(), starts, lengths, strict=True)]
                )
            )  # fmt: skip
            before = ",\n"
    for some in _on_devices(result, zero_ns):
        stream.write(before + ",\n".join(some))
        before = ",\n"
    stream.write("\n]}\n")


_FIRST_DEVICE = 1 << 24  # lanes of devices: beyond all numbers of threads


def _on_devices(result: TraceResult, zero_ns: int) -> Iterator[list[str]]:
    """The calls as the accelerator worked on them, in a lane for each; some lines at a time."""
    recording = result.recording
    if not on_device(recording):
        return
    named: set[tuple[int, int]] = set()
    for _, e in recording.chunks(backwards=True):
        at = np.flatnonzero(e["device_ns"] > 0)
        at = at[np.lexsort([e[name][at] for name in ("depth", "device_start_ns", "device", "process")])]
        process, device = e["process"][at].tolist(), e["device"][at].tolist()
        new = sorted({*zip(process, device, strict=True)} - named)
        named.update(new)
        if new:
            yield [
                json.dumps({"ph": "M", "name": "thread_name", "pid": recording.processes[own].pid, "tid": _FIRST_DEVICE + number,
                            "args": {"name": recording.device_name(own, number)}})
                for own, number in new
            ]  # fmt: skip
        for first in range(0, len(at), _ROWS):
            yield [
                json.dumps(
                    {"ph": "X", "name": recording.callables[e["callable"][k]].shown, "cat": "device", "pid": recording.processes[e["process"][k]].pid,
                     "tid": _FIRST_DEVICE + int(e["device"][k]), "ts": (int(e["device_start_ns"][k]) - zero_ns) / 1e3, "dur": int(e["device_ns"][k]) / 1e3},
                    ensure_ascii=False, separators=(",", ":"),
                )
                for k in at[first : first + _ROWS].tolist()
            ]  # fmt: skip


_KIND = ("callable", "signature", "section", "process", "thread", "site")


def _kinds_of_events(events: dict[str, Numbers]) -> tuple[list[list[int]], Numbers]:
    """The distinct (callable, signature, section, process, thread, site, raised) and which of them each event is."""
    found, code = distinct_rows(
        [*(events[name] for name in _KIND), (events["flags"] & RAISED != 0).astype(np.int64)]
    )
    return found.tolist(), code


def _head(
    result: TraceResult,
    call: int,
    signature: int,
    section: int,
    process: int,
    thread: int,
    site: int,
    raised: int,
) -> str:
    """What events of one kind have in common, as the beginning of a JSON object."""
    recording = result.recording
    words, said = recording.callables[call], recording.signatures[signature]
    args = {
        "api": words.name,
        "with": str(said) if said is not None else "",
        "module": words.path,
        "section": recording.callables[section].name if section else "",
        "line": recording.lines[site],
        "function": place.function if (place := recording.sites[site]) else "",
        "raised": bool(raised),
    }
    event = {
        "ph": "X", "name": words.shown, "cat": "module" if words.path else "call",
        "pid": recording.processes[process].pid, "tid": thread, "args": {k: v for k, v in args.items() if v},
    }  # fmt: skip
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))[:-1] + ","


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


def _result(trace: HasResult | TraceResult) -> TraceResult:
    return trace if isinstance(trace, TraceResult) else trace.result
