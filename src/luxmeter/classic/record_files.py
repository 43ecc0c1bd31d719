"""callRecords -> files that are not larger than asked for, each valid by itself."""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from luxmeter.csv_text import csv_text
from luxmeter.errors import UsageError
from luxmeter.files import write_file

FORMATS = ("csv", "json")
NAMES = ("timestamp", "datetime", "serial")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
Records = Mapping[str, Mapping[Any, Any]]
Call = tuple[str, int, Mapping[str, Any]]


def parse_size(text: str) -> int:
    """Bytes of `10MB`, `1.5 GB`, `512KiB`, `4096`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(text))
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or float(found[1]) * unit < 1:
        raise UsageError(
            "bad-file-size", f"{text!r} is no size of a file.", "Write it as 10MB, 512KB or 1GB."
        )
    return int(float(found[1]) * unit)


def check_folder(folder: Path) -> None:
    """Make the folder; raise if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            "out-dir-unwritable", f"Nothing can be written to {folder}: {error}.", "Give another out_dir."
        ) from error


def rows_of(records: Records) -> Iterator[tuple[Any, ...]]:
    """One row a call: API, total of the API, number, start, cost, arguments as text."""
    for name, number, call in _calls(records):
        total = records[name]["TotalTime(ms)"]
        yield name, total, number, call["StartTimestamp"], call["CostTime(ms)"], str(call["Arguments"])


def write_files(
    records: Records, folder: Path, *, format: str, spec: str, most_bytes: int, columns: Sequence[str]
) -> list[Path]:
    """Write one file, or numbered ones when one would be larger than `most_bytes` (a single call never is split).

    Totals in a file are those of the calls in it.
    """
    parts = list(_parts(records, format, most_bytes))
    stem = _stem(folder, spec)
    written = []
    for number, part in enumerate(parts, start=1):
        name = f"{stem}.{format}" if len(parts) == 1 else f"{stem}_{number}.{format}"
        text = _json(part) if format == "json" else csv_text([columns, *rows_of(part)])
        write_file(folder / name, text.encode())
        written.append(folder / name)
    return written


def _parts(records: Records, format: str, most_bytes: int) -> Iterator[dict[str, dict[Any, Any]]]:
    part: dict[str, dict[Any, Any]] = {}
    size = most = 0
    for name, number, call in _calls(records):
        # A total may get longer by digits as calls are added: 24 characters are the most a float takes.
        if format == "json":
            own = len(_json({name: {number: call}}).encode())
            head = len(name.encode()) + 64
        else:
            own = (
                len(
                    csv_text(
                        [
                            (
                                name,
                                1.0,
                                number,
                                call["StartTimestamp"],
                                call["CostTime(ms)"],
                                str(call["Arguments"]),
                            )
                        ]
                    ).encode()
                )
                + 24
            )
            head = 128
        added = own + (head if name not in part else 0)
        if part and size + added > most_bytes:
            yield part
            part, size, added = {}, 0, own + head
        most = max(most, added)
        calls = part.setdefault(name, {"TotalTime(ms)": 0.0})
        calls["TotalTime(ms)"] += call["CostTime(ms)"]
        calls[number] = call
        size += added
    yield part


def _calls(records: Records) -> Iterator[Call]:
    for name, calls in records.items():
        for number, call in calls.items():
            if number != "TotalTime(ms)":
                yield name, number, call


def _json(value: Any) -> str:
    return json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no nan and no infinity: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def _stem(folder: Path, spec: str) -> str:
    """A name that no file of the folder begins with."""
    taken = {re.split(r"[_.]", path.name)[0] for path in folder.iterdir()}
    if spec == "serial":
        return str(max((int(name) for name in taken if name.isdecimal()), default=0) + 1)
    if spec == "timestamp":
        stamp = time.time_ns()
        while str(stamp) in taken:
            stamp += 1
        return str(stamp)
    now = datetime.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
    number = 1
    while (now if number == 1 else f"{now}-{number}") in taken:
        number += 1
    return now if number == 1 else f"{now}-{number}"
