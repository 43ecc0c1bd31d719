"""Rows as CSV text in which no cell is a formula: a spreadsheet computes what begins with `=`, `+`, `-` or `@`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULAS = ("=", "+", "-", "@", "\t")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """One line a row. Text that a spreadsheet would compute gets a quote in front; numbers are as they are."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.replace("\r", "\\r")  # csv does not put quotes around it, and readers begin a new row there
    return f"'{text}" if text.startswith(_FORMULAS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
