"""Many threads at once: every call is counted, on each core.

The Python core counts right in a free-threaded Python with its lock off, too: run this there (docs/tracing.md)."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from types import ModuleType

import pytest

from luxmeter.calls import core as cores

THREADS, CALLS = 8, 1000


def count(core: ModuleType, *, totals: bool, max_pending: int = 1 << 20) -> None:
    """Threads that call, nest, fail and meet new signatures, and one that takes events out; then all adds up."""
    described: list[int] = []
    recorder = core.Recorder(
        totals=totals,
        max_pending=max_pending,
        max_signatures=60,
        on_signature=lambda callable_id, signature, *_: described.append(signature),
    )

    def fail() -> None:
        raise ValueError

    calls = {name: recorder.add_callable(name) for name in ("inner", "outer", "many", "fails", "step")}
    inner = recorder.wrap(lambda: None, calls["inner"])
    outer = recorder.wrap(lambda *args: inner(), calls["outer"])
    many = recorder.wrap(lambda *args: None, calls["many"])
    fails = recorder.wrap(fail, calls["fails"])
    recorder.start()
    together = threading.Barrier(THREADS + 1)
    taken: list[bytes] = []

    def work() -> None:
        together.wait()
        for i in range(CALLS):
            outer(i % 3, 0.5 * i)
            many(i % 100)
            with contextlib.suppress(ValueError):
                fails()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    together.wait()
    for thread in threads:
        while thread.is_alive():
            taken += recorder.drain()
            thread.join(0.01)
    recorder.stop()
    taken += recorder.drain()
    stats, live = recorder.stats(), {row[0]: row for row in recorder.live()}
    made = THREADS * CALLS
    assert stats["passed"] == made, stats
    assert stats["events"] + stats["lost"] == 3 * made, stats
    assert stats["hook_errors"] == stats["unfinished"] == 0, stats
    assert [live[calls[name]][1] for name in ("outer", "many", "fails")] == [made] * 3
    assert live[calls["fails"]][6] == made
    # "outer" has 3 signatures, "fails" one, "many" 60 and one for the rest: each described once.
    assert sorted(described) == list(range(1, 66)), Counter(described).most_common(3)
    assert recorder.float_ranges()[min(recorder.float_ranges())][0][0] <= 1.0
    if totals:
        rows = Counter[int]()
        for row in recorder.totals():
            rows[row[0]] += row[5]
        assert [rows[calls[name]] for name in ("outer", "many", "fails")] == [made] * 3
    else:
        size = core.EVENT_SIZE
        kept = Counter[int]()
        for chunk in taken:
            assert len(chunk) % size == 0
            for at in range(0, len(chunk), size):
                kept[int.from_bytes(chunk[at + 32 : at + 36], "little")] += 1
        assert sum(kept[number] for number in calls.values()) == stats["events"]


@pytest.mark.parametrize("totals", [False, True], ids=["events", "totals"])
@pytest.mark.parametrize("max_pending", [1 << 20, 4096])
def test_every_call_of_many_threads_is_counted(core: ModuleType, totals: bool, max_pending: int) -> None:
    count(core, totals=totals, max_pending=max_pending)


@pytest.mark.one_core("which of them is chosen")
def test_a_python_without_its_lock_has_the_python_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHON_GIL=0 keeps the lock off although the C core was imported: it would count wrong, so it is not used."""
    monkeypatch.delenv("LUXMETER_CORE", raising=False)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    name, reason = cores.describe()
    assert name == "python" and ("GIL" in reason or "not built" in reason)
    for totals in (False, True):
        count(cores.load()[0], totals=totals)
