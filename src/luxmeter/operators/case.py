"""An operator with its signature, and a collection of them: kept as data, never as pickled code.

File format `operators`, version 1: JSON lines in UTF-8. The first line says what the file is; every further line is
one case: {"op", "args", "kwargs", "count", "total_ns", "where", "lines", "source", "outputs"}, arguments as in `signature.json`,
the shapes of its result's tensors as lists.
The first line may say `whole`, [nanoseconds, calls] of all that the cases are a part of.
History: 1, the first; 2 adds the lines of the program that called it (`lines`).
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from luxmeter.by_name import by_name
from luxmeter.errors import UsageError, suggestion, warn_once
from luxmeter.files import parsed_json, write_named
from luxmeter.render import counted
from luxmeter.signature import Signature, signature_from_json, to_json
from luxmeter.store import put_result
from luxmeter.torch_extra import require_torch

if TYPE_CHECKING:
    from luxmeter.calls import Trace, TraceResult

VERSION = 2
_WHAT = "luxmeter operators"
_MOST_PLACES = 20  # where it was called from: enough to find it again


@dataclass(frozen=True)
class Case:
    """One operator as it was called: its name, what it was given, how often, how long in total, from where."""

    op: str
    signature: Signature
    count: int = 1
    total_ns: int | None = None
    where: tuple[str, ...] = ()
    source: str = ""
    outputs: tuple[tuple[int, ...], ...] | None = None  # shapes of what it gave, where they were recorded
    lines: tuple[str, ...] = ()  # of the program that called it (`train.py:17`), the longest first

    @property
    def size_bytes(self) -> int:
        """Bytes of its inputs."""
        return self.signature.size_bytes

    @property
    def identity(self) -> tuple[str, Signature]:
        """What makes two cases the same: name and arguments, but not which values happened to be in the tensors."""
        plain = self.signature.map_tensors(lambda t: t if t.facts is None else replace(t, facts=None))
        return self.op, plain if not plain.ranges else replace(plain, ranges=())

    def __str__(self) -> str:
        return f"{self.op}({self.signature})"


class Operators:
    """Distinct cases, in an order; has a length, can be iterated and sliced, filtered, merged and saved."""

    def __init__(self, cases: Iterable[Case] = (), *, whole: tuple[int, int] | None = None) -> None:
        """Equal cases are counted together; of values in tensors the first one's facts are kept.

        `whole` is the time in nanoseconds and the calls of all that these are a part of; without it, their own.
        """
        together: dict[tuple[str, Signature], Case] = {}
        for case in cases:
            key = case.identity
            together[key] = _sum(together[key], case) if key in together else case
        self._cases = tuple(together.values())
        self._whole = whole

    @classmethod
    def of(cls, trace: Trace | TraceResult, *, backward: bool = False) -> Operators:
        """The operators of a trace, the longest first; with `backward`, what their backward passes run, too.

        Inside a run they are put into it.
        """
        require_torch("Telling which calls of a trace are operators")
        from luxmeter.operators.extract import operators_of

        found = operators_of(trace)
        found = found.with_backward() if backward else found
        return put_operators(found)

    def with_backward(self, *, seed: int = 0) -> Operators:
        """These and, behind them, the aten operators that their backward passes run (found by replaying each)."""
        require_torch("Finding what backward passes run")
        from luxmeter.operators.extract import backward_cases

        return self + backward_cases(self, seed=seed)

    def __len__(self) -> int:
        return len(self._cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> Operators: ...
    def __getitem__(self, index: int | slice) -> Case | Operators:
        return self._part(self._cases[index]) if isinstance(index, slice) else self._cases[index]

    def __add__(self, other: Operators) -> Operators:
        known = self._whole is not None or other._whole is not None
        both = (self.whole[0] + other.whole[0], self.whole[1] + other.whole[1])
        return Operators([*self, *other], whole=both if known else None)

    def _part(self, cases: Iterable[Case]) -> Operators:
        return Operators(cases, whole=self.whole)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operators) and self._cases == other._cases

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.title}>"

    def _repr_html_(self) -> str:
        """In a notebook."""
        shown: str = by_name("operators html")(self)
        return shown

    @property
    def total_ns(self) -> int:
        """The time of all cases that were timed."""
        return sum(case.total_ns or 0 for case in self)

    @property
    def whole(self) -> tuple[int, int]:
        """Nanoseconds and calls of all that these are a part of: the trace they come from, all cases of their file."""
        return self._whole if self._whole is not None else (self.total_ns, sum(c.count for c in self))

    @property
    def known_whole(self) -> tuple[int, int] | None:
        """`whole`, if these come from a trace; cases that were put together are a part of nothing."""
        return self._whole if self._whole is not None and self._whole[0] else None

    def share(self, case: Case) -> float:
        """A case's part of the time of the whole (of its calls, where no times are known), however few are left here."""
        time_ns, calls = self.whole
        return (case.total_ns or 0) / time_ns if time_ns else case.count / max(1, calls)

    @property
    def coverage(self) -> float:
        """The part of the whole that all of these are."""
        return sum(map(self.share, self))

    def top(self, n: int) -> Operators:
        """The n cases with most time; with most calls where no times are known."""
        ranked = sorted(self, key=lambda c: (c.total_ns or 0, c.count), reverse=True)
        return self._part(ranked[:n])

    def filter(self, *, name: str | None = None, module: str | None = None) -> Operators:
        """Those whose name matches, and that were called from a matching module path (patterns such as `*conv*`).

        A pattern that matches nothing is an error, with the nearest name.
        """
        kept = list(self)
        if name is not None:
            kept = [c for c in kept if _matches(c.op, name)]
            if not kept:
                known = {part for c in self for part in (c.op, c.op.rpartition(".")[2])}
                raise UsageError(
                    "no-such-operator",
                    f"None of the {len(self)} operators is called {name!r}.",
                    suggestion(name, known) or "Patterns such as '*conv*' work, too.",
                )
        if module is not None:
            found = [c for c in kept if any(_matches(place, module) for place in c.where)]
            if not found:
                known = {place for c in kept for place in c.where}
                raise UsageError(
                    "no-such-module",
                    f"None of these operators was called from {module!r}.",
                    suggestion(module, known) or "Look at the `where` of the cases.",
                )
            kept = found
        return self._part(kept)

    @property
    def title(self) -> str:
        """In a line: how many."""
        names, calls = len({case.op for case in self}), sum(case.count for case in self)
        return f"{counted(len(self), 'operator')} of {counted(names, 'name')}, {counted(calls, 'call')}"

    def save(self, path: str | Path) -> Path:
        """Write all cases to one file, whole or not at all."""
        path = Path(path)
        head: dict[str, Any] = {"what": _WHAT, "version": VERSION, "cases": len(self)}
        if self._whole is not None:
            head["whole"] = list(self._whole)
        lines = [json.dumps(head), *(json.dumps(case_to_json(case), allow_nan=False) for case in self)]
        write_named(path, ("\n".join(lines) + "\n").encode())
        return path


