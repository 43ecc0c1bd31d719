"""What reading a large trace takes: time and memory of each view of 1, 10 and 100 million calls, each in a process of its own.

    python benchmarks/large_trace_reading.py                    # 1 and 10 million calls
    python benchmarks/large_trace_reading.py --calls 1e6,1e8    # so many
    python benchmarks/large_trace_reading.py --ranks 64         # a million calls of each rank, merged
    python benchmarks/large_trace_reading.py --json             # for machines
    python benchmarks/large_trace_reading.py --check            # exit 1 when a goal is missed

The traces are real ones: a small training is traced, and its calls are laid down again and again, each time later, packed and
sealed as the writer does. The time is that of the clock, from load_trace() on (what is needed is imported before), and beside it
that of the processor, which other work on the machine moves less; the memory is the process's highest (of Linux), and how much of
that importing luxmeter and its libraries took is the row "nothing".
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from luxmeter import load_trace
from luxmeter.calls import core, packed
from luxmeter.calls.reader import events_of_part, parts_of
from luxmeter.calls.records import EVENT_DTYPE, EVENT_SCHEMA
from luxmeter.calls.writer import PART_ROWS
from luxmeter.files import read_json, write_json
from luxmeter.store import write_sealed

VIEWS = ("nothing", "table", "signature", "line", "function", "module", "thread", "tree", "outside", "steps", "source", "page",
         "csv", "parquet", "perfetto", "collapsed", "diff", "less", "sql", "column", "timeline")  # fmt: skip
GOALS = {"table": (30.0, 1e9), "tree": (60.0, 2e9)}  # of 100 million calls: seconds, bytes
PAGE_BYTES = 10e6
FILES = {"csv": "calls.csv", "parquet": "calls.parquet", "perfetto": "calls.perfetto.json", "collapsed": "calls.folded",
         "page": "calls.html"}  # fmt: skip


def record(folder: Path) -> Path:
    """A trace of a training of some hundred thousand calls: modules, operators, lines, steps, a section."""
    import torch

    import luxmeter as lux

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with lux.trace(keep=folder, lossless=True, inside=True) as t:
        for _ in range(4000):
            x = torch.ones(4, 8)
            with t.section("forward"):
                y = model(x)
                loss = ((y - 1) ** 2).mean() + x.sum() * 0
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return folder


def _lay(path: Path, events: pa.Table) -> None:
    rows = np.empty(len(events), EVENT_DTYPE)
    for name in events.column_names:
        rows[name] = events.column(name).to_numpy()
    pieces = core.load()[0].pack(rows.tobytes())
    write_sealed(path, pa.Table.from_batches([packed.to_batch(pieces)]), packed.PARQUET_OPTIONS)


def repeat(source: Path, target: Path, calls: int) -> int:
    """Lay the calls of a trace down again and again, each time later; how many there are then."""
    (process,) = source.glob("rank*-*")
    shutil.copytree(source, target, ignore=lambda _, names: [n for n in names if n == "events"])
    folder = target / process.name
    (folder / "events").mkdir()
    once = pa.concat_tables(events_of_part(part) for part in parts_of(process)).combine_chunks()
    start = once.column("start_ns").to_numpy()
    length = int(start.max() - start.min()) + 1_000_000
    end = read_json(folder / "end.json") or {}
    end.pop("$sum", None)
    place, n, rows, waiting = EVENT_SCHEMA.get_field_index("start_ns"), 0, 0, []
    times = max(1, -(-calls // len(once)))
    part = 0
    for turn in range(times):
        waiting.append(
            once.set_column(place, EVENT_SCHEMA.field("start_ns"), pa.array(start + turn * length))
        )
        rows += len(once)
        while rows >= PART_ROWS or (turn == times - 1 and rows):
            left = pa.concat_tables(waiting)
            _lay(folder / "events" / f"{part:04}.parquet", left.slice(0, PART_ROWS).combine_chunks())
            waiting = [left.slice(PART_ROWS)]
            rows = waiting[0].num_rows
            n += min(PART_ROWS, len(left))
            part += 1
    end["elapsed_ns"] = end["elapsed_ns"] + (times - 1) * length
    write_json(folder / "end.json", end, summed=True)
    return n


def view(folder: Path, name: str) -> dict[str, Any]:
    """One view of a trace, in this process: seconds, the highest memory, and the bytes of what was written."""
    import pyarrow.parquet  # noqa: F401

    from luxmeter.calls import Lanes, diff_traces, export

    begun, busy = time.perf_counter(), time.process_time()
    out: Path | None = None
    if name != "nothing":
        result = load_trace(*sorted(folder.glob("rank-*")) or [folder])
        if name in FILES:
            out = folder.with_name(f"{folder.name}.{name}") / FILES[name]
            export.write(result, out)
        elif name == "diff":
            diff_traces(result, load_trace(*sorted(folder.glob("rank-*")) or [folder]))
        elif name == "less":
            result.table(subtract_cost=True)
        elif name == "sql":
            result.sql("select name, median(duration_ns) from calls group by name")
        elif name == "column":
            result.events(["duration_ns"])
        elif name == "timeline":
            lanes = Lanes(result.recording)
            middle = lanes.end_ns // 2
            for window_ns in (
                lanes.end_ns // 50,
                1_000_000,
            ):  # once some hundredths of the trace, once a step
                lanes.of(middle, middle + window_ns, window_ns // 1200)
        elif name in ("tree", "outside", "steps", "source"):
            str(getattr(result, name)())
        else:
            result.table("api" if name == "table" else name)
    took, busy = time.perf_counter() - begun, time.process_time() - busy
    size = out.stat().st_size if out is not None else 0
    if out is not None:
        shutil.rmtree(out.parent)
    return {
        "seconds": took,
        "processor": busy,
        "bytes": _highest(),
        "file": size,
    }


def _highest() -> int:
    """Bytes. Not by getrusage, which begins with those of the process that started this one."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024


