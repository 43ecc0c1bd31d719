"""A table of plain values for a terminal or for machines."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from luxmeter.described import TYPE, type_of
from luxmeter.render.plain import plain

if TYPE_CHECKING:
    from rich.console import Console


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    title: str = "",
    right: Collection[int] = (),
    stream: IO[str] | None = None,
) -> None:
    """Print rows under their columns, numbers and the columns `right` to the right. In a pipe the width is that of the content."""
    from rich.table import Table
    from rich.text import Text

    out = stream if stream is not None else sys.stdout
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(
            isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows
        )
        # A number is never broken: where the terminal is narrow, text is folded.
        table.add_column(
            column, justify="right" if numeric or i in right else "left", overflow="fold", no_wrap=i in right
        )
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))  # Text: brackets in values are not markup
    console_to(out, width=None if out.isatty() else 200).print(table)


def console_to(out: IO[str], *, width: int | None = None) -> Console:
    """A console that writes to `out` and nowhere else, with colours on a terminal only."""
    from rich.console import Console

    # In a notebook rich would show a table beside `out` instead of writing to it, and a kernel asks for colours.
    is_screen = out.isatty()
    return Console(
        file=out,
        width=width,
        force_jupyter=False,
        force_terminal=None if is_screen else False,
        highlight=False,
        markup=False,
    )


def terminal_width(stream: IO[str]) -> int | None:
    """Columns of the terminal behind a stream; None where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def that_fit(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    width: int | None,
    expendable: Sequence[tuple[str, ...]],
) -> list[int]:
    """Which columns to show so that no line is longer than `width`: the expendable go, the first of them first."""
    kept = list(range(len(columns)))
    if width is None:
        return kept
    wide = [max([len(column), *(len(cell(row[i])) for row in rows)]) for i, column in enumerate(columns)]
    for names in expendable:
        if sum(wide[i] for i in kept) + 2 * (len(kept) - 1) <= width:
            break
        kept = [i for i in kept if columns[i] not in names]
    return kept


def print_json(value: Any, *, stream: IO[str] | None = None) -> None:
    """Print a value for machines: one JSON document."""
    out = stream if stream is not None else sys.stdout
    found = for_machines(value)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    if any("\ud800" <= letter <= "\udfff" for letter in text):  # half a character has no bytes, but an escape
        text = json.dumps(found, indent=1)
    out.write(text + "\n")


def cell(value: Any) -> str:
    """The text of one value in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"
    return plain(str(value))


def for_machines(value: Any) -> Any:
    """Plain JSON that any program reads: tuples are lists, what is not a number is null, other things are text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        typed = {TYPE: name} if (name := type_of(value)) else {}
        return {**typed, **{str(key): for_machines(item) for key, item in value.items()}}
    if isinstance(value, list | tuple | set | frozenset):
        return [for_machines(item) for item in value]
    item = getattr(value, "item", None)  # NumPy scalars
    return for_machines(item()) if callable(item) else str(value)
