"""A table of plain values for a terminal or for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import IO, Any

from luxmeter.files import to_json


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
    out.write(json.dumps(to_json(value), indent=1, ensure_ascii=False) + "\n")


def cell(value: Any) -> str:
    """The text of one value in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
