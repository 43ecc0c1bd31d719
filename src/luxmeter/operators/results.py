"""What a benchmark gives: rows with raw times behind them, and the ways out (table, CSV, JSON, Parquet, pandas);
two of its backends beside each other, case by case.

JSON format `benchmark`, version 5: {"what", "version", "environment", "noise_floor", "complete", "whole", "together", "find", "rows": [...]},
raw times included. Parquet holds the same: a column for each field of a row, the rest as JSON in the schema's metadata under
`luxmeter.benchmark`. History: 1, the first; 2 adds what an operator is in the traced run (`traced_calls`, `traced_ns` of a row, `whole`,
[nanoseconds, calls] of all of it) and the times of a second look (`again_s`); 3 adds what two benchmarks that were measured in turns have in
common (`together`, a name that only they have, and `turns_s` of a row); 4 adds the lines that called the operator (`traced_at` of a
row); 5 adds the change that rounds of turns looked for (`find`): rows of which it was excluded have fewer. All are read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from luxmeter import environment, stats
from luxmeter.by_name import by_name
from luxmeter.csv_text import csv_text
from luxmeter.errors import StoreError, UsageError
from luxmeter.files import parsed_json, write_named
from luxmeter.operators.series import series_of
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table, counted, span
from luxmeter.store import put_result, read_sealed
from luxmeter.typed_fields import checked_fields

if TYPE_CHECKING:
    import pandas as pd

VERSION = 5
FORMATS = (".csv", ".json", ".parquet", ".png", ".svg")
_WHAT = "luxmeter benchmark"
_PARQUET_KEY = b"luxmeter.benchmark"
MEASURED = ("ok", "doubtful", "unscaled")  # the states of rows whose times mean what their label says
_NOISY = 0.05  # a noise floor above this is pointed out
_BUSY = 0.5  # and more load than this a thread, before the benchmark begins


@dataclass(frozen=True)
class Row:
    """One case at one scale, in one dtype, on one backend. Times in microseconds; NaN-free: unknown is None.

    `case` is the same for all scales, dtypes and backends of one recorded case; `prepare_s` is what compiling or
    exporting took; `memory_bytes` the most that was allocated at once during a call. `scale` names the sizes it was
    measured at; `calls` is how often one call runs this kernel; a row that could not take all that were asked for has the status `unscaled`.
    `traced_calls` and `traced_ns` are how often the program that it comes from called it, and how long that took in all;
    `traced_at` from which lines, the longest first, a few of them. `again_s` are the times of a second look, later and in another process: what differs is the machine's noise. `turns_s` are, of each round of a
    benchmark in turns with another, the times of its turns: those at the same place in the other were taken a moment before or after.
    """

    op: str
    signature: str
    scale: str
    dtype: str
    backend: str
    mode: str = "forward"
    device: str = "cpu"
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
    calls: int = 1
    case: str = ""
    key: str = ""
    traced_calls: int | None = None
    traced_ns: int | None = None
    traced_at: str = ""
    times_s: tuple[float, ...] = field(default=(), repr=False)
    again_s: tuple[float, ...] = field(default=(), repr=False)
    turns_s: tuple[tuple[float, ...], ...] = field(default=(), repr=False)


COLUMNS = [f.name for f in fields(Row) if f.name not in ("times_s", "again_s", "turns_s", "key")]


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


def unscaled(row: Row, lacking: str) -> Row:
    """A row that was measured without some of the sizes asked for, which says so."""
    if row.status not in ("ok", "doubtful"):
        return row
    where = f"measured at {row.scale}" if row.scale else "measured as recorded"
    return replace(row, status="unscaled", reason="; ".join(filter(None, [lacking, where, row.reason])))


def with_speedup(rows: list[Row]) -> list[Row]:
    """Each row with its speed against eager torch at the same case, scale and dtype."""

    def key(row: Row) -> tuple[str, ...]:
        return (
            row.op,
            row.kernel,
            row.signature,
            row.scale,
            row.dtype,
            row.mode,
            row.device,
            str(row.threads),
        )

    eager = {key(r): r.median_us for r in rows if r.backend in ("eager", "pt") and r.median_us}
    return [
        replace(r, speedup=eager[key(r)] / r.median_us) if r.median_us and key(r) in eager else r
        for r in rows
    ]


@dataclass(frozen=True)
class BenchResult:
    """The rows of one benchmark, the machine they come from, and what it calls noise."""

    rows: tuple[Row, ...]
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    noise_floor: float | None = None
    complete: bool = True
    whole: tuple[int, int] | None = (
        None  # nanoseconds and calls of the traced run that its operators are a part of
    )
    together: str = ""  # the same of two that were measured in turns
    find: float | None = None  # the change that their rounds looked for

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, in the order of COLUMNS, without raw times."""
        return [{name: getattr(row, name) for name in COLUMNS} for row in self.rows]

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV."""
        rows = [[getattr(row, name) for name in COLUMNS] for row in self.rows]
        write_named(Path(path), csv_text([COLUMNS, *rows]).encode())
        return Path(path)

    def to_json(self, path: str | Path) -> Path:
        """Write everything, raw times included; `load_benchmark` reads it."""
        write_named(Path(path), (json.dumps(self._said(), indent=1) + "\n").encode())
        return Path(path)

    def to_file(self, path: str | Path) -> Path:
        """Write by the name's ending: .csv, .json, .parquet, or a picture as .png or .svg."""
        ways = (self.to_csv, self.to_json, self.to_parquet, self.plot, self.plot)
        write = dict(zip(FORMATS, ways, strict=True)).get(Path(path).suffix.lower())
        if write is None:
            raise UsageError(
                "unknown-benchmark-format",
                f"{path} ends in none of {', '.join(FORMATS)}.",
                "Choose the form by the name's ending.",
            )
        return write(path)

    def plot(self, path: str | Path, *, kind: str = "") -> Path:
        """Draw to a .png or .svg: time against scale ("scaling"), or speed-up bars ("speedup").

        Without a kind: time against scale if any scale varies.
        """
        drawn: Path = by_name("benchmark picture")(self, path, kind=kind)
        return drawn

    def exponents(self) -> dict[str, float]:
        """For each series over a scale that varies: k of time ~ size**k, fitted through all its sizes."""
        return {s.name: s.exponent for s in series_of(self) if s.exponent is not None}

    def _said(self) -> dict[str, Any]:
        return {"what": _WHAT, "version": VERSION, "environment": self.environment, "noise_floor": self.noise_floor,
                "complete": self.complete, "whole": self.whole, "together": self.together, "find": self.find,
                "rows": [asdict(row) for row in self.rows]}  # fmt: skip

    def to_parquet(self, path: str | Path) -> Path:
        """Write everything, raw times included, as Parquet; `load_benchmark` reads it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {
            "str": pa.string(),
            "int": pa.int64(),
            "float": pa.float64(),
            "tuple[float, ...]": pa.list_(pa.float64()),
            "tuple[tuple[float, ...], ...]": pa.list_(pa.list_(pa.float64())),
        }
        columns = [(f.name, kinds[str(f.type).removesuffix(" | None")]) for f in fields(Row)]
        head = json.dumps({k: v for k, v in self._said().items() if k != "rows"})
        schema = pa.schema(columns, metadata={_PARQUET_KEY: head})
        table = pa.Table.from_pylist([asdict(row) for row in self.rows], schema=schema)
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        write_named(Path(path), buffer.getvalue())
        return Path(path)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=COLUMNS)

    def table(self) -> Table:
        """The rows for people; columns that say the same everywhere are left out, and notes stand below.

        torch and MindSpore, with nothing else: one line an operator, both beside each other.
        """
        pairs = side_by_side(self.rows)
        found = pair_table(pairs) if pairs and 2 * len(pairs) == len(self.rows) else _table(self.rows)
        return replace(found, notes=self.notes())

    def notes(self) -> list[str]:
        """What a reader of the numbers must know: the noise floor, a busy machine, what is missing."""
        said = []
        if self.noise_floor is not None:
            said.append(f"noise floor (the same thing measured again): ±{self.noise_floor:.1%}")
            if self.noise_floor > _NOISY:
                said.append("this machine is noisy: close other programs, or use more budget")
        load, machine = self.environment.get("load", {}), self.environment.get("machine", {})
        busy, threads = load.get("load_1min"), machine.get("threads")
        if busy and threads and busy > _BUSY * threads:
            said.append(f"the machine was busy before the start: load {busy:.1f} on {threads} threads")
        if load.get("governor") == "powersave":
            said.append("the clock governor is 'powersave': the frequency may change while measuring")
        doubtful = sum(row.status == "doubtful" for row in self.rows)
        if doubtful:
            said.append(
                f"{doubtful} of {len(self.rows)} medians are doubtful: see `reason`, or use more budget"
            )
        differs = sum(row.status == "differs" for row in self.rows)
        if differs:
            said.append(
                f"{differs} of {len(self.rows)} rows give other results than eager torch, and have no times: see `reason`"
            )
        unscaled = sum(row.status == "unscaled" for row in self.rows)
        if unscaled:
            said.append(f"{unscaled} of {len(self.rows)} rows were not scaled as asked for: see `reason`")
        if not self.complete:
            said.append("stopped early: rows are missing")
        return said

    @property
    def title(self) -> str:
        """In a line: how much was measured, and how."""
        ops, how = len({row.case or row.op for row in self.rows}), []
        for name in ("dtype", "backend", "device"):
            how.append(", ".join(dict.fromkeys(str(getattr(row, name)) for row in self.rows)))
        failed = sum(row.status not in MEASURED for row in self.rows)
        said = [f"{counted(len(self), 'row')}, {counted(ops, 'operator')} in {how[0]} on {how[1]} ({how[2]})"]
        said += [f"{failed} not measured"] if failed else []
        said += [] if self.complete else ["stopped early"]
        return ", ".join(said)

    def show(self, stream: IO[str] | None = None) -> None:
        """Print the table for a terminal, and the notes below it."""
        self.table().print(stream)

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table(), title=self.title)


def put_benchmark(result: BenchResult) -> BenchResult:
    """The result, put into the run that it was made in."""
    put_result("bench", result.title, "bench.json", result.to_json)
    return result


def load_benchmark(path: str | Path) -> BenchResult:
    """What `BenchResult.to_json` or `to_parquet` wrote."""
    try:
        said = _read(Path(path))
        if said["what"] != _WHAT:
            raise ValueError(f"it is {said['what']!r}")
        if said["version"] > VERSION:
            raise UsageError(
                "benchmark-newer",
                f"{path} has version {said['version']!r} of the benchmark format; this Luxmeter reads up to {VERSION}.",
                "Update Luxmeter, or measure again with this one.",
            )
        rows = tuple(checked_fields(_row(row)) for row in said["rows"])
        whole = said.get("whole")  # since version 2
        return checked_fields(
            BenchResult(
                rows,
                environment.checked(said["environment"]),
                said["noise_floor"],
                said["complete"],
                None if whole is None else (int(whole[0]), int(whole[1])),
                str(said.get("together") or ""),  # since version 3
                said.get("find"),  # since version 5
            )
        )
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(
            "benchmark-unreadable", f"{path} cannot be read: {error}.", "Check the path."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error).removeprefix(f"{path} cannot be read: ").rstrip(".")
        raise UsageError(
            "benchmark-damaged",
            f"{path} is no benchmark of Luxmeter: {why}.",
            "Give a file that to_json wrote.",
        ) from error


def _row(said: dict[str, Any]) -> Row:
    series = {name: tuple(said.get(name) or ()) for name in ("times_s", "again_s")}
    if "times_s" not in said:
        raise KeyError("times_s")
    turns = tuple(tuple(found) for found in said.get("turns_s") or ())
    return Row(**{**said, **series, "turns_s": turns})


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    if not parquet:
        return parsed_json(path.read_text(encoding="utf-8"))
    try:
        table = read_sealed(path)  # no seal of ours, but no more memory than a file of its size may take
    except StoreError as error:
        raise ValueError(error.what) from error
    said = parsed_json((table.schema.metadata or {})[_PARQUET_KEY])
    return {**said, "rows": table.to_pylist()}


def _table(rows: Sequence[Row]) -> Table:
    def half(row: Row) -> float | None:
        if row.n < 2 or not row.median_us or row.ci_low_us is None or row.ci_high_us is None:
            return None
        return max(row.ci_high_us - row.median_us, row.median_us - row.ci_low_us) / row.median_us

    def status(row: Row) -> str:
        return row.status if row.status in ("ok", "doubtful") else f"{row.status}: {row.reason[:46]}"

    def name(row: Row) -> str:
        times = f" x{row.calls}" if row.calls > 1 else ""
        return (
            f"{row.kernel}{times}"
            if row.kernel
            else (row.op if row.op.startswith("aten.") else row.op.rpartition(".")[2])
        )

    columns = [
        Column("op"),
        Column("signature", is_signature=True, most=48, folds=20),
        Column("scale", hidden="empty"),
        Column("dtype"),
        Column("backend"),
        Column("mode", hidden="same"),
        Column("device", hidden="same"),
        Column("threads", NUMBER, hidden="same"),
        Column("median", DURATION, missing=""),
        Column("±", SHARE, missing="", goes=4),
        Column("GFLOP/s", NUMBER, form=".3g", missing="", hidden="empty", goes=1),
        Column("GB/s", NUMBER, form=".3g", missing="", hidden="empty", goes=2),
        Column("rel. error", NUMBER, form=".1e", missing="", hidden="empty", goes=3),
        Column("speed-up", NUMBER, form=".2f", missing="", goes=5),
        Column("status", folds=20),
    ]
    lines = [
        [name(r), r.signature, r.scale, r.dtype, r.backend, r.mode, r.device, r.threads, _ns(r.median_us), half(r),
         r.gflops_per_s, r.gb_per_s, r.max_rel_error, r.speedup, status(r)]
        for r in rows
    ]  # fmt: skip
    return Table(columns, lines)


# -- two backends of one benchmark --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """One case on two backends. `ratio` is the second's time over the first's; above 1 it is slower."""

    first: Row
    second: Row

    @property
    def ratio(self) -> float | None:
        """How many times as long the second takes; None where one of them has no time."""
        if not self.first.median_us or not self.second.median_us:
            return None
        return self.second.median_us / self.first.median_us

    @property
    def differs(self) -> bool:
        """Whether the results are further apart than another order of summation explains."""
        if self.second.status == "differs":
            return True
        room = {"fp64": 1e-7, "fp16": 1e-2, "bf16": 5e-2}.get(self.second.dtype, 1e-4)
        return self.second.max_rel_error is not None and self.second.max_rel_error > room

    @property
    def remark(self) -> str:
        """Why there is no ratio, or that the results differ."""
        bad = next((r for r in (self.first, self.second) if r.status not in MEASURED), None)
        if bad is not None:
            return f"{bad.backend} {bad.status}: {bad.reason}"
        doubtful = "doubtful" if "doubtful" in (self.first.status, self.second.status) else ""
        return ", ".join(filter(None, ["results differ" if self.differs else "", doubtful]))


def side_by_side(rows: Iterable[Row], *, first: str = "eager", second: str = "mindspore") -> list[Pair]:
    """The rows of a benchmark in pairs, in their order; cases that ran on one of the two alone are left out.

    >>> side_by_side(lux.bench(ops, backends=["eager", "mindspore"]))  # doctest: +SKIP
    """
    places: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        place = (row.op, row.signature, row.scale, row.dtype, row.mode, row.device, row.threads, row.kernel)
        places.setdefault(place, {})[row.backend] = row
    return [
        Pair(found[first], found[second]) for found in places.values() if first in found and second in found
    ]


def pair_table(pairs: Iterable[Pair]) -> Table:
    """One line a case: the first backend's time, the second's, their ratio, and how far their results are apart."""
    pairs = list(pairs)
    names = (pairs[0].first.backend, pairs[0].second.backend) if pairs else ("first", "second")
    columns = [
        Column("op"),
        Column("signature", is_signature=True, most=40, folds=16),
        Column("scale", hidden="same"),
        Column("dtype"),
        Column("mode", hidden="same"),
        Column("threads", NUMBER, hidden="same"),
        Column(names[0]),
        Column(names[1]),
        Column("ratio", NUMBER, form=".2f", missing=""),
        Column("max error", NUMBER, form=".1e", missing=""),
        Column("remark", folds=20),
    ]
    rows = [
        [p.first.kernel or p.first.op.rpartition(".")[2], p.first.signature, p.first.scale, p.first.dtype, p.first.mode,
         p.first.threads, _time(p.first), _time(p.second), p.ratio, p.second.max_abs_error, p.remark]
        for p in pairs
    ]  # fmt: skip
    return Table(columns, rows)


def _time(row: Row) -> str:
    if row.median_us is None:
        return ""
    if row.n < 2 or row.ci_low_us is None or row.ci_high_us is None:
        return span(row.median_us * 1e3)
    return f"{span(row.median_us * 1e3)} [{span(row.ci_low_us * 1e3)}, {span(row.ci_high_us * 1e3)}]"


def _ns(time_us: float | None) -> float | None:
    return None if time_us is None else time_us * 1e3
