"""What a lab refuses, removes and lists besides runs: names, half-made folders, notes of ranks, traces."""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from datetime import datetime
from pathlib import Path

import pytest

from luxmeter.errors import StoreError, UsageError
from luxmeter.store import Lab, Run, layout
from luxmeter.store.going import GoingRuns
from luxmeter.store.journal import announce, read_tail


def made(lab: Lab, name: str = "a") -> Path:
    with lab.create_run(name) as run:
        run.log({"x": 1.0}, step=0)
    return run.folder


def trace_in(folder: Path, name: str, *, began: float, head: str | None = None) -> Path:
    folder.mkdir(parents=True)
    text = json.dumps({"name": name, "started_at": began}) if head is None else head
    (folder / "trace.json").write_text(text)
    return folder


@pytest.mark.parametrize("name", ["", " a", "a\n"])
def test_names_that_are_none(lab: Lab, name: str) -> None:
    with pytest.raises(UsageError, match="run-name"):
        lab.create_run(name)


def test_whether_what_is_no_run_is_running(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not-a-run"):
        lab.is_running(tmp_path)
    run = made(lab)
    (run / layout.IDENTITY).write_text("{broken")
    assert not lab.is_running(run), "damaged: it can be removed"


def test_a_run_that_is_there_is_not_adopted_again(lab: Lab) -> None:
    run = made(lab)
    with pytest.raises(StoreError, match="run-exists"):
        lab.adopt(run)
    again = lab.adopt(run, anew=True)
    assert again.id != run.name and again.identity["imported_as"] == run.name
    assert len(lab.runs()) == 2


def test_a_reserved_id_is_taken_once(lab: Lab) -> None:
    reserved = lab.new_id()
    with lab.create_run("a", run_id=reserved) as first, lab.create_run("b", run_id=reserved) as second:
        assert first.id == reserved != second.id


def test_an_id_that_is_taken_is_passed_over(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = iter("a" * 5 + "b" * 5)
    stamps = {datetime.now().strftime("%Y%m%d-%H%M%S"), *(f"{lab.new_id()[6:]}" for _ in range(1))}
    for stamp in stamps:
        (lab.folder / layout.RUNS / f"aaaaa-{stamp}").mkdir()
    monkeypatch.setattr(secrets, "choice", lambda _: next(letters, "c"))
    assert not lab.new_id().startswith("aaaaa")
    monkeypatch.setattr(secrets, "choice", lambda _: "d")
    monkeypatch.setattr(
        "luxmeter.store.lab.datetime", type("At", (), {"now": staticmethod(lambda: datetime(2026, 1, 1))})
    )
    (lab.folder / layout.RUNS / "ddddd-20260101-000000").mkdir()
    with pytest.raises(StoreError, match="no-free-id"):
        lab.new_id()
    for folder in (lab.folder / layout.RUNS).iterdir():
        folder.rmdir()


def test_gc_removes_what_was_never_begun_and_notes_of_old_jobs(lab: Lab) -> None:
    half, ranks = lab.folder / layout.RUNS / "half-made", lab.folder / layout.RANKS
    half.mkdir()
    (half / layout.PARAMS).write_text("{}")
    ranks.mkdir()
    for name, age_s in (("old", 30 * 3600), ("young", 2 * 3600)):
        (ranks / f"{name}.json").write_text("{}")
        os.utime(ranks / f"{name}.json", (time.time() - age_s,) * 2)
    assert lab.gc()["half_made"] == 0 and half.is_dir(), "young: perhaps just being made"
    assert [path.name for path in ranks.iterdir()] == ["young.json"]
    os.utime(half, (1, 1))
    assert lab.gc()["half_made"] == 1 and not half.exists()


def test_gc_leaves_what_somebody_is_at(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder below it vanishes while it is looked through."""
    left = lab.folder / layout.RUNS / ".abc.77"
    (left / "inner").mkdir(parents=True)
    real = Path.lstat

    def vanished(path: Path) -> os.stat_result:
        if path.name == "inner":
            raise FileNotFoundError(2, "gone", str(path))
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "lstat", vanished)
        assert lab.gc(older_than_s=-1)["half_made"] == 0
    assert left.is_dir() and lab.gc(older_than_s=-1)["half_made"] == 1


def test_gc_compacts_no_run_that_goes_on(lab: Lab) -> None:
    with lab.create_run("a") as run:
        run.log({"x": 1.0}, step=0)
        run.flush()
        assert lab.gc()["compacted"] == 0
        assert list(run.folder.glob("tables/*/*.arrows"))


# -- traces -----------------------------------------------------------------------------------------------------------


def test_traces_of_a_lab_are_named_as_runs_are(lab: Lab) -> None:
    alone = lab.folder / layout.TRACES
    trace_in(alone / "abcde-1", "warm", began=1.0)
    trace_in(alone / "abxyz-2", "cold", began=2.0)
    trace_in(alone / "qqqqq-3", "", began=0.5, head="{broken")
    trace_in(alone / "rrrrr-4", "", began=0.5, head="[1, 2]")
    in_run = trace_in(made(lab) / layout.CALLS / "abcde-9", "of a run", began=9.0)
    (alone / "sssss-5").symlink_to(in_run)
    assert lab.find_trace("latest").folder == in_run
    assert lab.find_trace("latest~1").folder.name == "abxyz-2"
    assert lab.find_trace("warm").folder.name == "abcde-1"
    assert lab.find_trace("qqqqq-3").folder.name == lab.find_trace("qq").folder.name == "qqqqq-3"
    with pytest.raises(StoreError, match=r"'ab' begins 2 traces: abcde-1, abxyz-2.*trace-ambiguous"):
        lab.find_trace("ab")
    for missing in ("none", "warm~1", "sssss-5"):
        with pytest.raises(StoreError, match="trace-not-found"):
            lab.find_trace(missing)
    assert [trace.folder.name for trace in lab.traces()] == ["qqqqq-3", "rrrrr-4", "abcde-1", "abxyz-2"]


def test_a_folder_of_the_current_one_can_be_named_alone(lab: Lab) -> None:
    run = made(lab)
    Path("elsewhere").symlink_to(run)
    assert lab.find("elsewhere").id == run.name


# -- what goes on -----------------------------------------------------------------------------------------------------


def test_which_runs_go_on_is_told_once(lab: Lab) -> None:
    made(lab)
    with lab.create_run("goes on") as run:
        going = GoingRuns(lab.folder)
        assert [found.id for found in going.new()] == [run.id] and going.new() == []
        broken = lab.folder / layout.RUNS / "broken"
        broken.mkdir()
        (broken / layout.IDENTITY).write_text("{broken")
        announce(lab.folder, "broken")
        assert going.new() == []
        announce(lab.folder, run.id)
        assert [found.id for found in going.new()] == [run.id]
    assert GoingRuns(lab.folder / "none").new() == []


def test_a_journal_that_was_cut_is_news(lab: Lab) -> None:
    made(lab)
    _, offsets = read_tail(lab.folder, {})
    [log] = (lab.folder / layout.JOURNAL).iterdir()
    log.write_text("")
    announce(lab.folder, "abc")
    assert read_tail(lab.folder, offsets)[0] == {"abc"}


def test_a_mark_holds_with_the_key_that_made_it(lab: Lab) -> None:
    from luxmeter.settings import globs
    from luxmeter.store import is_own

    run = Run(made(lab))
    assert is_own(run.identity, run.folder)
    assert not is_own({**run.identity, "mark": 7}, run.folder) and not is_own(
        {**run.identity, "mark": "ä"}, run.folder
    )
    assert not is_own(run.identity, run.folder / "gone")
    key = globs.glob_fn.with_name("key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.write_bytes(b"short")
    assert not is_own(run.identity, run.folder)
    key.unlink()
    assert not is_own(run.identity, run.folder)
