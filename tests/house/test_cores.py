"""Every trace test runs on both cores, or says why not."""

from __future__ import annotations

from pathlib import Path

from both_cores import one_core


def test_every_trace_test_sees_both_cores_or_says_why_not() -> None:
    assert not one_core(Path(__file__).parent.parent)
