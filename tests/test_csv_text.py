"""No cell of a CSV file is a formula."""

from __future__ import annotations

import csv
import io

import pytest

from luxmeter.csv_text import csv_text


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(1)", "\t=1", '=HYPERLINK("a","b")']
)
def test_what_a_spreadsheet_would_compute_is_text(text: str) -> None:
    assert list(csv.reader(io.StringIO(csv_text([["name", text]]), newline=""))) == [["name", f"'{text}"]]


def test_all_else_is_as_it_is() -> None:
    row = [1, -2.5, None, "-1.5e-3", "+inf", "a=b", "", "a,b", "a\rb"]
    assert list(csv.reader(io.StringIO(csv_text([row])))) == [
        ["1", "-2.5", "", "-1.5e-3", "+inf", "a=b", "", "a,b", "a\\rb"]
    ]
