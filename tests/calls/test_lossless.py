"""A program that calls faster than the writer writes: calls are counted as lost, or the program waits."""

from __future__ import annotations

import threading

import pytest
from seen import CORES

import luxmeter as lux
from luxmeter.calls import writer


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


def test_buffers_that_are_full_of_few_calls_count_as_full(
    core_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of many kinds fill one sooner, and so do those that came after some were taken out of it."""
    monkeypatch.setattr(writer, "FLUSH_EVERY_S", 60.0)  # the program's own threads have to see to it
    with lux.trace(framework=None, max_pending=8192, lossless=True) as t:
        works = [t.wrap(len, name=f"work{number}") for number in range(800)]
        for _ in range(20):
            for work in works:
                work("")
        turns, work = [threading.Semaphore(0), threading.Semaphore(0)], works[0]

        def some(own: int) -> None:
            for n in (2000, 48, 1, 2048, 2048, 2048):
                turns[own].acquire()
                for _ in range(n):
                    work("")
                done.release()

        done = threading.Semaphore(0)
        threads = [threading.Thread(target=some, args=[own]) for own in (0, 1)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            for own in (0, 1):
                turns[own].release()
                done.acquire()
            if turn == 0:
                assert t._spill is not None
                t._spill.flush()
        for thread in threads:
            thread.join()
    assert sum(row.n for row in t.table()) == 20 * 800 + 2 * (2000 + 48 + 1 + 3 * 2048)
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
