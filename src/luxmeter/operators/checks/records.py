"""What a check gives: a row for each case, dtype, device and backend, with every error; and the ways out (table, JSON, CSV).

JSON format `check`, version 1: {"what", "version", "started", "environment", "options", "complete", "counts", "rows": [...],
"passed": [keys of rows that passed and were not kept]}. History: 1, the first.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any

from luxmeter import environment
from luxmeter.by_name import by_name
from luxmeter.csv_text import csv_text
from luxmeter.errors import UsageError
from luxmeter.files import parsed_json, write_named
from luxmeter.plain_text import plain
from luxmeter.render import DURATION, NUMBER, Column, Table, counted
from luxmeter.store import put_result
from luxmeter.typed_fields import checked_fields

VERSION = 1
CHECK_FORMATS = (".json", ".csv", ".html")
STATUSES = ("passed", "failed", "missed", "crashed", "hung")
_WHAT = "luxmeter check"
_WORST_FIRST = ("crashed", "hung", "failed", "missed", "passed")


@dataclass(frozen=True)
class CheckError:
    """One error: in which round, on which input, how far off against what is allowed, and how to see it again.

    `error` and `allowed` are relative to the largest number of the reference. `script` stands alone;
    `shrunk` is the signature of the smallest input that still fails, which the script then uses.
    """

    round: int
    sample: int
    seed: int
    reason: str
    signature: str = ""
    part: str = ""
    error: float | None = None
    allowed: float | None = None
    traceback: str = ""
    shrunk: str = ""
    script: str = field(default="", repr=False)


@dataclass(frozen=True)
class CheckRow:
    """One case in one dtype, on one device and backend: all of its rounds.

    `samples` were run; `worst` is the largest error among what is right, as a share of what is allowed. `excused` says
    which samples were not held to the tolerance, and why: reason -> how many. `time_us` is the median time of a forward
    call, `largest` what it was given most.
    """

    name: str
    api: str
    source: str
    dtype: str
    device: str
    backend: str
    status: str
    reason: str = ""
    rounds: int = 0
    samples: int = 0
    failed: int = 0
    worst: float = 0.0
    time_us: float | None = None
    elements: int = 0
    largest: str = ""
    excused: dict[str, int] = field(default_factory=dict)
    errors: tuple[CheckError, ...] = ()
    key: str = ""

    @property
    def identity(self) -> str:
        """What makes it the same row in another result."""
        return identity_of(self.name, self.dtype, self.device, self.backend)


def identity_of(name: str, dtype: str, device: str, backend: str) -> str:
    """What names a row in every result."""
    return f"{name} {dtype} {device} {backend}"


COLUMNS = [f.name for f in fields(CheckRow) if f.name not in ("errors", "key")]
_OF_AN_ERROR = ("round", "sample", "seed", "signature", "shrunk", "part", "error", "allowed")


@dataclass(frozen=True)
class CheckResult:
    """The rows of a check, when and where it ran. `passed` are the places of rows that passed and were not kept."""

    rows: tuple[CheckRow, ...]
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    options: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0
    taken_s: float = 0.0
    complete: bool = True
    passed: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[CheckRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows) + len(self.passed)

    @property
    def counts(self) -> dict[str, int]:
        """Status -> rows, of all statuses."""
        found = Counter(row.status for row in self.rows)
        return {s: found[s] + (len(self.passed) if s == "passed" else 0) for s in STATUSES}

    @property
    def ok(self) -> bool:
        """Whether nothing failed, crashed or hung."""
        return not any(self.counts[s] for s in ("failed", "crashed", "hung"))

    @property
    def errors(self) -> list[tuple[CheckRow, CheckError]]:
        """Every error with its row, the worst status first."""
        return [(row, error) for row in self.wrong() for error in row.errors]

    def wrong(self) -> list[CheckRow]:
        """The rows that failed, crashed or hung."""
        return [r for s in _WORST_FIRST[:3] for r in self.rows if r.status == s]

    def without_success(self) -> CheckResult:
        """The same without the rows that passed; their names stay, so that two results can be compared."""
        passed = tuple(row.identity for row in self.rows if row.status == "passed")
        return replace(
            self,
            rows=tuple(row for row in self.rows if row.status != "passed"),
            passed=(*self.passed, *passed),
        )

    def statuses(self) -> dict[str, str]:
        """Place -> status, of all that was run."""
        return {**dict.fromkeys(self.passed, "passed"), **{row.identity: row.status for row in self.rows}}

    def excused(self) -> dict[str, int]:
        """Reason -> samples that were not held to the tolerance for it."""
        found: Counter[str] = Counter()
        for row in self.rows:
            found.update(row.excused)
        return dict(found.most_common())

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, in the order of COLUMNS, with its errors."""
        return [
            {**{n: getattr(r, n) for n in COLUMNS}, "errors": [asdict(e) for e in r.errors]}
            for r in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "what": _WHAT, "version": VERSION, "started": self.started, "taken_s": self.taken_s, "complete": self.complete,
            "environment": self.environment, "options": self.options, "counts": self.counts, "excused": self.excused(),
            "rows": [asdict(row) for row in self.rows], "passed": list(self.passed),
        }  # fmt: skip

    def to_json(self, path: str | Path) -> Path:
        """Write everything; `load_check` reads it."""
        write_named(Path(path), (json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode())
        return Path(path)

    def to_csv(self, path: str | Path) -> Path:
        """Write a line for each row; of its first error, the reason and where and how large it was (`first_...`)."""
        lines: list[Sequence[Any]] = [[*COLUMNS, *(f"first_{name}" for name in _OF_AN_ERROR)]]
        for row in self.rows:
            said = {name: getattr(row, name) for name in COLUMNS}
            said["excused"] = "; ".join(f"{n} {why}" for why, n in row.excused.items())
            first = [getattr(row.errors[0], name) if row.errors else "" for name in _OF_AN_ERROR]
            lines.append([*said.values(), *first])
        write_named(Path(path), csv_text(lines).encode())
        return Path(path)

    def to_html(self, path: str | Path) -> Path:
        """Write one page that needs nothing else."""
        write_named(Path(path), str(by_name("check page")(self)).encode())
        return Path(path)

    def to_file(self, path: str | Path) -> Path:
        """Write by the name's ending: .json, .csv or .html."""
        ways = dict(zip(CHECK_FORMATS, (self.to_json, self.to_csv, self.to_html), strict=True))
        write = ways.get(Path(path).suffix.lower())
        if write is None:
            raise UsageError(
                "unknown-check-format",
                f"{path} ends in none of {', '.join(CHECK_FORMATS)}.",
                "Choose the form by the name's ending.",
            )
        return write(path)

    @property
    def title(self) -> str:
        """In a line: how much was checked, and how."""
        said = [f"{n} {status}" for status, n in self.counts.items() if n]
        where = ", ".join(
            "/".join(map(str, value))
            for k in ("dtypes", "device", "backends")
            if (value := self.options.get(k))
        )
        rounds = self.options.get("rounds", 1)
        return (
            f"{counted(len(self), 'case')} ({where}; {counted(rounds, 'round')}): {', '.join(said) or 'none'}"
            + ("" if self.complete else ", stopped early")
        )

    def table(self, *, everything: bool = False) -> Table:
        """What is wrong, a line each (of `everything`, all); and below, how many there are of each status."""
        rows = list(self.rows) if everything else self.wrong()
        columns = [
            Column("status"),
            Column("case", folds=24),
            Column("dtype", hidden="same"),
            Column("device", hidden="same"),
            Column("backend", hidden="same"),
            Column("wrong", NUMBER, goes=2),
            Column("samples", NUMBER, goes=1),
            Column("error", NUMBER, form=".1e", missing=""),
            Column("allowed", NUMBER, form=".1e", missing=""),
            Column("time", DURATION, missing="", hidden="empty", goes=0),
            Column("called with", is_signature=True, most=48, folds=16, goes=3),
            Column("reason", folds=24, most=200),
        ]
        lines = []
        for r in rows:
            first = r.errors[0] if r.errors else None
            lines.append([
                r.status, r.name, r.dtype, r.device, r.backend, r.failed, r.samples, first.error if first else None,
                first.allowed if first else None, r.time_us * 1e3 if everything and r.time_us is not None else None,
                (first.shrunk or first.signature) if first else r.largest, r.reason,
            ])  # fmt: skip
        return Table(columns, lines, notes=self.notes())

    def notes(self) -> list[str]:
        """How many of each status, and what was excused."""
        said = [self.title]
        said += [f"{n} samples excused: {why}" for why, n in self.excused().items()]
        return said

    def show(self, stream: IO[str] | None = None, *, everything: bool = False) -> None:
        """Print the table for a terminal, and the notes below it."""
        if everything or self.wrong():
            self.table(everything=everything).print(stream)
        else:
            (stream or sys.stdout).write(f"{self}\n")

    def __str__(self) -> str:
        return self.table().text() if self.wrong() else "\n".join(map(plain, self.notes()))

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(self.table(), title=self.title)


def merged(base: dict[str, Any], rounds: Iterable[dict[str, Any]]) -> CheckRow:
    """A row of what the rounds of a case gave, each with its number and how it ended (`ended`: ok, crashed, hung or error)."""
    rounds = sorted(rounds, key=lambda r: int(r["round"]))
    errors: list[CheckError] = []
    excused: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    times, worst, elements, largest, reasons = [], 0.0, 0, "", []
    for one in rounds:
        counts.update(one.get("counts", {}))
        excused.update(one.get("excused", {}))
        errors += [CheckError(**{**e, "round": one["round"]}) for e in one.get("errors", ())]
        worst = max(worst, one.get("worst", 0.0))
        if one.get("time_us") is not None:
            times.append(one["time_us"])
        if one.get("elements", 0) >= elements:
            elements, largest = one.get("elements", 0), one.get("largest", "") or largest
        if one.get("reason"):
            reasons.append(one["reason"])
    ended = [one["ended"] for one in rounds]
    status = next((s for s in ("crashed", "hung") if s in ended), "")
    status = status or (
        "failed" if errors else "missed" if counts["missed"] and not counts["passed"] else "passed"
    )
    first = errors[0].reason if errors else (reasons[0] if reasons else "")
    if status == "passed" and first:
        first = f"{counts['missed']} of {sum(counts.values())} inputs are missed: {first}"
    return CheckRow(
        **base, status=status, reason=first, rounds=len(rounds), samples=sum(counts.values()),
        failed=len(errors), worst=worst, time_us=min(times, default=None), elements=elements, largest=largest,
        excused=dict(excused), errors=tuple(errors),
    )  # fmt: skip


def put_check(result: CheckResult) -> CheckResult:
    """The result, put into the run that it was made in."""
    put_result("check", result.title, "check.json", result.to_json)
    return result


def load_check(path: str | Path) -> CheckResult:
    """What `CheckResult.to_json` wrote."""
    try:
        said = parsed_json(Path(path).read_text(encoding="utf-8"))
        if said["what"] != _WHAT:
            raise ValueError(f"it is {said['what']!r}")
        if type(said["version"]) is not int or said["version"] > VERSION:
            raise UsageError(
                "check-newer",
                f"{path} has version {said['version']!r} of the check format; this Luxmeter reads up to {VERSION}.",
                "Update Luxmeter.",
            )
        rows = tuple(
            checked_fields(
                CheckRow(**{**row, "errors": tuple(checked_fields(CheckError(**e)) for e in row["errors"])})
            )
            for row in said["rows"]
        )
        if not all(
            isinstance(said["options"].get(k) or "", str | list) for k in ("dtypes", "device", "backends")
        ):
            raise ValueError("its options are none of a check")
        return checked_fields(
            CheckResult(
                rows, environment.checked(said["environment"]), said["options"], said["started"], said["taken_s"], said["complete"], tuple(said["passed"])
            )
        )  # fmt: skip
    except OSError as error:
        raise UsageError("check-unreadable", f"{path} cannot be read: {error}.", "Check the path.") from error
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "check-damaged", f"{path} is no check of Luxmeter: {error}.", "Give a file that to_json wrote."
        ) from error
