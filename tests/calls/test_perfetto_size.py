"""A million calls as a Perfetto file: valid, loadable, and small when limited to a window or a depth."""

from __future__ import annotations

from pathlib import Path

import pytest
from seen import FASTEST
from test_export import check_trace_event_format

import luxmeter as lux
from luxmeter.calls import export
from luxmeter.calls.window import Window

ONE_CORE = "the size of a file of so many calls; the quickest core makes them"


def check(calls: int) -> None:
    with lux.trace(framework=None, core=FASTEST, lossless=True, inside=True) as t:
        inner = t.wrap(len, name="inner")
        outer = t.wrap(lambda: [inner("") for _ in range(9)], name="outer")
        for _ in range(calls // 10):
            outer()
    result = t.result
    assert result.table()["inner"].n + result.table()["outer"].n == calls
    sizes = {}
    for name, window in {
        "whole": None,
        "flat": Window(depth=1),
        "window": Window(start_s=0.0, end_s=0.0005),
    }.items():
        path = Path(export.write(result, f"{name}.perfetto.json", window=window))
        events = check_trace_event_format(path.read_text())
        sizes[name] = (len(events), path.stat().st_size)
        path.unlink()
    own = sizes["whole"][0] - calls  # descriptions of signatures at first sight
    assert 0 <= own <= 2 and calls // 10 <= sizes["flat"][0] <= calls // 10 + own
    assert 0 < sizes["window"][0] < calls
    assert sizes["whole"][1] < 200 * calls, sizes


def test_a_small_one() -> None:
    check(10_000)


@pytest.mark.soak
def test_a_million() -> None:
    check(1_000_000)