def measured(folder: Path, name: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--view", name, "--folder", str(folder)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def main() -> int:
    """Make the traces, look at them, say what it took."""
    asks = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asks.add_argument("--calls", default="1e6,1e7", help="how many calls, with commas between")
    asks.add_argument("--ranks", type=int, default=1, help="of each of so many ranks")
    asks.add_argument("--views", default=",".join(VIEWS))
    asks.add_argument("--json", action="store_true")
    asks.add_argument("--check", action="store_true")
    asks.add_argument("--keep", type=Path, help="where the traces are made and stay, for another time")
    asks.add_argument("--view", help=argparse.SUPPRESS)
    asks.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = asks.parse_args()
    if asked.view:
        print(json.dumps(view(asked.folder, asked.view)))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        place = asked.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        once = place / "once"
        if not once.exists():
            record(once)
        rows = []
        for calls in (int(float(word)) for word in asked.calls.split(",")):
            folder = place / f"{calls}x{asked.ranks}"
            if not folder.exists():
                for rank in range(asked.ranks):
                    repeat(once, folder / f"rank-{rank:03}" if asked.ranks > 1 else folder, calls)
                    if asked.ranks > 1:
                        _as_rank(folder / f"rank-{rank:03}", rank)
            size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
            for name in asked.views.split(","):
                rows.append(
                    {"calls": calls * asked.ranks, "on disk": size, "view": name, **measured(folder, name)}
                )
                if not asked.json:
                    print("{calls:>13,} calls {view:>10} {seconds:8.2f} s {processor:8.2f} s busy {0:7.0f} MB {1:9.1f} MB written"
                          .format(rows[-1]["bytes"] / 1e6, rows[-1]["file"] / 1e6, **rows[-1]), flush=True)  # fmt: skip
        if asked.json:
            print(json.dumps(rows, indent=1))
    missed = [row for row in rows if _misses(row)]
    for row in missed:
        print(f"missed: {row}", file=sys.stderr)
    return 1 if asked.check and missed else 0


def _as_rank(folder: Path, rank: int) -> None:
    (process,) = folder.glob("rank0-*")
    process.rename(process.with_name(f"rank{rank}-{1000 + rank}"))
    path = next(folder.glob("rank*-*")) / "end.json"
    end = read_json(path) or {}
    end.pop("$sum", None)
    write_json(path, end | {"rank": rank}, summed=True)


def _misses(row: dict[str, Any]) -> bool:
    seconds, most = GOALS.get(row["view"], (np.inf, np.inf))
    of_table = row["view"] == "table" and row["calls"] <= 1.1e6 and row["seconds"] > 0.3
    return (
        row["seconds"] > seconds
        or row["bytes"] > most
        or of_table
        or (row["view"] == "page" and row["file"] > PAGE_BYTES)
    )


if __name__ == "__main__":
    sys.exit(main())
