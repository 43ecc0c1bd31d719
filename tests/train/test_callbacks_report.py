"""AutoReport: what stands in report.md, and that its picture is one."""

from __future__ import annotations

import math
import re
import sys
from typing import Any
from xml.etree import ElementTree

import pytest
from small_training import Small

from luxmeter.errors import UsageError
from luxmeter.train import AutoReport, EvalCallback, ModelCheckpoint
from luxmeter.train.callbacks.report import charts_of


class Reported(Small):
    """Evaluated with what it is told to be, and tested once."""

    report: Any = None
    scores = (0.5, 0.875, 0.25)

    def initial_callback(self) -> None:
        EvalCallback(1, 3).hook(self)
        ModelCheckpoint("eval/acc", "max").hook(self)
        self.report.hook(self)

    def eval_batch(self, eidx: int, *rest: Any) -> Any:
        return {"acc": self.scores[eidx - 1], "loss": 1.0}


def tables(text: str) -> dict[str, list[list[str]]]:
    """Heading -> the rows of the table under it, without its head."""
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        assert len({len(row) for row in rows}) <= 1, part
        found[part.splitlines()[0]] = rows[2:]
    return found


def test_a_report_of_all() -> None:
    now = iter(range(100))
    Reported.report = AutoReport(clock=lambda: float(next(now)))
    trainer = Reported({"epoch": 3, "lr": 0.01, "a|b": "x|y_z"}, quiet=True)
    trainer.initial_exp("reported")
    trainer.experiment.note("a first try")
    trainer.train()
    run = trainer.run
    text = run.read_file("report.md").decode()
    assert text.startswith(
        f"# reported ({run.id})\n\nThe training ended in epoch 3 after 18 batches.\n\n> a first try\n"
    )
    found = tables(text)
    metrics = {row[0]: row[1:] for row in found["Metrics"]}
    assert metrics["eval/acc"][:4] == ["3", "0.25", "0.25 (step 18)", "0.875 (step 12)"]
    assert metrics["train/loss"][0] == "18" and len(metrics["train/loss"][4]) == 18
    assert metrics["test/acc"][:2] == ["1", "0.25"]
    # By a clock that ticks at each look: begun, before and after each of four evaluations, at the end.
    assert found["Time"][:4] == [
        ["in all", "9.0 s"],
        ["training, 18 batches", "5.0 s"],
        ["a batch", "278 ms"],
        ["evaluation, 4 times", "4.0 s"],
    ]
    assert ["lr", "0.01"] in found["Parameters"] and [r"a\|b", r"x\|y\_z"] in found["Parameters"]
    assert found["Models"] == [["model", "Sequential", "99", "99"]]
    saved = {row[0]: row[1:] for row in found["Checkpoints"]}
    assert (
        saved["keep.000012.ckpt"][0] == "keypoint"
        and saved["keep.000012.ckpt"][2] == "best eval/acc: 0.875, epoch 2"
    )
    assert len(saved) == 4 and "In `save`:" in text
    assert "      90  ModelCheckpoint" in text and "![The metrics, by step](report.svg)" in text
    picture = ElementTree.fromstring(run.read_file("report.svg"))
    words = {
        "".join(element.itertext()).strip() for element in picture.iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"loss", "acc", "train", "eval", "test", "step"} <= words
    assert trainer.report.path == run.file("report.md")


def test_of_a_training_that_failed() -> None:
    class Fails(Reported):
        report = AutoReport(["train/loss"])

        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            if global_step == 8:
                raise RuntimeError("the <b>disk</b> is full")
            return super().train_batch(eidx, idx, global_step, *rest)

    trainer = Fails({"epoch": 3}, quiet=True)
    with pytest.raises(RuntimeError):
        trainer.train()
    text = trainer.run.read_file("report.md").decode()
    assert (
        "The training failed in epoch 2 after 8 batches.\n\n    RuntimeError: the <b>disk</b> is full\n"
        in text
    )
    assert [row[0] for row in tables(text)["Metrics"]] == ["train/loss"]
    assert trainer.run.state == "failed" and "report.svg" in trainer.run.files


def test_charts_of_many_points_and_sizes() -> None:
    trainer = Small({"epoch": 1}, quiet=True)
    experiment = trainer.initial_exp("charts")
    for step in range(60):
        experiment.log(
            {"train/loss": 10.0 ** (-step / 10), "train/acc": step / 60, "own": math.inf}, step=step
        )
    experiment.flush()
    charts = charts_of(trainer.run, ["train/loss", "train/acc", "own"])
    assert [chart.title for chart in charts] == ["train/loss", "train/acc", "own"]
    assert [chart.log_y for chart in charts] == [True, False, False]
    assert [line.raw is not None for chart in charts for line in chart.lines] == [True] * 3


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    Reported.report = AutoReport()
    trainer = Reported({"epoch": 1}, quiet=True)
    trainer.train()
    text = trainer.run.read_file("report.md").decode()
    assert "Pictures need the package matplotlib" in text and "report.svg" not in trainer.run.files
    assert tables(text)["Metrics"]


def test_a_text_is_no_list_of_metrics() -> None:
    with pytest.raises(UsageError, match=r"Give a list: \['train/loss'\]"):
        AutoReport("train/loss")
