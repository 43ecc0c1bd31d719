"""The traces of a lab as whoever asks again finds them: what came, went and goes on, without reading all of it anew."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from luxmeter.store import KnownTraces, known_traces, results

OLD_NS = 1_700_000_000 * 10**9


def put(lab: Path, place: str, name: str, began: float, *, ended: bool = True) -> Path:
    trace = lab / place / name
    trace.mkdir(parents=True)
    (trace / "trace.json").write_text(json.dumps({"started_at": began}))
    if ended:
        (trace / "stopped").touch()
    settle(trace.parent)
    return trace


def settle(folder: Path) -> None:
    """As if it had changed long ago, at one more tick than before."""
    settle.ticks += 1  # type: ignore[attr-defined]
    os.utime(folder, ns=(OLD_NS, OLD_NS + settle.ticks))  # type: ignore[attr-defined]


settle.ticks = 0  # type: ignore[attr-defined]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    put(tmp_path, "traces", "alone", 20.0)
    put(tmp_path, "runs/a-1/calls", "trace", 10.0)
    put(tmp_path, "runs/a-1/calls", "trace-2", 30.0)
    (tmp_path / "runs" / "without").mkdir()
    return tmp_path


def found(known: KnownTraces) -> list[tuple[str, str, int]]:
    return [(trace.run, trace.result.folder.name, trace.number) for trace in known.newest_first()]


def test_those_of_runs_are_named_by_run_and_number(lab: Path) -> None:
    known = KnownTraces(lab)
    assert found(known) == [("a-1", "trace-2", 1), ("", "alone", 0), ("a-1", "trace", 0)]
    assert found(KnownTraces(lab / "nothing")) == []


def test_what_came_and_went_is_noticed(lab: Path) -> None:
    known = KnownTraces(lab)
    found(known)
    put(lab, "runs/b-2/calls", "new", 40.0)
    shutil.rmtree(lab / "runs" / "a-1" / "calls" / "trace")
    settle(lab / "runs" / "a-1" / "calls")
    assert found(known) == [("b-2", "new", 0), ("a-1", "trace-2", 0), ("", "alone", 0)]
    shutil.rmtree(lab / "runs" / "a-1")
    assert found(known) == [("b-2", "new", 0), ("", "alone", 0)]


def test_what_is_settled_is_read_once(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what goes on, or was changed a moment ago, each time."""
    read: list[str] = []
    monkeypatch.setattr(
        known_traces, "traces_in", lambda place: read.append(place.parent.name) or results.traces_in(place)
    )
    known = KnownTraces(lab)
    found(known)
    assert sorted(read) == sorted([lab.name, "a-1"])
    read.clear()
    found(known)
    assert read == []
    going = put(lab, "runs/a-1/calls", "going", 50.0, ended=False)
    for _ in range(2):
        assert found(known)[0] == ("a-1", "going", 2)
    assert read == ["a-1", "a-1"]
    (going / "stopped").touch()
    found(known), read.clear(), found(known)
    assert read == []
    os.utime(lab / "runs" / "a-1" / "calls")
    found(known), found(known)
    assert read == ["a-1", "a-1"]


def test_a_link_is_not_followed(lab: Path, tmp_path: Path) -> None:
    elsewhere = put(tmp_path / "elsewhere", "calls", "trace", 60.0).parent
    (lab / "runs" / "linked").mkdir()
    (lab / "runs" / "linked" / "calls").symlink_to(elsewhere)
    assert all(run != "linked" for run, _, _ in found(KnownTraces(lab)))
