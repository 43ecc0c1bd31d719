"""Whatever fails while a trace is written down: no call vanishes without a word, and nothing reaches the program."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import luxmeter as lux
from luxmeter.calls import describe, packed, session, writer
from luxmeter.calls.arguments import Arguments
from luxmeter.errors import LuxmeterWarning, forget_warnings
from luxmeter.signature import Opaque
from luxmeter.store import SegmentWriter, read_sealed

CALLS = 6_000

STEPS: dict[str, tuple[Any, str]] = {
    "take": (writer.Spill, "_take"),
    "ids": (packed, "ids_in"),
    "batch": (packed, "to_batch"),
    "words": (describe.Names, "untold_lines"),
    "one signature": (describe, "signature_to_json"),
    "words file": (writer, "open"),
    "words written": (describe.Names, "told"),
    "segment": (SegmentWriter, "append"),
    "segment file": (SegmentWriter, "_open_file"),
    "segment closed": (SegmentWriter, "close"),
    "read again": (writer, "read_segments"),
    "folded": (packed, "folded"),
    "folded file": (writer, "write_sealed"),
    "end": (session.Trace, "_end"),
    "end file": (writer, "write_json"),
    "tick": (session.Trace, "_on_tick"),
}
HAPPENED = threading.Event()  # the failure


def failing(real: Callable[..., Any], times: float, error: Exception) -> Callable[..., Any]:
    """`real`, after it has failed so often. A file is closed all the same."""
    left, closes = [times], real is SegmentWriter.close

    def replaced(*args: Any, **kwargs: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            HAPPENED.set()
            if closes:
                real(*args)
            raise error
        return real(*args, **kwargs)

    return replaced


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts in a short trace; warnings given before are given again."""
    monkeypatch.setattr(writer, "PART_ROWS", 1000)
    forget_warnings()


def traced(step: str = "", *, totals: bool = False) -> session.Trace:
    with lux.trace(framework=None, totals=totals) as t:
        work = t.wrap(len, name="work")
        for n in range(CALLS):
            assert work([0] * (n % 7)) == n % 7
            if n % 1500 == 0:
                assert t._spill is not None
                t._spill.flush()
        assert step != "tick" or HAPPENED.wait(60)  # the writer's thread takes this one, in its own time
    return t


def lost(t: session.Trace) -> int:
    ends = [process.end for process in t.result.recording.processes]
    return sum(end.get("lost_on_disk", 0) + end.get("stats", {}).get("lost", 0) for end in ends)


