"""A run that is over comes into a lab whole, by the store alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from luxmeter.store import FinishedRun, Lab, layout, object_of

RUN = FinishedRun(
    "abcde-20260101-000000", "mnist", 10**18, 10**18 + 5, state="failed", error="boom", params={"lr": 0.1},
    environment={"python": "3.12"}, tags=("a", "a", "b"), note="as it was", points=["loss", 0.5, 1, 10**18, "loss", 0.25, 2, 10**18 + 1],
    objects=[("text", 1, 10**18, object_of("text", "hello"))], files={"made/x.txt": b"1"},
)  # fmt: skip


def test_it_is_whole(lab: Lab) -> None:
    run = lab.put_finished(RUN)
    assert (run.id, run.name, run.state, run.error, run.params) == (
        RUN.id,
        "mnist",
        "failed",
        "boom",
        {"lr": 0.1},
    )
    assert (run.tags, run.note) == (["a", "b"], "as it was")
    assert [point.value for point in run.metric("loss")] == [0.5, 0.25]
    assert (run.folder / layout.FILES / "made" / "x.txt").read_bytes() == b"1"
    assert [row.id for row in lab.runs("metric.loss < 0.3")] == [RUN.id]
    assert sorted(p.name for p in (lab.folder / layout.RUNS).iterdir()) == [RUN.id]


def test_put_again_it_keeps_what_people_added(lab: Lab) -> None:
    lab.put_finished(RUN).marks.tag("best")
    again = lab.put_finished(RUN)
    assert again.tags == ["a", "b", "best"]


def test_where_it_cannot_be_put_the_old_one_stays(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.put_finished(RUN)
    real = os.replace

    def refuse(source: str | Path, target: str | Path) -> None:
        if Path(target).name == RUN.id and ".before" not in str(source):
            raise OSError(28, "No space left")
        real(source, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "replace", refuse)
        lab.put_finished(RUN)
    assert lab.find(RUN.id).params == {"lr": 0.1}
    assert sorted(p.name for p in (lab.folder / layout.RUNS).iterdir()) == [RUN.id]


def test_a_name_that_leads_outside_is_refused(lab: Lab) -> None:
    from dataclasses import replace

    from luxmeter.errors import LuxmeterError

    for bad in (replace(RUN, id="../x"), replace(RUN, files={"../x": b""})):
        with pytest.raises(LuxmeterError):
            lab.put_finished(bad)
    assert list((lab.folder / layout.RUNS).iterdir()) == []


def test_it_may_hold_nothing_and_files_may_be_large(lab: Lab, tmp_path: Path) -> None:
    from dataclasses import replace

    (tmp_path / "x.bin").write_bytes(b"body")
    bare = replace(RUN, params={}, environment={}, points=(), objects=(), files={"x.bin": tmp_path / "x.bin"})
    run = lab.put_finished(bare)
    assert run.read_file("x.bin") == b"body" and run.metrics == {} and run.tables() == []


def test_what_no_table_takes_is_left_out_and_said(lab: Lab) -> None:
    from dataclasses import replace

    from luxmeter.errors import LuxmeterWarning
    from luxmeter.store import Stored

    words = Stored("text", "\ud800")
    bad = replace(RUN, points=["loss", 0.5, 1 << 70, 10**18], objects=[("text", 1, 10**18, words)])
    with pytest.warns(LuxmeterWarning, match=r"2 points were left out.*beyond 64 bits"):
        run = lab.put_finished(bad)
    assert run.metrics == {} and run.objects() == [] and run.lost_rows == 2
