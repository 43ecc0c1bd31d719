"""Operators that other tools captured: PyTorch's operator-input logs, torch.profiler Chrome traces with
record_shapes, ExecutionTraceObserver JSON. Parsing never evaluates text as code.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.files import parsed_json
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.foreign import input_logs

# More than so many times a packed file's size is a bomb, from so many bytes on.
_MOST_TIMES, _SMALL_BYTES = 200, 256 << 20


@dataclass(frozen=True)
class Problem:
    """An entry that could not be read: where it stands and why."""

    place: str
    why: str


@dataclass(frozen=True)
class Captured:
    """What a foreign file held. `entries` counts all inputs it holds, `problems` those that could not be read."""

    operators: Operators
    entries: int
    problems: tuple[Problem, ...] = ()

    @property
    def left_out(self) -> str:
        """A sentence about what could not be read; empty if there is nothing."""
        if not self.problems:
            return ""
        first = self.problems[0]
        return f"{len(self.problems)} of {self.entries} inputs could not be read; the first: {first.place}: {first.why}."


def load_foreign(path: str | Path) -> Captured:
    """Read a file of any of the known kinds; a file of which nothing can be read is an error naming the first place."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            "operators-unreadable", f"{path} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error
    if data[:2] == b"\x1f\x8b":
        most = max(_SMALL_BYTES, _MOST_TIMES * len(data))
        try:
            with gzip.open(path) as stream:
                data = stream.read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise _unknown(path, f"it is a damaged gzip file ({error})") from error
        if len(data) > most:
            raise _unknown(path, f"it unpacks to more than {most:,} bytes, which no log of its size does")
    text = data.decode("utf-8", errors="replace")
    captured = _from_json(text, path) if text.lstrip()[:1] in ("{", "[") else _from_log(text, path)
    if not len(captured.operators):
        why = (
            f"{captured.problems[0].place}: {captured.problems[0].why}"
            if captured.problems
            else "it holds no operator"
        )
        raise _unknown(path, why)
    return captured


def _from_log(text: str, path: Path) -> Captured:
    return _collect(
        (f"{path}, line {number}", found)
        for number, found in input_logs.cases_in(iter(text.splitlines()), source=path.name)
    )


def _from_json(text: str, path: Path) -> Captured:
    from luxmeter.operators.foreign.profiler import chrome_cases, execution_cases  # imports torch

    try:
        data = parsed_json(text)
    except ValueError as error:
        raise _unknown(path, f"it is damaged JSON ({error})") from error
    if isinstance(data, dict) and isinstance(data.get("traceEvents"), list):
        found = chrome_cases(data["traceEvents"], source=path.name)
    elif isinstance(data, list):
        found = chrome_cases(data, source=path.name)
    elif isinstance(data, dict) and isinstance(data.get("nodes"), list):
        found = execution_cases(data["nodes"], source=path.name)
    else:
        raise _unknown(path, "its JSON has neither traceEvents nor nodes")
    return _collect((f"{path}, {place}", case) for place, case in found)


def _collect(found: Iterable[tuple[str, Any]]) -> Captured:
    cases: list[Case] = []
    problems: list[Problem] = []
    for place, case in found:
        if isinstance(case, Case):
            cases.append(case)
        else:
            problems.append(Problem(place, str(case)))
    return Captured(Operators(cases), len(cases) + len(problems), tuple(problems))


def _unknown(path: Path, why: str) -> UsageError:
    return UsageError(
        "not-operators",
        f"{path} holds no operators: {why}.",
        "Luxmeter reads its own operator files, PyTorch's operator-input logs, Chrome traces of torch.profiler made "
        "with record_shapes=True, and ExecutionTraceObserver JSON.",
    )
