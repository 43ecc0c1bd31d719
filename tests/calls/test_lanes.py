"""The calls of a trace in lanes: drawn of chunks as of events that are held, in rows whose number the pixels bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from luxmeter.calls import lanes
from luxmeter.calls.chunks import Events, OwnWork, Part
from luxmeter.calls.lanes import Lane, Lanes
from luxmeter.calls.reader import Recording
from luxmeter.calls.records import EVENT_DTYPE, OWN, CallableNames, ProcessRecord

ONE_CORE = "events that are made up; no core records them"
LANES = ["MainThread (process 10)", "worker (process 10)", "MainThread (process 11)"]


def events(n: int, *, device: bool = False) -> dict[str, Any]:
    """Two processes, one after the other: a call around all of each, and short ones in two threads, every 1000th ten times as long."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {name: np.zeros(2 * n, EVENT_DTYPE[name]) for name in EVENT_DTYPE.names or ()}
    columns["process"] = np.repeat(np.array([0, 1], np.uint32), n)
    columns["start_ns"] += 5_000_000 + np.tile(np.arange(n) * 100, 2)
    columns["duration_ns"] += rng.integers(1, 90, 2 * n)
    columns["duration_ns"][::1000] *= 10
    columns["thread"][:n] = rng.integers(0, 2, n)
    columns["callable"] += rng.integers(1, 3, 2 * n).astype(np.uint32)
    columns["depth"] += 1
    for last in (n - 1, 2 * n - 1):  # it ends last
        columns["start_ns"][last], columns["duration_ns"][last] = 5_000_000 - 10, n * 100 + 50
        columns["depth"][last] = columns["thread"][last] = 0
    columns["flags"][7] = OWN
    if device:
        columns["device"] = np.where(np.arange(2 * n) % 3 == 0, 1, -1)
        columns["device_start_ns"] = columns["start_ns"] + 400_000  # far behind
        columns["device_ns"] = np.where(columns["device"] < 0, -1, 50)
    return columns


def both(n: int, rows: int, **how: Any) -> tuple[Recording, Recording]:
    """Held, and in chunks."""
    columns = events(n, **how)
    work = OwnWork({})
    parts = []
    for first in range(0, 2 * n, rows):
        piece = {name: column[first : first + rows] for name, column in columns.items()}
        end = int((piece["start_ns"] + piece["duration_ns"]).max())
        parts.append(Part(lambda of=piece: dict(of), int(piece["process"][0]), len(piece["flags"]), int(piece["start_ns"].min()), end))  # type: ignore[misc] # fmt: skip
    names = tuple(CallableNames(name) for name in ("(own)", "torch.add", "torch.mul"))
    processes = tuple(
        ProcessRecord(0, pid, {}, {}, {0: "MainThread", 1: "worker"}, {"device": {"name": "card"}})
        for pid in (10, 11)
    )
    held = columns | {"own_ns": np.zeros(2 * n, np.int64)}
    large = Events(parts, work, (*columns, "own_ns"), rows=rows)
    return (
        Recording(held, (), names, (None,), processes),
        Recording(large, (), names, (None,), processes),
    )


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lanes, "_SLOTS", 64)
    monkeypatch.setattr(lanes, "_FEWEST_SLOTS", 16)
    monkeypatch.setattr(lanes, "_ROWS", 50)
    yield


def calls_in(lane: Lane, at: Any = slice(None)) -> tuple[int, int]:
    return int(lane.n[at].sum()), int(lane.total[at].sum())


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.usefixtures("few_rows")
def test_no_call_and_no_time_is_lost_in_few_rows(device: bool) -> None:
    held, large = (Lanes(recording) for recording in both(4000, 500, device=device))
    assert held.end_ns == large.end_ns
    whole = (0, held.end_ns, held.end_ns // 10)
    every, some = held.of(*whole), large.of(*whole)
    cards = ["card:1 (process 10)", "card:1 (process 11)"] if device else []
    assert list(every) == list(some) == LANES + cards
    slot = large._slot_ns
    for name, lane in every.items():
        assert calls_in(lane) == calls_in(some[name]) and len(some[name].n) < len(lane.n) / 4
        assert (np.diff(some[name].start) >= 0).all()
        long, kept = (np.flatnonzero(of.length >= slot) for of in (lane, some[name]))
        for column in ("start", "length", "callable", "depth"):
            assert getattr(lane, column)[long].tolist() == getattr(some[name], column)[kept].tolist()
        # Of a slot the row tells the first start, and the longest call and what it was.
        short = np.flatnonzero((lane.length < slot) & (lane.depth == 1))
        rows = np.flatnonzero((some[name].length < slot) & (some[name].depth == 1))
        for row in rows.tolist():
            here = short[lane.start[short] // slot == some[name].start[row] // slot]
            assert calls_in(some[name], [row]) == calls_in(lane, here)
            assert some[name].start[row] == lane.start[here].min()
            longest = lane.length[here] == some[name].length[row]
            assert some[name].length[row] == lane.length[here].max()
            assert some[name].callable[row] in lane.callable[here][longest]


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.usefixtures("few_rows")
def test_a_window_that_slots_are_too_long_for_is_read_again_call_by_call(device: bool) -> None:
    recordings = both(4000, 500, device=device)
    held, large = (Lanes(recording) for recording in recordings)
    for a, b in ((0, 900), (150_000, 152_000), (398_500, 402_000), (399_990, 500_000)):
        every, some = held.of(a, b, 1), large.of(a, b, 1)
        assert large._slot_ns > 1
        for name, lane in every.items():
            at = lane.between(a, b)
            if not len(at):
                assert name not in some or not len(some[name].n)
                continue
            here = some[name].between(a, b)
            for column in ("start", "length", "depth", "callable", "n", "total"):
                assert getattr(lane, column)[at].tolist() == getattr(some[name], column)[here].tolist(), (
                    name,
                    a,
                )


@pytest.mark.usefixtures("few_rows")
def test_a_window_reads_its_own_chunks_alone_and_the_call_around_it() -> None:
    _, recording = both(4000, 500)
    assert isinstance(recording.events, Events)
    large = Lanes(recording)
    read: list[int] = []
    for part in recording.events._parts:
        object.__setattr__(
            part, "read", lambda part=part, read_it=part.read: read.append(part.first_ns) or read_it()
        )
    lanes_seen = large.of(200_000, 200_500, 1)
    assert len(lanes_seen["MainThread (process 10)"].between(200_000, 200_500)) > 1
    assert (lanes_seen["MainThread (process 10)"].depth == 0).sum() == 1
    assert (
        len(read) == 4
    )  # of each process the chunk of the window, and the last one, where the call around it ended


def test_a_stretch_in_which_only_the_recorder_worked_has_no_lane() -> None:
    held, _ = both(50, 10)
    held.events["flags"][:] = OWN
    assert Lanes(held).of(0, 10_000, 1) == {}
