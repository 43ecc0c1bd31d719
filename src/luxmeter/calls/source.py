"""Annotated source: each line of the user's files with the calls it made and their time. Pure, but for reading the kept texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from luxmeter.calls.records import SiteNames
from luxmeter.calls.sites import read_source
from luxmeter.calls.table import NO_SITE, CallTable
from luxmeter.errors import UsageError, suggestion
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording

_AROUND = 2  # lines shown before and after one that calls


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file, and the calls it made. Times and share as in the table by line."""

    number: int
    text: str
    n: int = 0
    total_ns: int = 0
    self_ns: int = 0
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the user's as it was when the trace was made; `lines` are those that call if its text was not to be had."""

    name: str
    path: str
    lines: tuple[SourceLine, ...]
    self_ns: int
    share: float

    def table(self, *, whole: bool = False) -> Table:
        """The lines that call and those around them, or the whole file."""
        near = {n + k for n in (x.number for x in self.lines if x.n) for k in range(-_AROUND, _AROUND + 1)}
        columns = [
            Column("n", NUMBER, form=",", missing="", goes=1),
            Column("total ms", DURATION, unit="ms", form=",.3f", missing="", goes=2),
            Column("self ms", DURATION, unit="ms", form=",.3f", missing=""),
            Column("share", SHARE, form=".1%", missing="", bar=True),
            Column("line", NUMBER),
            Column(self.name, least=20, one_line=True),
        ]
        rows: list[list[object]] = []
        before = 0
        for x in self.lines:
            if not whole and x.number not in near:
                continue
            if rows and x.number > before + 1:
                rows.append([None, None, None, None, "...", ""])
            before = x.number
            seen = [x.n, x.total_ns, x.self_ns, x.share] if x.n else [None] * 4
            rows.append([*seen, x.number, x.text.expandtabs(4)])
        return Table(columns, rows)


class AnnotatedSource:
    """The user's files that make calls, the most costly first. Iterable; `source["train.py"]` is one of them."""

    def __init__(self, files: Sequence[SourceFile], *, elsewhere: float = 0.0) -> None:
        """`elsewhere`: the share of calls that no line of the user's made."""
        self.files = tuple(files)
        self.elsewhere = elsewhere

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self.files)

    def __getitem__(self, name: str) -> SourceFile:
        for file in self.files:
            if name in (file.name, file.path):
                return file
        names = [file.name for file in self.files]
        raise UsageError(
            "no-such-source",
            f"No file called {name!r} made a call.",
            suggestion(name, names) or f"These did: {', '.join(names) or 'none'}.",
        )

    def text(self, *, width: int | None = None, whole: bool = False) -> str:
        """Each file's lines that call, with what they cost."""
        parts = [f"{file.name}: {file.share:.1%} of the time in calls\n{file.table(whole=whole).text(width)}"
                 for file in self.files]  # fmt: skip
        if self.elsewhere:
            parts.append(f"{self.elsewhere:.1%} of the time is of calls that no line of yours made")
        return "\n\n".join(parts) or "no line of yours made a call"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """In a notebook."""
        from luxmeter.render import repr_html

        return repr_html(*(file.table() for file in self.files))


def annotate(recording: Recording, table: CallTable, folders: Sequence[Path]) -> AnnotatedSource:
    """The lines of a table by line, in the texts that the traces in these folders keep."""
    places: dict[str, SiteNames] = {}
    for site, line in zip(recording.sites, recording.lines, strict=True):
        if site is not None:
            places[line] = site
    by_file: dict[str, dict[int, SourceLine]] = {}
    for row in table:
        if row.name in places:
            site = places[row.name]
            by_file.setdefault(row.name.rpartition(":")[0], {})[site.line] = SourceLine(
                site.line, "", row.n, row.total_ns, row.self_ns, row.share
            )
    files = []
    for name, called in by_file.items():
        site = places[f"{name}:{next(iter(called))}"]
        text = read_source(folders, site.source)
        lines = text.splitlines() if text is not None else []
        numbers = range(1, max(len(lines), *called) + 1) if text is not None else sorted(called)
        files.append(
            SourceFile(
                name,
                site.file,
                tuple(_line(n, lines, called) for n in numbers),
                sum(line.self_ns for line in called.values()),
                sum(line.share for line in called.values()),
            )
        )
    elsewhere = next((row.share for row in table if row.name == NO_SITE), 0.0)
    return AnnotatedSource(sorted(files, key=lambda file: -file.self_ns), elsewhere=elsewhere)


def _line(number: int, lines: Sequence[str], called: dict[int, SourceLine]) -> SourceLine:
    text = lines[number - 1] if number <= len(lines) else ""
    known = called.get(number)
    if known is None:
        return SourceLine(number, text)
    return SourceLine(number, text, known.n, known.total_ns, known.self_ns, known.share)
