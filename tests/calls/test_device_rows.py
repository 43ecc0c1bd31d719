"""The table of device times beside the events: looked up part by part, of which two are held."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
import pytest

from luxmeter.calls import device_time
from luxmeter.calls.device_time import COLUMNS, DeviceRows, DeviceTimes

ONE_CORE = "rows that are made up; no core records them"
CALLS, IN_A_PART = 60, 10


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Calls of two threads on two devices in six parts; of device 1 the clock is 500 ahead. Every fifth call was not timed."""
    monkeypatch.setattr(device_time, "PART_ROWS", IN_A_PART)
    times = DeviceTimes()
    for first in range(0, CALLS, IN_A_PART):
        for k in range(first, first + IN_A_PART):
            if k % 5:
                thread, device = k % 3 == 0, k % 2
                begin = 100 * k + 7 * (k > 20) - 3000 + 500 * device  # of no device before it was made
                times._rows.extend((thread, 100 * k, device, begin, k + 1, -1 if k == 11 else k, 2 * k))
        times._part_rows = IN_A_PART  # as if no call had been left out
        times.write(tmp_path, last=True)
    assert len(list((tmp_path / "device").iterdir())) == 6 and times._rows == array("q")
    return tmp_path


def expected(k: int) -> dict[str, int]:
    if k % 5 == 0:
        return dict.fromkeys(COLUMNS, -1)
    before = -1 if k == 11 else k
    return {"device": k % 2, "device_start_ns": 100 * k + 7 * (k > 20) - 7, "device_ns": k + 1,
            "memory_before": before, "memory_after": 2 * k}  # fmt: skip


def calls(which: range) -> tuple[np.ndarray, np.ndarray]:
    return np.array([int(k % 3 == 0) for k in which], np.uint32), np.array([100 * k for k in which])


def test_each_call_has_its_own(process: Path) -> None:
    rows = DeviceRows(process)
    assert len(rows) == 48
    for which in (range(CALLS), range(CALLS - 1, -1, -1), range(13, 34), range(59, 60), range(0)):
        found = rows.of(*calls(which))
        earliest = min(100 * k + 7 * (k > 20) - 100 * k for k in range(CALLS) if k % 5)
        assert (
            earliest == 0
        )  # of calls up to 20: those set the clock of their device, later ones begin 7 later
        want = {name: [expected(k)[name] for k in which] for name in COLUMNS}
        want["device_start_ns"] = [v if v < 0 else v + 7 for v in want["device_start_ns"]]
        assert {name: column.tolist() for name, column in found.items()} == want
    thread, start = calls(range(1, 9))
    assert (rows.of(thread + 5, start)["device"] == -1).all() and (
        rows.of(thread, start + 1)["device"] == -1
    ).all()


def test_of_a_stretch_its_own_parts_are_read_and_few_are_held(
    process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = DeviceRows(process)
    read: list[str] = []
    original = device_time._rows_of
    monkeypatch.setattr(
        device_time, "_rows_of", lambda place, most: read.append(place.name) or original(place, most)
    )
    for first in range(0, CALLS, IN_A_PART):
        rows.of(*calls(range(first, first + IN_A_PART)))
        assert len(rows._held) <= 2
    assert read == ["0000", "0001", "0002", "0003", "0004", "0005"]
    rows.of(*calls(range(CALLS - 3, CALLS)))
    assert len(read) == 6


def test_rows_that_are_lost_or_damaged_leave_their_calls_untimed(process: Path) -> None:
    (process / "device" / "0005").rename(process / "lost")
    (damaged,) = (process / "device" / "0000").iterdir()
    damaged.write_bytes(b"damaged")
    with pytest.warns(match="0000"):
        rows = DeviceRows(process)
    device = rows.of(*calls(range(CALLS)))["device"]
    assert device.tolist() == [-1] * 10 + [expected(k)["device"] for k in range(10, 50)] + [-1] * 10


def test_rows_that_came_meanwhile_change_nothing(process: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = DeviceRows(process)
    before = rows.of(*calls(range(CALLS)))
    (place,) = {path for path in (process / "device").iterdir() if path.name == "0005"}
    more = DeviceTimes()
    more._rows.extend((0, 10_000, 0, 0, 5, 0, 0))
    more._part = 5
    more.write(process)
    rows._held.clear()
    assert {k: v.tolist() for k, v in rows.of(*calls(range(CALLS))).items()} == {
        k: v.tolist() for k, v in before.items()
    }
    assert len(DeviceRows(process)) == len(rows) + 1 and place.is_dir()
    more.write(process, last=True)
