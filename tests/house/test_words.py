"""Names are made of words that need no explanation, and say something."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_words import retired, saying_nothing

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("folder", ["src/luxmeter", "tools", "benchmarks", "examples"])
def test_no_retired_word_is_in_a_name(folder: str) -> None:
    assert not retired(REPOSITORY / folder)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "tools"])
def test_the_names_of_modules_say_something(folder: str) -> None:
    assert not saying_nothing(REPOSITORY / folder)
