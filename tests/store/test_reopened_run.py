"""A run whose process is gone, written on by another."""

from __future__ import annotations

from pathlib import Path

from luxmeter.store import Lab, Run


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    lab = Lab.open(tmp_path / "lab")
    first = lab.create_run("training", params={"lr": 0.1})
    first.log({"loss": 3.0}, 0)
    first.fail(RuntimeError("another rank is gone"))
    assert Run(first.folder).state == "failed"
    again = lab.reopen_run(first.id)
    assert again is not None and again.folder == first.folder
    assert Run(first.folder).state == "running"
    again.log({"loss": 2.0, "acc": 0.5}, 1)
    again.finish()
    found = Run(first.folder)
    assert found.state == "finished" and found.name == "training" and found.params["lr"] == 0.1
    assert found.metric("loss").steps.tolist() == [0, 1]
    assert found.metrics["loss"]["n"] == 2 and found.metrics["loss"]["max"] == 3.0
    [row] = lab.runs()
    assert (row.id, row.state) == (first.id, "finished")


def test_one_that_is_written_or_gone_is_not_taken_over(tmp_path: Path) -> None:
    lab = Lab.open(tmp_path / "lab")
    run = lab.create_run("training")
    assert lab.reopen_run(run.id) is None
    run.finish()
    lab.delete(run.id)
    assert lab.reopen_run(run.id) is None
