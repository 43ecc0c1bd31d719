"""A program that calls faster than the writer writes: calls are counted as lost, or the program waits."""

from __future__ import annotations

import threading

import pytest
from seen import CORES

import luxmeter as lux


@pytest.mark.parametrize("core", CORES)
def test_every_call_is_kept_when_the_program_waits(core: str) -> None:
    calls, threads = 60_000 if core == "c" else 12_000, 2
    with lux.trace(framework=None, core=core, max_pending=8192, lossless=True) as t:
        work = t.wrap(len, name="work")

        def many() -> None:
            for _ in range(calls):
                work("")

        others = [threading.Thread(target=many) for _ in range(threads)]
        for other in others:
            other.start()
        for other in others:
            other.join()
    assert t.table()["work"].n == calls * threads
    assert t.result.notes() == []


def test_otherwise_what_does_not_fit_is_lost_and_told(core_name: str) -> None:
    """The writer is kept from writing: no luck of timing decides."""
    with lux.trace(framework=None, max_pending=4096) as t:
        work = t.wrap(len, name="work")
        assert t._spill is not None
        with t._spill._writing:
            for _ in range(10_000):
                work("")
    kept = t.table()["work"].n
    assert kept < 10_000 == t.live()["work"].n  # the running totals lose nothing
    assert t.result.notes() == [f"{10_000 - kept} calls lost: the writer could not keep up"]