def put_operators(found: Operators) -> Operators:
    """The operators, put into the run that they were extracted in."""
    put_result("ops", found.title, "ops.jsonl", found.save)
    return found


def load_operators(path: str | Path) -> Operators:
    """The operators in a file: our own format, or one of those that `foreign` reads.

    A warning says how many entries of another tool's file could not be read, and where and why the first.

    >>> ops = load_operators("operators.jsonl")  # doctest: +SKIP
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 16)
    except OSError as error:
        raise UsageError(
            "operators-unreadable", f"{path} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error
    head = _head(first)
    if head is None:
        from luxmeter.operators.foreign.load import load_foreign

        captured = load_foreign(path)
        if captured.problems:
            warn_once(
                "operators-left-out",
                captured.left_out,
                "Mend or remove them if they matter.",
                key=captured.left_out,
            )
        return captured.operators
    if not isinstance(head["version"], int) or head["version"] > VERSION:
        raise UsageError(
            "operators-newer",
            f"{path} has version {head['version']!r} of the operators format; this Luxmeter reads up to {VERSION}.",
            "Update Luxmeter, or save the operators again with this one.",
        )
    cases = []
    with path.open(encoding="utf-8", errors="replace") as file:
        next(file)
        for number, line in enumerate(file, 2):
            try:
                cases.append(case_from_json(parsed_json(line)))
            except (ValueError, KeyError, TypeError) as error:
                what = error.what if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
                raise UsageError(
                    "operators-damaged",
                    f"{path}, line {number}, is no case of an operator. {what}",
                    "Remove that line, or extract the operators again.",
                ) from error
    if len(cases) != head.get("cases", len(cases)):
        raise UsageError(
            "operators-damaged",
            f"{path} promises {head['cases']} cases and holds {len(cases)}.",
            "It was cut off: copy it or extract the operators again.",
        )
    return Operators(cases, whole=_whole(head.get("whole")))


def _whole(said: Any) -> tuple[int, int] | None:
    fits = isinstance(said, list) and len(said) == 2 and all(type(n) is int and n >= 0 for n in said)
    return (said[0], said[1]) if fits else None


def is_operators_file(path: str | Path) -> bool:
    """Whether a file is of our own format (of any version), and no other tool's."""
    try:
        with Path(path).open("rb") as file:
            return _head(file.readline(1 << 16)) is not None
    except OSError:
        return False


