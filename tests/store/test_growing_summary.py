"""A run that goes on is listed with what it has logged, and only what came since is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from luxmeter.store import Lab
from luxmeter.store import segments as segments_module


def test_a_running_run_is_listed_without_reading_it_whole_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    lab = Lab.open(tmp_path / "lab")
    with lab.create_run("going") as run:
        for step in range(100):
            run.log({"loss": 100.0 - step, "acc": float("nan")}, step=step)
        run.flush()
        assert lab.runs()[0].metrics["loss"] == {
            "n": 100,
            "last": 1.0,
            "last_step": 99,
            "min": 1.0,
            "max": 100.0,
        }
        read: list[int] = []
        pieces = segments_module._pieces

        def counted(path: Path, start: int):  # type: ignore[no-untyped-def]
            for piece, end in pieces(path, start):
                read.append(piece.num_rows)
                yield piece, end

        monkeypatch.setattr(segments_module, "_pieces", counted)
        run.log({"loss": 200.0}, step=100)
        run.flush()
        row = lab.runs()[0]
        assert (row.metrics["loss"]["n"], row.metrics["loss"]["max"], row.metrics["loss"]["last_step"]) == (101, 200.0, 100)  # fmt: skip
        assert row.metrics["acc"]["n"] == 100 and row.metrics["acc"]["last"] is None
        assert sum(read) == 1
    assert lab.runs()[0].state == "finished" and lab.runs()[0].metrics["loss"]["n"] == 101
    lab.close()
