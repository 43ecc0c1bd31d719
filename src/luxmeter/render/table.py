"""The one table: raw values under typed columns, fitted to a width. Every command and every `print(x)` goes through it.

The kind of a column says how its values are written and where they stand. Where it is narrow, text is folded and columns
are left out, in the order that they give; a number is never broken or cut.
Nothing in a cell, a heading, a title or a note can steer a terminal.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, Literal

from luxmeter.plain_text import one_line, plain
from luxmeter.render.amounts import amount, number, share, size, span
from luxmeter.render.signatures import signature_text

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2  # between columns
_ANY_WIDTH = 100_000
_WORD = 8  # text is not folded to less, unless it says so


class Kind(Enum):
    """What the values of a column are. All but text stand to the right and are never broken."""

    TEXT = "text"
    NUMBER = "number"  # as it is
    AMOUNT = "amount"  # a count: 4.09 G
    DURATION = "duration"  # nanoseconds: 1.23 ms
    BYTES = "bytes"  # 97.5 MiB
    SHARE = "share"  # of one: 12.3%


TEXT, NUMBER, AMOUNT, DURATION, BYTES, SHARE = Kind
_WRITTEN: dict[Kind, Callable[[Any], str]] = {
    TEXT: str, NUMBER: number, AMOUNT: amount, DURATION: span, BYTES: size, SHARE: share,
}  # fmt: skip
_COLOURS = {
    "running": "green", "failed": "red", "damaged": "red", "lost": "yellow", "interrupted": "yellow",
}  # fmt: skip
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class Column:
    """One column. A word among the values (`-`, `reference`) stays that word, whatever the kind.

    `form` writes numbers otherwise than their kind does, as in `format(value, form)`; `unit` holds durations to one unit.
    Where the width is too small, text is folded down to `folds` columns; then the columns with the lowest `goes` go first
    (None stays); then text is cut down to `least`. A text longer than `most` is always cut. `one_line`: never folded.
    `hidden` leaves the column out if no row has a value (`empty`) or all have the same (`same`). `bar`: on a page a share is drawn, too. `is_state`: coloured where the terminal has colours.
    `is_signature`: shapes first, and shortened without losing one.
    """

    name: str
    kind: Kind = TEXT
    form: str = ""
    unit: str = ""
    goes: float | None = None
    hidden: Literal["", "empty", "same"] = ""
    most: int | None = None
    least: int | None = None
    folds: int | None = None
    one_line: bool = False
    missing: str = "-"
    bar: bool = False
    is_state: bool = False
    is_signature: bool = False

    def text(self, value: Any) -> str:
        """The words of one value in this column."""
        if value is None:
            return self.missing
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.kind is TEXT and isinstance(value, float):
            return number(value)
        if self.is_signature:
            return signature_text(one_line(str(value)), self.most)
        if self.kind is TEXT or isinstance(value, str):
            return shortened(one_line(str(value)), self.most)
        if self.unit:
            value = value / _UNITS[self.unit]
        return format(value, self.form) if self.form else _WRITTEN[self.kind](value)


@dataclass(frozen=True)
class Table:
    """Rows of raw values, one for each column; notes are lines below."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    notes: Sequence[str] = field(default=())

    @cached_property
    def shown(self) -> list[int]:
        """Which columns say something; see `Column.hidden`."""
        return [i for i, column in enumerate(self.columns) if not self._is_hidden(i, column.hidden)]

    @property
    def names(self) -> list[str]:
        """The headings of the columns that are shown."""
        return [self.columns[i].name for i in self.shown]

    @property
    def cells(self) -> list[list[str]]:
        """The words of every row, in the columns that are shown."""
        lines = [[self.columns[i].text(row[i]) for i in self.shown] for row in self.rows]
        for place, i in enumerate(self.shown):
            if self.columns[i].is_signature:
                self._tell_apart(lines, place, i)
        return lines

    def _tell_apart(self, lines: list[list[str]], place: int, i: int) -> None:
        """Rows whose words are the same though their signatures are not: these get as much room as tells them apart."""
        alike: dict[tuple[str, ...], list[int]] = {}
        said = [at for at, k in enumerate(self.shown) if self.columns[k].kind is TEXT]
        for at_row, line in enumerate(lines):
            alike.setdefault(tuple(line[at] for at in said), []).append(at_row)
        for rows in alike.values():
            texts = {k: one_line(str(self.rows[k][i])) for k in rows}
            different = len(set(texts.values()))
            most = self.columns[i].most
            if different < 2 or most is None:
                continue
            longest = max(map(len, texts.values()))
            while len({signature_text(text, most) for text in texts.values()}) < different and most < longest:
                most += 8
            for k, text in texts.items():
                lines[k][place] = signature_text(text, most)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, of raw values."""
        return [{self.columns[i].name: row[i] for i in self.shown} for row in self.rows]

    def text(self, width: int | None = None) -> str:
        """The table in lines no longer than `width`, without colours."""
        out = io.StringIO()
        self.print(out, width=width)
        return out.getvalue().removesuffix("\n")

    def print(self, stream: IO[str] | None = None, *, width: int | None = None) -> list[str]:
        """Print it, as wide as the terminal, or in a pipe as its content; returns the columns that found no room."""
        out = stream if stream is not None else sys.stdout
        width = width or terminal_width(out)
        if self.title:
            out.write(f"{one_line(self.title)}\n")
        left_out = self._print_rows(out, width)
        for note in self.notes:
            out.write(f"{plain(note)}\n")
        return left_out

    def _print_rows(self, out: IO[str], width: int | None) -> list[str]:
        from rich.cells import cell_len
        from rich.table import Table as RichTable
        from rich.text import Text

        columns = [self.columns[i] for i in self.shown]
        heads = [one_line(column.name) for column in columns]
        lines = self.cells
        wide = [max(map(cell_len, (head, *(line[i] for line in lines)))) for i, head in enumerate(heads)]
        needed = [min(w, column.folds or w) for w, column in zip(wide, columns, strict=True)]
        fit = fitting(columns, needed, width)
        for i in fit:
            least = columns[i].least
            if least is not None and width is not None:
                room = max(width - sum(wide[k] + _GAP for k in fit if k != i), least)
                for line in lines:
                    line[i] = shortened(line[i], room)
                wide[i] = min(wide[i], room)
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for i, given in zip(
            fit, shared_out([columns[i] for i in fit], [wide[i] for i in fit], width), strict=True
        ):
            is_text, cut = columns[i].kind is TEXT, columns[i].one_line
            table.add_column(
                Text(heads[i]), justify="left" if is_text else "right", no_wrap=cut or not is_text, width=given,
                overflow="ellipsis" if cut else "fold",
            )  # fmt: skip
        for line in lines:
            # Text: brackets in values are not markup
            table.add_row(
                *(Text(line[i], _COLOURS.get(line[i], "") if columns[i].is_state else "") for i in fit)
            )
        made = out if out.isatty() else io.StringIO()
        _console(made, _ANY_WIDTH).print(table)  # the widths are given: nothing is left to rich
        if made is not out:
            _write_stripped(made, out)
        return [heads[i] for i in range(len(heads)) if i not in fit]

    def _is_hidden(self, i: int, rule: str) -> bool:
        if not rule:
            return False
        seen = {self.columns[i].text(row[i]) if row[i] not in (None, "") else "" for row in self.rows}
        return seen <= {""} or (rule == "same" and len(seen) == 1)


def fitting(columns: Sequence[Column], wide: Sequence[int], width: int | None) -> list[int]:
    """Which columns to show so that no line is longer than `width`: those go that may, the lowest `goes` first.

    Columns of one number go together; one column always stays.
    """
    fit = list(range(len(columns)))
    while width is not None and sum(wide[i] + _GAP for i in fit) - _GAP > width:
        going = [goes for i in fit if (goes := columns[i].goes) is not None]
        left = [i for i in fit if columns[i].goes != min(going)] if going else []
        if not left:
            break
        fit = left
    return fit


def shared_out(columns: Sequence[Column], wide: Sequence[int], width: int | None) -> list[int]:
    """How wide each column is: numbers as they need, text as far as there is room, in equal steps."""
    if width is None:
        return list(wide)
    given = [min(w, c.folds or _WORD) if c.kind is TEXT else w for w, c in zip(wide, columns, strict=True)]
    room = width - sum(given) - _GAP * (len(given) - 1)
    while room > 0 and (short := [i for i, w in enumerate(wide) if given[i] < w]):
        for i in short[:room]:
            given[i] += 1
        room -= len(short)
    return given


def shortened(text: str, most: int | None) -> str:
    """The text, cut with `...` if it is longer than `most`."""
    return text if most is None or len(text) <= most else f"{text[: max(0, most - 3)]}..."


def markdown(table: Table) -> str:
    """The table in Markdown; numbers stand to the right."""
    chosen = [table.columns[i] for i in table.shown]
    lines = [
        table.names,
        ["---" if column.kind.value == "text" else "---:" for column in chosen],
        *table.cells,
    ]
    return "\n".join("| " + " | ".join(map(markdown_text, line)) + " |" for line in lines)


def markdown_text(text: str) -> str:
    """Nothing in it is taken for Markdown or HTML."""
    return (
        one_line(text)
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )


def write_lines(lines: Sequence[str], out: IO[str], *, width: int | None) -> None:
    """Lines of prose, broken between words where they are longer than `width`."""
    whole = io.StringIO()
    for line in lines:
        _console(whole, width or _ANY_WIDTH).print(plain(line))
    _write_stripped(whole, out)


def _write_stripped(made: IO[str], out: IO[str]) -> None:
    """Without the spaces that fill lines up."""
    made.seek(0)
    written = getattr(out, "encoding", None) or "utf-8"  # a terminal may know no more than ASCII
    for line in made:
        out.write(f"{line.rstrip()}\n".encode(written, "replace").decode(written))


def terminal_width(stream: IO[str]) -> int | None:
    """Columns of the terminal behind a stream, or as many as COLUMNS says it has; None where there is none."""
    try:
        if not stream.isatty():
            return None
        said = os.environ.get("COLUMNS", "")
        return int(said) if said.isdecimal() else os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _console(out: IO[str], width: int) -> Console:
    """A console that writes to `out` and nowhere else, with colours on a terminal only."""
    from rich.console import Console

    # In a notebook rich would show a table beside `out` instead of writing to it, and a kernel asks for colours.
    # Without a height a dumb terminal has 80 columns, whatever the width.
    return Console(
        file=out, width=width, height=25, force_jupyter=False, force_terminal=None if out.isatty() else False, highlight=False,
        markup=False,
    )  # fmt: skip
