"""A table of plain values for a terminal or for machines."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from luxmeter.render.plain import plain


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", stream: IO[str] | None = None
) -> None:
    """Print rows under their columns, numbers to the right. In a pipe the width is that of the content."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = stream if stream is not None else sys.stdout
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(
            isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows
        )
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))  # Text: brackets in values are not markup
    console = Console(file=out) if out.isatty() else Console(file=out, width=200)
    console.print(table)


def print_json(value: Any, *, stream: IO[str] | None = None) -> None:
    """Print a value for machines: one JSON document."""
    out = stream if stream is not None else sys.stdout
    out.write(json.dumps(_for_machines(value), indent=1, ensure_ascii=False) + "\n")


def cell(value: Any) -> str:
    """The text of one value in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"
    return plain(str(value))


def _for_machines(value: Any) -> Any:
    """Plain JSON that any program reads: tuples are lists, what is not a number is null, other things are text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _for_machines(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_for_machines(item) for item in value]
    item = getattr(value, "item", None)  # NumPy scalars
    return _for_machines(item()) if callable(item) else str(value)
