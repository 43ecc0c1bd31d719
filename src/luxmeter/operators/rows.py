"""What a benchmark gives: rows with raw times behind them, and the ways out (table, CSV, JSON, Parquet, pandas).

JSON format `benchmark`, version 1: {"what", "version", "environment", "noise_floor", "rows": [...]}, raw times included.
History: 1, the first.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from luxmeter import stats
from luxmeter.errors import UsageError
from luxmeter.files import write_file

VERSION = 1
_WHAT = "luxmeter benchmark"


@dataclass(frozen=True)
class Row:
    """One case at one scale, in one dtype, on one backend. Times in microseconds; NaN-free: unknown is None."""

    op: str
    signature: str
    scale: str
    dtype: str
    backend: str
    mode: str = "forward"
    threads: int = 1
    status: str = "ok"
    reason: str = ""
    n: int = 0
    median_us: float | None = None
    ci_low_us: float | None = None
    ci_high_us: float | None = None
    p5_us: float | None = None
    p95_us: float | None = None
    mean_us: float | None = None
    min_us: float | None = None
    prepare_s: float | None = None
    flops: int | None = None
    bytes: int | None = None
    gflops_per_s: float | None = None
    gb_per_s: float | None = None
    memory_bytes: int | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    speedup: float | None = None
    kernel: str = ""
    key: str = ""
    times_s: tuple[float, ...] = field(default=(), repr=False)


COLUMNS = [f.name for f in fields(Row) if f.name not in ("times_s", "key")]


def row_of(base: dict[str, Any], found: dict[str, Any]) -> Row:
    """A row from what identifies it and what a worker found."""
    times = tuple(found.get("times_s", ()))
    numbers: dict[str, Any] = {
        k: found.get(k)
        for k in ("flops", "bytes", "memory_bytes", "max_abs_error", "max_rel_error", "prepare_s")
    }
    if times:
        s = stats.summarize(times)
        numbers |= {
            "n": s.n, "median_us": s.median * 1e6, "ci_low_us": found["ci_low_s"] * 1e6,
            "ci_high_us": found["ci_high_s"] * 1e6, "p5_us": s.p5 * 1e6, "p95_us": s.p95 * 1e6,
            "mean_us": s.mean * 1e6, "min_us": s.min * 1e6,
        }  # fmt: skip
        forward = base.get("mode", "forward") == "forward"  # costs are those of one forward call
        if forward and numbers["flops"]:
            numbers["gflops_per_s"] = numbers["flops"] / s.median / 1e9
        if forward and numbers["bytes"]:
            numbers["gb_per_s"] = numbers["bytes"] / s.median / 1e9
    return Row(**base, **numbers, status=found["status"], reason=found.get("reason", ""), times_s=times)


def with_speedup(rows: list[Row]) -> list[Row]:
    """Each row with its speed against eager torch at the same case, scale and dtype."""

    def place(row: Row) -> tuple[str, ...]:
        return (row.op, row.kernel, row.signature, row.scale, row.dtype, row.mode, str(row.threads))

    eager = {place(r): r.median_us for r in rows if r.backend in ("eager", "pt") and r.median_us}
    return [
        replace(r, speedup=eager[place(r)] / r.median_us) if r.median_us and place(r) in eager else r
        for r in rows
    ]


@dataclass(frozen=True)
class BenchResult:
    """The rows of one benchmark, the machine they come from, and what it calls noise."""

    rows: tuple[Row, ...]
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    noise_floor: float | None = None
    complete: bool = True

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, in the order of COLUMNS, without raw times."""
        return [{name: getattr(row, name) for name in COLUMNS} for row in self.rows]

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records())
        write_file(Path(path), text.getvalue().encode())
        return Path(path)

    def to_json(self, path: str | Path) -> Path:
        """Write everything, raw times included; `load_benchmark` reads it."""
        rows = [asdict(row) for row in self.rows]
        said = {"what": _WHAT, "version": VERSION, "environment": self.environment, "noise_floor": self.noise_floor,
                "complete": self.complete, "rows": rows}  # fmt: skip
        write_file(Path(path), (json.dumps(said, indent=1) + "\n").encode())
        return Path(path)

    def to_parquet(self, path: str | Path) -> Path:
        """Write the rows, raw times included, as Parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [
            {**record, "times_s": list(row.times_s)}
            for record, row in zip(self.records(), self.rows, strict=True)
        ]
        pq.write_table(pa.Table.from_pylist(rows), path)
        return Path(path)

    def to_pandas(self) -> Any:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=COLUMNS)

    def __str__(self) -> str:
        shown = [("op", "<"), ("signature", "<"), ("scale", "<"), ("dtype", "<"), ("backend", "<"), ("median us", ">"),
                 ("±", ">"), ("GFLOP/s", ">"), ("GB/s", ">"), ("rel. error", ">"), ("speed-up", ">"), ("status", "<")]  # fmt: skip
        lines = [[name for name, _ in shown], *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(shown))]
        text = "\n".join(
            "  ".join(
                f"{cell:{side}{width}}" for cell, (_, side), width in zip(line, shown, widths, strict=True)
            ).rstrip()
            for line in lines
        )
        notes = (
            []
            if self.noise_floor is None
            else [f"noise floor (the same thing measured again): ±{self.noise_floor:.1%}"]
        )
        if self.noise_floor is not None and self.noise_floor > 0.05:
            notes.append("this machine is noisy: close other programs, or use more budget")
        if not self.complete:
            notes.append("stopped early: rows are missing")
        return "\n".join([text, *notes])


def load_benchmark(path: str | Path) -> BenchResult:
    """What `BenchResult.to_json` wrote."""
    try:
        said = json.loads(Path(path).read_text())
        if said["what"] != _WHAT or said["version"] > VERSION:
            raise ValueError(f"it is {said['what']!r}, version {said['version']!r}")
        rows = tuple(Row(**{**row, "times_s": tuple(row["times_s"])}) for row in said["rows"])
        return BenchResult(rows, said["environment"], said["noise_floor"], said["complete"])
    except OSError as error:
        raise UsageError(
            "benchmark-unreadable", f"{path} cannot be read: {error}.", "Check the path."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "benchmark-damaged",
            f"{path} is no benchmark of Luxmeter: {error}.",
            "Give a file that to_json wrote.",
        ) from error


def _cells(row: Row) -> list[str]:
    def number(value: float | None, form: str = ".4g") -> str:
        return "" if value is None else format(value, form)

    half = None
    if row.n > 1 and row.median_us and row.ci_low_us is not None and row.ci_high_us is not None:
        half = max(row.ci_high_us - row.median_us, row.median_us - row.ci_low_us) / row.median_us
    signature = row.signature if len(row.signature) <= 48 else row.signature[:45] + "..."
    status = row.status if row.status in ("ok", "doubtful") else f"{row.status}: {row.reason[:60]}"
    return [row.kernel or row.op.rpartition(".")[2] if not row.op.startswith("aten.") else row.op, signature, row.scale,
            row.dtype, row.backend, number(row.median_us), number(half, ".1%"), number(row.gflops_per_s, ".3g"),
            number(row.gb_per_s, ".3g"), number(row.max_rel_error, ".1e"), number(row.speedup, ".2f"), status]  # fmt: skip
