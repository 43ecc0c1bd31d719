"""Annotated source: each line of the user's files with the calls it made and their time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from luxmeter.calls.records import SiteNames
from luxmeter.calls.table import NO_SITE, CallTable
from luxmeter.errors import UsageError, suggestion
from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table

if TYPE_CHECKING:
    from luxmeter.calls.reader import Recording
    from luxmeter.calls.result import TraceResult

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
            Column("total", DURATION, missing="", goes=2),
            Column("self", DURATION, missing=""),
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


def annotate(recording: Recording, table: CallTable, text_of: Callable[[str], str | None]) -> AnnotatedSource:
    """The lines of a table by line, in the texts that the trace keeps."""
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
        text = text_of(site.source)
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


def same_lines(a: TraceResult, b: TraceResult) -> dict[str, str]:
    """What the lines of A are called in B, where the files' texts say: a line that only moved is the same line.

    One that B has no more keeps its name, marked where another line of B has it now.
    """
    found: dict[str, str] = {}
    taken = set(b.recording.lines)
    texts = {line.rpartition(":")[0]: site.source for site, line in _known(b.recording)}
    moves: dict[str, dict[int, int] | None] = {}
    for site, line in _known(a.recording):
        file = line.rpartition(":")[0]
        if file not in moves:
            moves[file] = _moves(a.text_of(site.source), b.text_of(texts.get(file, "")))
        known = moves[file]
        if known is None:
            continue
        if site.line in known:
            found[line] = f"{file}:{known[site.line]}"
        elif line in taken:
            found[line] = f"{line} (of A)"
    return found


def _known(recording: Recording) -> Iterator[tuple[SiteNames, str]]:
    return ((site, line) for site, line in zip(recording.sites, recording.lines, strict=True) if site)


def _moves(a: str | None, b: str | None) -> dict[int, int] | None:
    """Line numbers of A -> of B, for the lines that both have; None if the texts are not known or are the same."""
    if a is None or b is None or a == b:
        return None
    one, two = a.splitlines(), b.splitlines()
    found: dict[int, int] = {}
    for kind, i, i_end, j, j_end in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind == "equal":
            found |= {n + 1: n + 1 + j - i for n in range(i, i_end)}
        for n in range(i, i_end) if kind == "replace" else ():  # a line that was edited is still that line
            like = next((k for k in range(j, j_end) if _is_like(one[n], two[k])), None)
            if like is not None:
                found[n + 1], j = like + 1, like + 1
    return found


def _is_like(a: str, b: str) -> bool:
    return (
        SequenceMatcher(None, a.split(), b.split()).ratio() > 0.5 or SequenceMatcher(None, a, b).ratio() > 0.6
    )


def _line(number: int, lines: Sequence[str], called: dict[int, SourceLine]) -> SourceLine:
    text = lines[number - 1] if number <= len(lines) else ""
    known = called.get(number)
    if known is None:
        return SourceLine(number, text)
    return SourceLine(number, text, known.n, known.total_ns, known.self_ns, known.share)