@pytest.mark.parametrize(
    "error", [RuntimeError("a fault"), OSError(28, "No space left on device"), MemoryError()], ids=repr
)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_once_loses_nothing(
    step: str, error: Exception, core_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = STEPS[step]
    _inject(monkeypatch, owner, name, 1, error)
    with pytest.warns(LuxmeterWarning, match=type(error).__name__) as told:
        t = traced(step)
        assert t.table()["work"].n == CALLS
    assert not [warning for warning in told if "damaged" in str(warning.message)]
    assert lost(t) == 0
    assert {str(signature) for _, signature in t.result.signatures} == {str([0] * n) for n in range(7)}
    assert any(type(error).__name__ in note for note in t.result.notes())


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_always_fails_is_told_and_every_call_accounted_for(
    step: str, core_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = STEPS[step]
    _inject(monkeypatch, owner, name, float("inf"), RuntimeError("a fault"))
    monkeypatch.setattr(writer, "_MAX_WAITING_BYTES", 10_000)
    with pytest.warns(LuxmeterWarning, match="a fault"):
        t = traced(step)
    monkeypatch.undo()
    kept = sum(row.n for row in t.table())
    assert kept + lost(t) == CALLS
    assert t.trouble == "RuntimeError: a fault"
    assert t.result.notes()


def test_totals_that_cannot_be_read_are_lost_aloud(core_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _inject(monkeypatch, session.Trace, "_end", float("inf"), RuntimeError("a fault"))
    with pytest.warns(LuxmeterWarning, match="a fault"):
        t = traced(totals=True)
    assert lost(t) == CALLS
    assert f"{CALLS} calls lost: RuntimeError: a fault" in t.result.notes()


def test_events_that_vanish_on_the_way_are_missed(core_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's own counter is asked: what the writer never saw is said to be lost too."""
    real = writer.Spill._take

    def forgetful(self: writer.Spill, *, partial: bool) -> None:
        real(self, partial=partial)
        self._pieces.clear()

    monkeypatch.setattr(writer.Spill, "_take", forgetful)
    with pytest.warns(LuxmeterWarning, match="never reached the writer"):
        t = traced()
    assert lost(t) == CALLS


def _inject(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, times: float, error: Exception) -> None:
    HAPPENED.clear()
    real = open if name == "open" else getattr(owner, name)
    monkeypatch.setattr(owner, name, failing(real, times, error), raising=False)


@pytest.mark.one_core("no core is reached")
def test_signatures_that_come_while_the_writer_reads_them() -> None:
    """In Python 3.11 the collector may run, and with it other threads, wherever a tuple is made."""
    known = describe.Names(Arguments())
    numbers = iter(range(1, 100_000))
    describing = []

    def one_more(*_: object) -> None:
        if not describing:
            describing.append(True)
            known.on_signature(0, next(numbers), (1,), {}, False)
            describing.clear()

    for _ in range(50):
        one_more()
    threshold = gc.get_threshold()
    gc.callbacks.append(one_more)
    gc.set_threshold(20)
    try:
        told = set()
        for _ in range(20):
            one_more()
            told.update(known.untold_lines(()))
            known.told()
    finally:
        gc.callbacks.remove(one_more)
        gc.set_threshold(*threshold)
    told.update(known.untold_lines(()))
    assert len(told) == next(numbers) - 1


def test_callables_added_by_many_threads_keep_their_names(core: Any) -> None:
    """Threads that name a callable at the same time must not take each other's number."""
    known = describe.Names(Arguments())
    recorder = core.Recorder()
    known.attach(recorder)
    found: dict[str, int] = {}

    def add(thread: int) -> None:
        for n in range(500):
            found[f"{thread}.{n}"] = known.add(f"{thread}.{n}")

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert {name: known.callables[number].name for name, number in found.items()} == {
        name: name for name in found
    }


def test_what_cannot_be_described_is_unknown_and_counted(
    core_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "describe", failing(describe.describe, 1, RuntimeError("odd")))
    with lux.trace(framework=None) as t:
        assert t.wrap(len, name="work")([1, 2]) == 2
    (row,) = t.table("signature")
    assert row.n == 1
    assert [str(s) for _, s in t.result.signatures] == [str(Opaque("unknown"))]
    assert t.result.notes() == ["1 times a call could not be described (RuntimeError: odd)"]


def test_text_that_is_no_text(core_name: str) -> None:
    """Half a surrogate pair in an argument or a name."""
    with lux.trace(framework=None) as t:
        assert t.wrap(len, name="w\udcff")("a\udcff") == 2
    assert [row.name for row in t.table()] == ["w\udcff"]
    assert t.result.notes() == []


def test_parts_that_grow_slowly_are_folded_into_full_pieces(
    core_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program that calls seldom each flush leaves a small piece; what it says is the same before and after."""
    seen = []

    def folding(path: Path, rows: int) -> None:
        before = writer.read_segments(path)
        real(path, rows)
        seen.append((packed.to_columns(before), packed.to_columns(read_sealed(path.with_suffix(".parquet")))))
        sizes.append((before.num_rows, read_sealed(path.with_suffix(".parquet")).num_rows))

    sizes: list[tuple[int, int]] = []
    real = writer._write_folded
    monkeypatch.setattr(writer, "_write_folded", folding)
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(len, name="work")
        for _ in range(50):
            work("")
            other = threading.Thread(target=work, args=("a",))
            other.start()
            other.join()
            assert t._spill is not None
            t._spill.flush()
    assert sizes[0][0] >= 50 and sizes[0][1] <= 51  # a piece a thread
    for before, after in seen:
        assert before.sort_by([("thread", "ascending"), ("start_ns", "ascending")]) == after.sort_by(
            [("thread", "ascending"), ("start_ns", "ascending")]
        )
    assert t.table()["work"].n == 100
    assert not list(tmp_path.rglob("*.arrows"))


def test_what_a_disk_changed_before_it_was_folded_is_told_and_the_rest_kept(
    core_name: str, tmp_path: Path
) -> None:
    """Half of what waits to be folded cannot be read again: it is not folded, and what is left of it is read."""
    with lux.trace(framework=None, keep=tmp_path / "t") as t:
        work = t.wrap(len, name="work")
        for _ in range(2):
            for _ in range(100):
                work("")
            assert t._spill is not None
            t._spill.flush()
        (segment,) = tmp_path.rglob("*.arrows")
        content = bytearray(segment.read_bytes())
        content[-100] ^= 255
        segment.write_bytes(content)
        with pytest.warns(LuxmeterWarning) as told:
            t.stop()
            kept = t.table()["work"].n
    assert 0 < kept < 200
    assert any("damaged" in str(warning.message) for warning in told)
    assert segment.exists()


def test_what_cannot_be_written_together_is_written_piece_by_piece(
    core_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = packed.to_batch

    def one_by_one(pieces: Any) -> Any:
        if len(pieces) > 1:
            raise OSError("too much at once")
        return real(pieces)

    monkeypatch.setattr(packed, "to_batch", one_by_one)
    monkeypatch.setattr(writer, "PART_ROWS", 1 << 20)
    monkeypatch.setattr(writer, "FLUSH_EVERY_S", 3600)
    with pytest.warns(LuxmeterWarning, match="too much at once"), lux.trace(framework=None) as t:
        work = t.wrap(len, name="work")
        for n in range(3):
            threads = [threading.Thread(target=work, args=("a" * n,)) for n in range(3)]
            for thread in threads:
                thread.start()
                thread.join()
    assert t.table()["work"].n == 9 and lost(t) == 0


def test_where_no_more_threads_can_be_had_a_trace_does_not_begin_and_leaves_nothing(
    core_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuses)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            lux.trace(framework=None, keep=tmp_path / "t").start()
    assert session.active() is None
    with lux.trace(framework=None) as t:
        t.wrap(len, name="work")("")
    assert t.table()["work"].n == 1


@pytest.mark.one_core("of lines that are written and read, which no core does")
def test_lines_of_older_and_newer_traces() -> None:
    damaged: list[str] = []
    lines = ['{"thread":3,"name":"old"}', '{"of a newer version":1}', '{"thread":4,"na']
    callables, signatures, threads, sites = describe.read_lines(lines, damaged)
    assert (
        threads == {3: "old"}
        and damaged == lines[2:]
        and not signatures
        and not sites
        and list(callables) == [0]
    )


@pytest.mark.one_core("of lines that are written and read, which no core does")
def test_without_torch_its_values_are_described_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(describe.describer("auto", facts=True)) == {"facts", "module"}
    assert describe.describer("mindspore", facts=True) == describe.describer(None, facts=True) == {}
    monkeypatch.setattr(describe, "has_torch", lambda: False)
    assert describe.describer("auto", facts=True) == {}
