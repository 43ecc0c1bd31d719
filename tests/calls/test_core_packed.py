"""Events packed as they leave the core, and unpacked by either core: the same, to the last bit, and nothing else is taken."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from luxmeter.calls import packed
from luxmeter.calls.core import _pycore, load
from luxmeter.calls.records import EVENT_DTYPE
from luxmeter.errors import UsageError


def made_events(n: int, seed: int) -> np.ndarray:
    """Times of every size, forwards and backwards; few shapes and many."""
    made, rng = np.zeros(n, EVENT_DTYPE), np.random.default_rng(seed)
    for name in ("start_ns", "duration_ns", "child_ns", "wait_ns"):
        made[name] = rng.integers(0, 2 ** rng.integers(1, 62, n)) * rng.choice([-1, 0, 1], n)
    for name in ("callable", "signature", "thread", "section", "module", "site"):
        made[name] = rng.integers(0, rng.choice([1, 3, 2**32]), n)
    for name in ("depth", "flags"):
        made[name] = rng.integers(0, 2**16, n)
    return made


def built_cores() -> list[ModuleType]:
    """The core in Python, and that in C where it is built."""
    try:
        return [_pycore, load("c")[0]]
    except UsageError:
        return [_pycore]


@pytest.fixture(params=["c", "python"])
def unpacking(request: pytest.FixtureRequest) -> ModuleType:
    return load(request.param)[0]


@pytest.mark.parametrize("n", [0, 1, 2, 127, 128, 129, 5000])
def test_what_was_packed_comes_out_as_it_was(n: int, core: ModuleType, unpacking: ModuleType) -> None:
    for seed in range(10):
        events = made_events(n, seed).tobytes()
        assert b"".join(map(unpacking.unpack, core.pack(events))) == events
    with pytest.raises(ValueError, match="no whole number"):
        core.pack(bytes(65))


def test_both_cores_unpack_what_a_recorder_took_alike(core: ModuleType) -> None:
    recorder = core.Recorder(is_mine=lambda code: True, sync=lambda: None)
    inner = recorder.wrap(len, recorder.add_callable("inner"))
    outer = recorder.wrap(lambda: inner([]), recorder.add_callable("outer", kind=core.SPAN))
    recorder.start()
    for n in range(5000):
        inner([0] * (n % 300))
        outer()
    recorder.stop()
    pieces = recorder.take()
    assert len(pieces) > 5  # 600 signatures: a buffer is full of shapes before it is full of events
    events = np.frombuffer(b"".join(map(core.unpack, pieces)), EVENT_DTYPE)
    for other in built_cores():
        assert b"".join(map(other.unpack, pieces)) == events.tobytes()
    program = events[events["flags"] & core.OWN == 0]
    assert np.count_nonzero(program["callable"] == 1) == 10_000
    assert np.count_nonzero(program["callable"] == 2) == 5_000
    assert (program["child_ns"][program["callable"] == 2] > 0).all()
    assert (program["wait_ns"] > 0).any()
    ends = events["start_ns"] + events["duration_ns"]
    assert (np.diff(ends) >= 0).all(), "in order of completion"
    assert recorder.take() == []


def test_an_empty_call_takes_few_bytes(core: ModuleType) -> None:
    recorder = core.Recorder(is_mine=lambda code: True)
    work = recorder.wrap(lambda: None, recorder.add_callable("work"))
    recorder.start()
    for _ in range(4096):
        work()
    (*_, second) = recorder.take(False)
    assert len(second) / 2048 < (5 if core is not _pycore else 7)  # its calls take longer


def test_nothing_else_is_taken_for_packed_events(core: ModuleType) -> None:
    """Damaged in every way: an error or other events, no crash and nothing read behind the end."""
    (piece,) = _pycore.pack(made_events(300, 1).tobytes())
    other = _pycore if core is not _pycore else built_cores()[-1]
    rng = np.random.default_rng(0)
    refused = 0
    for cut in range(0, len(piece), 7):
        with pytest.raises(ValueError, match="do not fit"):
            core.unpack(piece[:cut])
    for wrong in (b"", b"LXP1", piece + b"\0", b"XXXX" + piece[4:], piece[:-1] + b"\xff"):
        with pytest.raises(ValueError, match="do not fit"):
            core.unpack(wrong)
    for _ in range(2000):
        forged = bytearray(piece)
        for _ in range(rng.integers(1, 4)):
            forged[rng.integers(0, len(forged))] = rng.integers(0, 256)
        try:
            events = core.unpack(bytes(forged))
            assert events == other.unpack(bytes(forged))
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match="do not fit"):
                other.unpack(bytes(forged))
    assert refused > 0


def test_more_events_than_a_part_has_are_not_made(core: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of calls that are all alike pack to nothing: what they claim is counted before it is laid out."""
    pieces = core.pack(made_events(5000, 1).tobytes())
    table = pa.Table.from_batches([packed.to_batch(pieces)])
    monkeypatch.setattr(packed, "MOST_EVENTS", 5000)
    assert packed.to_columns(table).num_rows == 5000
    monkeypatch.setattr(packed, "MOST_EVENTS", 4999)
    with pytest.raises(ValueError, match="no more than 4,999 events"):
        packed.to_columns(table)
