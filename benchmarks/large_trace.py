"""Large traces: whether the writer keeps up with the smallest call there is, in how much memory, and what a call takes on disk.

    python benchmarks/large_trace.py                     # 10 million calls of an empty function, lines on
    python benchmarks/large_trace.py --calls 100_000_000
    python benchmarks/large_trace.py --json --check      # for machines; exit 1 when a goal is missed

Each way of recording runs in a process of its own. Calls lost are those the trace itself counts; memory is the resident set's
growth from the first tenth of the calls to its highest later on; bytes are those of all files of the trace when it has stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

WAYS = ("lossless", "lossy")
# Shares of calls lost, MiB more than after the first tenth, bytes a call on disk.
GOALS = {"lossless": {"lost": 0.0}, "lossy": {"lost": 0.01}}
GROWTH_MIB, BYTES = 64.0, 5.0


def empty() -> None:
    """The smallest call."""


def record(way: str, calls: int, folder: Path) -> dict[str, Any]:
    """Trace so many calls of an empty function, in this process."""
    import luxmeter as lux

    me = psutil.Process()
    t = lux.start(framework=None, keep=str(folder), lossless=way == "lossless")
    work = t.wrap(empty, name="empty")
    part = max(calls // 20, 1)
    before = highest = seconds = 0.0
    for k in range(20):
        began = time.perf_counter()
        for _ in range(part):
            work()
        seconds += time.perf_counter() - began
        held = me.memory_info().rss / 2**20
        before = held if k == 1 else before
        highest = max(highest, held)
    began = time.perf_counter()
    lux.stop()
    stopping = time.perf_counter() - began
    (end,) = [json.loads(path.read_text()) for path in folder.glob("rank*/end.json")]
    kept = end["stats"]["events"] - end["lost_on_disk"]
    lost = end["stats"]["lost"] + end["lost_on_disk"]
    assert kept + lost == 20 * part, "calls that are neither kept nor lost"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "way": way,
        "calls": 20 * part,
        "lost": lost / (20 * part),
        "ns_a_call": seconds / (20 * part) * 1e9,
        "stop_s": stopping,
        "memory_mib": highest,
        "growth_mib": highest - before,
        "stopped_mib": me.memory_info().rss / 2**20,
        "bytes_a_call": size / max(kept, 1),
    }


def apart(way: str, calls: int) -> dict[str, Any]:
    """The same in a process of its own, its trace removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            __file__,
            "--calls",
            str(calls),
            "--record",
            way,
            str(Path(folder, "trace")),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ})
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def missed(row: dict[str, Any]) -> list[str]:
    """The goals that a row does not reach, in words."""
    allowed = GOALS[row["way"]]["lost"]
    said = []
    if row["lost"] > allowed:
        said.append(f"{row['way']}: {row['lost']:.2%} of the calls lost, {allowed:.0%} allowed")
    if row["growth_mib"] > GROWTH_MIB:
        said.append(f"{row['way']}: memory grew by {row['growth_mib']:.0f} MiB, {GROWTH_MIB:.0f} allowed")
    if row["bytes_a_call"] > BYTES:
        said.append(f"{row['way']}: {row['bytes_a_call']:.1f} bytes a call, {BYTES:.0f} allowed")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--json", action="store_true", help="One object, for machines.")
    parser.add_argument("--check", action="store_true", help="Exit 1 when a goal is missed.")
    parser.add_argument("--record", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.record:
        print(json.dumps(record(chosen.record[0], chosen.calls, Path(chosen.record[1]))))
        return 0
    rows = [apart(way, chosen.calls) for way in WAYS]
    failures = [said for row in rows for said in missed(row)]
    if chosen.json:
        print(json.dumps({"rows": rows, "missed": failures}))
    else:
        print(
            f"{'way':10} {'calls':>12} {'lost':>8} {'ns/call':>8} {'stop s':>7} {'MiB':>6} {'grown':>6} {'bytes/call':>10}"
        )
        for row in rows:
            print(
                f"{row['way']:10} {row['calls']:12,} {row['lost']:8.2%} {row['ns_a_call']:8.0f} {row['stop_s']:7.2f} "
                f"{row['memory_mib']:6.0f} {row['growth_mib']:6.0f} {row['bytes_a_call']:10.2f}"
            )
        print("\n".join(failures) or "every goal reached")
    return 1 if chosen.check and failures else 0


if __name__ == "__main__":
    sys.exit(main())