def _head(line: bytes) -> dict[str, Any] | None:
    try:
        head = parsed_json(line)
    except ValueError:
        return None
    return head if isinstance(head, dict) and head.get("what") == _WHAT and "version" in head else None


def case_to_json(case: Case) -> dict[str, Any]:
    """A case as one line of the file."""
    said: dict[str, Any] = {"op": case.op, **to_json(case.signature), "count": case.count}
    if case.total_ns is not None:
        said["total_ns"] = case.total_ns
    if case.where:
        said["where"] = list(case.where)
    if case.lines:
        said["lines"] = list(case.lines)
    if case.source:
        said["source"] = case.source
    if case.outputs is not None:
        said["outputs"] = case.outputs
    return said


def case_from_json(said: Any) -> Case:
    """What `case_to_json` made of a case, read back; ValueError if it is none."""
    if not isinstance(said, dict) or not isinstance(said.get("op"), str):
        raise ValueError("it has no 'op'")
    said = dict(said)
    op, count, total_ns = said.pop("op"), said.pop("count", 1), said.pop("total_ns", None)
    where, source, outputs = said.pop("where", []), said.pop("source", ""), said.pop("outputs", None)
    lines = said.pop("lines", [])
    if type(count) is not int or not isinstance(total_ns, int | None):
        raise ValueError("count and total_ns are whole numbers")
    if not isinstance(where, list) or not isinstance(lines, list):
        raise ValueError("where and lines are lists")
    places = tuple(map(str, where)), str(source), _shapes(outputs), tuple(map(str, lines))
    try:
        signature = signature_from_json(said)
        hash(signature)  # a forged one may hold what has no hash
    except (ArithmeticError, LookupError, AttributeError, RecursionError, TypeError) as error:
        raise ValueError(f"its arguments are none that we write: {error}") from error
    return Case(op, signature, count, total_ns, *places)


def _shapes(said: Any) -> tuple[tuple[int, ...], ...] | None:
    if said is None:
        return None
    if not isinstance(said, list | tuple) or not all(
        isinstance(shape, list | tuple) and all(type(n) is int for n in shape) for shape in said
    ):
        raise ValueError("outputs is a list of shapes")
    return tuple(map(tuple, said))


def _sum(a: Case, b: Case) -> Case:
    times = [t for t in (a.total_ns, b.total_ns) if t is not None]
    where = tuple(dict.fromkeys((*a.where, *b.where)))[:_MOST_PLACES]
    return replace(
        a,
        signature=a.signature.with_ranges(_wider(a.signature.ranges, b.signature.ranges)),
        count=a.count + b.count,
        total_ns=sum(times) if times else None,
        where=where,
        lines=tuple(dict.fromkeys((*a.lines, *b.lines)))[:_MOST_PLACES],
        source=a.source
        if a.source == b.source
        else ", ".join(dict.fromkeys(filter(None, (a.source, b.source)))),
    )


def _wider(
    a: tuple[tuple[float, float], ...], b: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=False)) or a or b


def _matches(name: str, pattern: str) -> bool:
    """The whole name or its last part matches the pattern."""
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name.rpartition(".")[2], pattern)
