"""Command-line text becomes what a person means by it, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luxmeter.literal import items, parse, show

NUMBERS = {
    "3": 3,
    "-3": -3,
    "+3": 3,
    "0": 0,
    "0.01": 0.01,
    "0.10": 0.1,
    ".5": 0.5,
    "1e-3": 1e-3,
    "1e5": 1e5,
    "100e3": 100e3,
    "1.5e10": 1.5e10,
    "-2.5E+3": -2500.0,
    "1e-05": 1e-5,
    "1e+22": 1e22,
    " 3 ": 3,
}
WORDS: dict[str, Any] = {"true": True, "False": False, "none": None, "null": None}
TEXTS = [
    "2026-11-15", "2026-11-15 10:30:00", "10:30", "12e4567", "12345e6", "123e456", "1e400", "1.0e400", "007", "00",
    "-01", "on", "off", "yes", "no", "1.2.3", "0x10", "1_000", "٣", "", "-", "a,b", "[1,2", "(1,2]", "(draft)",
    "[a,,b]", "{a: 1}", "--", "1 2", "it's", "'", '"', "e5", "9" * 5000, "[" * 20000 + "]" * 20000,
]  # fmt: skip
SEQUENCES: dict[str, Any] = {
    "[1,2]": [1, 2],
    "(1,2)": (1, 2),
    "(1,)": (1,),
    "[1]": [1],
    "[]": [],
    "()": (),
    "[a, b]": ["a", "b"],
    "[007, on, 12e4567]": ["007", "on", "12e4567"],
    "[[1, 2], (3, 4)]": [[1, 2], (3, 4)],
    "['a,b', \"c]\"]": ["a,b", "c]"],
    '[["{", "]"], ("a", "(b")]': [["{", "]"], ("a", "(b")],
    "[don't, stop]": ["don't", "stop"],
    '{"a": [1, 2]}': {"a": [1, 2]},
}


@pytest.mark.parametrize(("text", "value"), [*NUMBERS.items(), *WORDS.items(), *SEQUENCES.items()])
def test_it_is_the_value(text: str, value: Any) -> None:
    read = parse(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:20]))
def test_it_stays_text(text: str) -> None:
    assert parse(text) == text


def test_quotes_make_text_of_what_looks_like_a_number() -> None:
    assert parse('"3"') == "3"
    assert parse("'on'") == "on"
    assert parse('"a" and "b"') == '"a" and "b"'
    assert parse(r'"say \"hi\""') == 'say "hi"'


def test_infinities_and_nan() -> None:
    assert parse("inf") == math.inf
    assert parse("-inf") == -math.inf
    assert math.isnan(parse("nan"))


def test_items_are_texts() -> None:
    assert items("[1, on]") == ["1", "on"]
    assert items("1, 2") == ["1", "2"]
    assert items("[1, 2") is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_shown_is_read_back(value: Any) -> None:
    assert parse(show(value)) == value


@given(st.text())
def test_any_text_is_read_without_error(text: str) -> None:
    parse(text)
