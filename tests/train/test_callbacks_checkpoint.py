"""When a training is saved: the best one as a keypoint, by the clock, before Ctrl-C; and what a resumed one knows of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from small_training import Small, same, weights

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.train import EvalCallback, KeyErrorSave, ModelCheckpoint, TimingCheckpoint


class Scored(Small):
    """Its evaluations say what they are told to, epoch by epoch."""

    scores: tuple[float, ...] = ()
    eval_every = 1
    hooked: tuple[Any, ...] = ()

    def initial_callback(self) -> None:
        EvalCallback(self.eval_every).hook(self)
        for callback in self.hooked:
            callback.hook(self)

    def eval_batch(self, eidx: int, *rest: Any) -> Any:
        return {"acc": self.scores[eidx - 1], "word": "some"}


def scored(scores: tuple[float, ...], *callbacks: Any, **more: Any) -> Scored:
    kind = type("Scored", (Scored,), {"scores": scores, "hooked": callbacks, **more})
    trainer: Scored = kind({"epoch": len(scores)}, quiet=True)
    return trainer


def keypoints(trainer: Any) -> list[str]:
    return [Path(path).name for path in trainer.saver.find_keypoints()]


@pytest.mark.parametrize(
    ("mode", "best", "name"), [("max", 0.875, "keep.000012.ckpt"), ("min", 0.125, "keep.000018.ckpt")]
)
def test_the_best_stays_as_a_keypoint(mode: Any, best: float, name: str) -> None:
    keeper = ModelCheckpoint("eval/acc", mode)
    trainer = scored((0.5, 0.875, 0.125, 0.25), keeper)
    trainer.train()
    assert keeper.best == best and keypoints(trainer) == [name] and Path(keeper.best_path).name == name
    loaded = trainer.saver.load(keeper.best_path)
    assert loaded.info["eval/acc"] == best
    assert len(trainer.saver.find_checkpoints()) == 3


def test_a_value_that_is_no_number_is_never_best() -> None:
    keeper = ModelCheckpoint("acc", "max")
    trainer = scored((float("nan"), 0.25, float("nan")), keeper)
    trainer.train()
    assert keeper.best == 0.25 and keypoints(trainer) == ["keep.000012.ckpt"]


def test_a_resumed_training_knows_the_best() -> None:
    first = scored((0.5, 0.875, 0.125), ModelCheckpoint("eval/acc", "max"))
    first.initial_exp("./scored")
    first.train(epochs=2)
    first.close()
    for scores, left in (((0, 0, 0.75), "keep.000012.ckpt"), ((0, 0, 0.9375), "keep.000018.ckpt")):
        keeper = ModelCheckpoint("eval/acc", "max")
        second = scored(scores, keeper)
        second.initial_exp("./scored")
        second.train(resume=12)
        assert keeper.best == max(0.875, scores[-1])
        assert keypoints(second) == [left] == [Path(keeper.best_path).name]
        second.close()


def test_another_runs_best_is_left_alone() -> None:
    first = scored((0.5, 0.625), ModelCheckpoint("eval/acc", "max"))
    first.initial_exp("one")
    first.train()
    lies = first.saver.find_keypoints()
    first.close()
    keeper = ModelCheckpoint("eval/acc", "max")
    second = scored((0.5, 0.625, 0.75), keeper)
    second.initial_exp("two")
    second.train(resume=first.saver.find_checkpoints()[-1])
    assert keeper.best == 0.75 and keypoints(second) == ["keep.000018.ckpt"]
    assert all(Path(path).is_file() for path in lies) and len(lies) == 1


def test_two_may_have_the_same_best() -> None:
    high, low = ModelCheckpoint("eval/acc", "max"), ModelCheckpoint("eval/acc", "min")
    trainer = scored((0.5, 0.875), high, low)
    trainer.train()
    assert keypoints(trainer) == ["keep.000006.ckpt", "keep.000012.ckpt"]
    assert (low.best, high.best) == (0.5, 0.875)


def test_a_rare_evaluation_is_waited_for() -> None:
    keeper = ModelCheckpoint("eval/acc", "max")
    trainer = scored((0.875, 0.25, 0.75, 0.5), keeper, eval_every=2)
    trainer.train()
    assert keeper.best == 0.5
    infos = [trainer.saver.load(path).info for path in trainer.saver.find_checkpoints()]
    assert ["eval/acc" in info for info in infos] == [True, False, True]  # of what was evaluated there


def test_of_the_training_and_by_steps() -> None:
    keeper = ModelCheckpoint("train/loss", every_epochs=5, every_steps=4)
    trainer = scored((0.5, 0.5), keeper)
    trainer.train()
    steps = [int(Path(path).stem) for path in trainer.saver.find_checkpoints()]
    assert steps == [6, 8, 12] or steps == [4, 8, 12]  # 6 only if its epoch was the best so far
    assert keeper.best is not None and keeper.monitor is not None and keeper.monitor.whole == "train/loss"


@pytest.mark.parametrize(
    ("monitor", "said"),
    [
        ("eval/ac", "Did you mean 'eval/acc'?"),
        ("nothing", "There are train/loss"),
        ("test/acc", "no test data"),
    ],
)
def test_a_metric_that_never_comes(monitor: str, said: str) -> None:
    trainer = scored((0.5, 0.5), ModelCheckpoint(monitor))
    trainer.initial_exp()
    trainer.data.register({"test": None})
    with pytest.raises(UsageError, match="ModelCheckpoint watches") as caught:
        trainer.train()
    assert said in str(caught.value) and caught.value.slug == "monitor-never-comes"
    assert "It came from the callback ModelCheckpoint." in "".join(caught.value.__notes__)


def test_a_metric_that_did_not_come_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = scored((0.5, 0.5), ModelCheckpoint("eval/acc", "max"), eval_every=0)
    trainer.train()
    assert (
        "ModelCheckpoint watches 'eval/acc', which never came. There are train/loss."
        in capsys.readouterr().out
    )


def test_a_metric_that_is_a_word() -> None:
    with pytest.raises(UsageError, match="watches 'eval/word', which is 'some'"):
        scored((0.5,), ModelCheckpoint("eval/word")).train()


@pytest.mark.parametrize(
    "wrong", [{"mode": "best"}, {"every_epochs": 0}, {"every_steps": True}, {"monitor": ""}]
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ModelCheckpoint(**{"monitor": "loss", **wrong})
    with pytest.raises(UsageError, match="minutes=0"):
        TimingCheckpoint(0)


def test_by_the_clock() -> None:
    now = 0.0

    class Ticking(Scored):
        def train_batch(self, *given: Any) -> Any:
            nonlocal now
            now += 25.0
            return super().train_batch(*given)

    trainer = Ticking({"epoch": 2}, quiet=True, checkpoint=False, max_to_keep=None)
    trainer.initial_exp()
    trainer.scores = (0, 0)
    TimingCheckpoint(1, clock=lambda: now).hook(trainer)
    trainer.train()
    assert [int(Path(path).stem) for path in trainer.saver.find_checkpoints()] == [3, 6, 9, 12]


class Interrupted(Small):
    """Gets Ctrl-C in the middle of something."""

    inside = ""

    def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
        if self.inside == "batch" and global_step == 8:
            os.kill(os.getpid(), signal.SIGINT)
        return super().train_batch(eidx, idx, global_step, *rest)

    def eval_batch(self, eidx: int, idx: int, *rest: Any) -> Any:
        if self.inside == "evaluation" and (eidx, idx) == (1, 1):
            os.kill(os.getpid(), signal.SIGINT)
        return super().eval_batch(eidx, idx, *rest)

    def initial_trainer(self, params: Any) -> None:
        import torch

        super().initial_trainer(params)
        self.rate = torch.optim.lr_scheduler.StepLR(self.optim, 1, gamma=0.5)


# torch knows nothing of the steps that were made before a resume.
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(("inside", "step"), [("batch", 9), ("evaluation", 6)])
def test_ctrl_c_saves_first(inside: str, step: int, capsys: pytest.CaptureFixture[str]) -> None:
    whole = Interrupted({"epoch": 3}, quiet=True, schedule="epoch")
    whole.initial_exp("./whole")
    whole.train()
    whole.close()
    first = type("Interrupted", (Interrupted,), {"inside": inside})(
        {"epoch": 3}, quiet=True, schedule="epoch"
    )
    first.initial_exp("./first")
    with pytest.raises(KeyboardInterrupt):
        first.train()
    assert f"{step:06d}.ckpt" in capsys.readouterr().out
    assert first.experiment.state == "interrupted"
    second = Interrupted({"epoch": 3}, quiet=True, schedule="epoch")
    second.initial_exp("./first")
    second.train(resume=True)
    assert first.losses + second.losses == whole.losses and same(weights(second), weights(whole))
    assert second.rate.get_last_lr() == whole.rate.get_last_lr()


def test_an_error_is_not_ctrl_c() -> None:
    class Fails(Small):
        def train_batch(self, *given: Any) -> Any:
            raise RuntimeError("no")

    trainer = Fails({"epoch": 1}, quiet=True)
    with pytest.raises(RuntimeError):
        trainer.train()
    assert trainer.callbacks.find(KeyErrorSave) is not None
    assert not list(trainer._training.saver.folder.glob("*.ckpt"))  # type: ignore[union-attr]


def test_every_and_once_count_epochs() -> None:
    trainer = scored((0.125, 0.25, 0.375, 0.25))
    trainer.initial_exp()
    seen: list[int] = []

    class Seeing(lux.Callback):
        def after_epoch(self, trainer: lux.Trainer, meter: Any) -> None:
            seen.append(trainer.position.eidx)

    Seeing().hook(trainer, every=2)
    Seeing().hook(trainer, once=True)
    trainer.train()
    assert seen == [1, 2, 4]
