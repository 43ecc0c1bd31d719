"""Event files of TensorBoard, read back by TensorBoard itself; and how fast a training goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import Small
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from luxmeter.errors import UsageError
from luxmeter.train import BoardCallback, EvalCallback, SystemMetrics


def events(trainer: Any) -> Any:
    found = EventAccumulator(str(trainer.run.folder / "files" / "board"), size_guidance={"scalars": 0})
    return found.Reload()


def scalars(found: Any, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in found.Scalars(name)]


class Shown(Small):
    """With a learning rate that changes, and two groups of weights."""

    board: Any = None

    def initial_callback(self) -> None:
        EvalCallback(1, 2).hook(self)
        self.board.hook(self)

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        first, *rest = self.model.parameters()
        self.optim = torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": rest, "lr": 0.25}])


def test_what_tensorboard_reads() -> None:
    Shown.board = BoardCallback(every=2, histograms=2)
    trainer = Shown({"epoch": 2, "password": "s3cr3t"}, quiet=True)
    trainer.train()
    trainer.experiment.flush()
    found, run = events(trainer), trainer.run
    assert set(found.Tags()["scalars"]) == {"train/loss", "eval/acc", "test/acc", "lr/0", "lr/1"}
    kept = dict(zip(run.metric("train/loss").steps.tolist(), run.metric("train/loss").values, strict=True))
    assert scalars(found, "train/loss") == [(n, pytest.approx(kept[n])) for n in (1, 3, 5, 7, 9, 11)]
    assert [step for step, _ in scalars(found, "eval/acc")] == [6, 12]
    assert [step for step, _ in scalars(found, "test/acc")] == [12]
    assert {value for _, value in scalars(found, "lr/0")} == {0.5}
    assert "weights/model.0.weight" in found.Tags()["histograms"]
    assert [one.step for one in found.Histograms("weights/model.0.weight")] == [12]
    assert not any(
        "s3cr3t" in path.read_text("latin-1") for path in (run.folder / "files" / "board").iterdir()
    )
    trainer.test()  # outside of the training, in a file of its own
    assert [step for step, _ in scalars(events(trainer), "test/acc")] == [12, 12]


def test_an_error_closes_the_file() -> None:
    class Fails(Shown):
        board = BoardCallback(every=1, rates=False)

        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            if global_step == 2:
                raise RuntimeError("no")
            return super().train_batch(eidx, idx, global_step, *rest)

    trainer = Fails({"epoch": 1}, quiet=True)
    with pytest.raises(RuntimeError):
        trainer.train()
    found = events(trainer)
    assert found.Tags()["scalars"] == ["train/loss"] and len(scalars(found, "train/loss")) == 2


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    Shown.board = BoardCallback()
    with pytest.raises(ImportError, match=r"luxmeter\[tensorboard\]") as caught:
        Shown({"epoch": 1}, quiet=True).train()
    assert "It came from the callback BoardCallback.before_train." in caught.value.__notes__


def test_how_fast_it_goes() -> None:
    now = 0.0

    class Ticking(Small):
        """A second for its data, three for a batch of four samples, and a long evaluation."""

        def initial_callback(self) -> None:
            EvalCallback(1).hook(self)
            SystemMetrics(4, clock=lambda: now).hook(self)

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.regist_databundler(train=Data())

        def train_batch(self, *given: Any) -> Any:
            nonlocal now
            now += 3.0
            return super().train_batch(*given)

        def eval_batch(self, *given: Any) -> Any:
            nonlocal now
            now += 100.0
            return {"acc": 0.5}

    class Data:
        def __iter__(self) -> Any:
            nonlocal now
            for _ in range(6):
                now += 1.0
                yield torch.randn(4, 6), torch.zeros(4, dtype=torch.int64)

    trainer = Ticking({"epoch": 2}, quiet=True)
    trainer.train()
    run = trainer.run
    trainer.experiment.flush()
    assert run.metric("system/samples_per_s").values.tolist() == [1.0] * 4
    assert run.metric("system/batches_per_s").values.tolist() == [0.25] * 4
    assert run.metric("system/data_share").values.tolist() == [0.25] * 4
    assert run.metric("system/data_share").steps.tolist() == [4, 6, 10, 12]


def test_samples_of_ones_own() -> None:
    found: list[Any] = []
    trainer = Small({"epoch": 1}, quiet=True)
    trainer.initial_exp()
    SystemMetrics(100, samples=lambda batch: found.append(batch) or 7).hook(trainer)  # type: ignore[func-returns-value]
    trainer.train()
    trainer.experiment.flush()
    rates = {key: trainer.run.metric(f"system/{key}").values[0] for key in ("samples_per_s", "batches_per_s")}
    assert rates["samples_per_s"] == pytest.approx(7 * rates["batches_per_s"]) and len(found) == 6


@pytest.mark.parametrize(
    "wrong", [lambda: BoardCallback(0), lambda: BoardCallback(histograms=-1), lambda: SystemMetrics(0)]
)
def test_what_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_the_file_lies_in_the_run(own_lab: Path) -> None:
    Shown.board = BoardCallback()
    trainer = Shown({"epoch": 1}, quiet=True)
    trainer.initial_exp("./experiment")
    trainer.train()
    assert [name for name in trainer.run.files if name.startswith("board/events.out.tfevents")]
    assert trainer.run.folder.is_relative_to(own_lab)
