"""Numbers for people."""

from __future__ import annotations

from luxmeter.render import counted


def test_a_noun_agrees_with_its_number() -> None:
    assert [counted(n, "run") for n in (0, 1, 2, 9999)] == ["no runs", "1 run", "2 runs", "9,999 runs"]
