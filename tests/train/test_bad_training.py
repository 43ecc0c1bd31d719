"""What is wrong with a training is named, with its place and the way out; the run ends as failed and nothing stays half done."""

from __future__ import annotations

import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import Noisy, Small
from torch import nn

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterWarning, UsageError
from luxmeter.frames import users_frames
from luxmeter.train import NaNGuard


def failing(
    kind: type[lux.Trainer], error: type[BaseException] = UsageError, **options: Any
) -> tuple[Any, str]:
    """The trainer and all that is said, of a training that fails; and that its run tells the same."""
    trainer = kind({"epoch": 2}, quiet=True, **options)
    before = signal.getsignal(signal.SIGINT), sys.exit
    with pytest.raises(error) as caught:
        trainer.train()
    said = "".join(traceback.format_exception(caught.value))
    assert (signal.getsignal(signal.SIGINT), sys.exit) == before
    assert trainer.run.state == "failed" and str(caught.value) in trainer.run.error
    assert str(caught.value) in (trainer.run.folder / "files" / "traceback.txt").read_text()
    assert trainer.experiment is not None and trainer.experiment.writer is None and not trainer._training.busy
    for optimizer in trainer.optimizers:
        assert not optimizer._optimizer_step_pre_hooks
    return trainer, said


def test_shapes_that_do_not_fit() -> None:
    class Wide(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.model = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.ReLU(), nn.Linear(9, 3)))
            self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)

    _, said = failing(Wide, RuntimeError)
    assert "mat1 and mat2 shapes cannot be multiplied (4x8 and 9x3)" in said
    assert "It was train batch 0 of epoch 1: (f32[4,6], i64[4])." in said.replace(
        "[f32[4,6], i64[4]]", "(f32[4,6], i64[4])"
    )
    assert (
        "It was in model.1.1, Linear(in_features=9, out_features=3, bias=True), which was given f32[4,8]."
        in said
    )
    assert "loss = self.cross(self.model(xs), ys)" in said  # the user's own line
    assert "torch/nn/modules" not in said and "loop.py" not in said

    class Labels(Small):
        def train_batch(self, eidx: int, idx: int, global_step: int, batch: Any, *rest: Any) -> Any:
            return super().train_batch(eidx, idx, global_step, (batch[0], batch[1][:2]), *rest)

    _, said = failing(Labels, ValueError)
    assert "It was in cross, CrossEntropyLoss(), which was given f32[4,3], i64[2]." in said


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (list, "The train data, a list, gave no batch. Check the dataset"),
        (
            lambda: lux.DataLoader(Noisy(3), batch_size=4, drop_last=True),
            "a DataLoader of 3 samples in batches of 4 with drop_last, gave no batch. Check the dataset, the sampler, batch_size and drop_last",
        ),
        (
            lambda: torch.utils.data.DataLoader(Noisy(24), batch_size=40, drop_last=True),
            "a DataLoader of 24 samples in batches of 40 with drop_last, gave no batch",
        ),
        (lambda: iter([]), "gave no batch. It can be gone through only once"),
    ],
)
def test_data_that_gives_nothing(data: Any, told: str) -> None:
    class Empty(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.regist_databundler(train=data())

    assert told in failing(Empty)[1]


def test_data_that_goes_by_once_ends_with_its_first_epoch() -> None:
    class Once(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.regist_databundler(train=iter(list(self.data["train"])))

    trainer, said = failing(Once)
    assert trainer.position.done == 6 and "The train data, a list_iterator, gave no batch" in said
    assert len(trainer.saver.find_checkpoints()) == 1  # of the first epoch


def test_evaluation_data_that_gives_nothing() -> None:
    class NoEval(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.regist_databundler(eval=[])

    assert "The eval data, a list, gave no batch" in failing(NoEval)[1]


def test_no_data_and_what_is_no_data() -> None:
    class NoData(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.data.register({"train": None})

    assert (
        "There is no train data. Register it in initial_trainer: self.regist_databundler(train=DataLoader(...))"
        in failing(NoData)[1]
    )
    assert "It came from the callback" not in failing(NoData)[1]
    trainer = Small({}, quiet=True)
    with pytest.raises(UsageError, match="The eval data is a int, which gives no batches"):
        trainer.regist_databundler(eval=3)
    trainer.regist_databundler(train=lambda: 3)
    with pytest.raises(UsageError, match="What makes the train data returned a int"):
        trainer.data["train"]
    with pytest.raises(UsageError, match=r"takes no 'tset'. Did you mean 'test'"):
        trainer.data.register({"tset": []})


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (lambda loss: loss.expand(3), "The loss of Returns.train_batch has the shape (3,). Reduce it to one number: loss.mean()"),
        (lambda loss: loss.detach(), "The loss of Returns.train_batch does not depend on any weight that is trained. Compute it"),
        (lambda loss: {"loss": loss.detach()}, "The loss of Returns.train_batch does not depend on any weight"),
        (lambda loss: (loss, 1), "Returns.train_batch returned a tuple. Return a Meter, a dict of metrics, the loss, or None"),
    ],
)  # fmt: skip
def test_losses_that_cannot_be_trained_on(result: Any, told: str) -> None:
    class Returns(Small):
        def train_batch(self, *given: Any) -> Any:
            return result(super().train_batch(*given))

    said = failing(Returns)[1]
    assert told in said and "It was train batch 0 of epoch 1" in said


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (lambda loss: None, "What Returns.train_batch returned has no loss. Return the loss, or a Meter with meter.loss"),
        (lambda loss: {"acc": 1.0}, "has no loss; it has acc"),
        (lambda loss: {"loss": loss.item()}, "The loss of Returns.train_batch is a float, not a tensor"),
    ],
)  # fmt: skip
def test_no_loss_where_steps_are_made_for_it(result: Any, told: str) -> None:
    class Returns(Small):
        def train_batch(self, *given: Any) -> Any:
            return result(super().train_batch(*given))

    assert told in failing(Returns, clip_norm=1.0)[1]


def test_no_optimizer_and_no_train_batch() -> None:
    class Without(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            del self.optim

    for options in ({}, {"accumulate": 2}):
        assert (
            "Without has no optimizer to step. Make one in initial_trainer" in failing(Without, **options)[1]
        )

    class Bare(lux.Trainer):
        def initial_trainer(self, params: Any) -> None:
            self.regist_databundler(train=[1])

    assert "Bare does not say how to train on a batch. Write train_batch(self, eidx" in failing(Bare)[1]


def test_an_evaluation_that_returns_what_is_no_metric() -> None:
    class Returns(Small):
        def eval_batch(self, *given: Any) -> Any:
            return 0.5

    assert "Returns.eval_batch returned a float" in failing(Returns)[1]


def test_checkpoints_that_are_none() -> None:
    trainer = Small({"epoch": 1}, quiet=True)
    trainer.initial_exp("./one")
    path = trainer.saver.save_checkpoint(3, {"model": trainer.model.state_dict()})
    with pytest.raises(CheckpointError, match=r"000003.ckpt was not saved by a Trainer"):
        trainer.load_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"There is no checkpoint of step 7 in .*There are: 3"):
        trainer.load_checkpoint(7)
    trainer.train(epochs=1)
    trainer.close()

    class More(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.second = nn.Linear(1, 1)

    more = More({"epoch": 1}, quiet=True)
    more.initial_exp("./two")
    with pytest.raises(
        CheckpointError, match=r"holds no second \(Linear\), which More has; it holds model, optim\."
    ):
        more.load_checkpoint(trainer.saver.find_checkpoints()[-1])


def test_names_that_a_trainer_has() -> None:
    class Sets(Small):
        def initial_trainer(self, params: Any) -> None:
            self.data = []  # type: ignore[assignment, misc]

    assert (
        "Sets sets 'data', which every Trainer has: The data by name. Choose another name" in failing(Sets)[1]
    )
    trainer = Small({}, quiet=True)
    with pytest.raises(UsageError, match="sets 'metrics', which every Trainer has"):
        trainer.metrics = {}  # type: ignore[assignment, method-assign]
    with pytest.raises(
        UsageError, match="Shadows sets 'meter', which every Trainer has: The averages of the epoch that runs"
    ):
        type("Shadows", (Small,), {"meter": None})
    trainer.train_batch = lambda *given: None  # type: ignore[method-assign, assignment]  # what a subclass writes may be set


def test_what_was_saved_before_a_failure_is_whole() -> None:
    class Fails(Small):
        def train_batch(self, eidx: int, *rest: Any) -> Any:
            if eidx == 2:
                raise OSError("the disk went away")
            return super().train_batch(eidx, *rest)

    trainer, _ = failing(Fails, OSError)
    run = trainer.run
    [path] = trainer.saver.find_checkpoints()
    again = Small({"epoch": 2}, quiet=True)
    again.initial_exp("again")
    again.load_checkpoint(path)
    assert again.position.done == 6
    assert run.metric("train/loss").steps.tolist() == list(range(6))
    assert "Epoch(train) [1]" in (run.folder / "files" / "log" / "run.log").read_text()


def test_the_same_trainer_can_go_on_behind_a_batch_that_failed() -> None:
    class FailsOnce(Small):
        fails = True

        def train_batch(self, eidx: int, idx: int, *rest: Any) -> Any:
            if idx == 2 and self.fails:
                type(self).fails = False
                raise RuntimeError("once")
            return super().train_batch(eidx, idx, *rest)

    for loader in (lux.DataLoader, torch.utils.data.DataLoader):
        FailsOnce.fails, FailsOnce.loader = True, loader
        trainer, _ = failing(FailsOnce, RuntimeError)
        trainer.train(epochs=2)
        assert len(trainer.losses) == 11 and trainer.position.global_step == 12
        assert trainer.run.state == "running"
        trainer.close()


def test_a_with_block_that_fails() -> None:
    with pytest.raises(ZeroDivisionError) as caught, Small({"epoch": 1}, quiet=True) as trainer:
        trainer.train()
        1 / 0
    assert trainer.run.state == "failed" and "ZeroDivisionError" in trainer.run.error
    assert any("The whole traceback" in note for note in caught.value.__notes__)

    class Fails(Small):
        def train_batch(self, *given: Any) -> Any:
            raise KeyError("here")

    with pytest.raises(KeyError) as told, Fails({"epoch": 1}, quiet=True) as trainer:
        trainer.train()
    assert sum("The whole traceback" in note for note in told.value.__notes__) == 1  # said once


def test_what_is_refused_before_a_training_shows_the_users_line_alone() -> None:
    class Fails(Small):
        def initial_trainer(self, params: Any) -> None:
            raise KeyError("here")

    for call in (
        lambda: Small({}, acumulate=2),  # type: ignore[call-arg]
        lambda: Small({"device": "gpu0"}),
        lambda: Small({"device": "cuda:99"}),
        lambda: Small({}, quiet=True).train(epochs=0),
        lambda: Small({}, quiet=True).evaluate("evl"),
        lambda: Small({}, quiet=True).train(resume="absent.ckpt"),
        lambda: Fails({}, quiet=True).initial_exp(),
        lambda: Fails({}, quiet=True).train(),
    ):
        with pytest.raises((UsageError, CheckpointError, KeyError)) as caught:
            call()
        shown = "".join(traceback.format_exception(caught.value))
        assert "src/luxmeter" not in shown and "site-packages" not in shown
    with pytest.raises(UsageError) as whole:
        Small({}, acumulate=2, full_traceback=True)  # type: ignore[call-arg]
    assert "src/luxmeter/options.py" in "".join(traceback.format_exception(whole.value))


def test_a_loss_that_is_only_a_number() -> None:
    class Numbers(Small):
        def train_batch(self, *given: Any) -> Any:
            return super().train_batch(*given).item()

    trainer = Numbers({"epoch": 1}, quiet=True, checkpoint=False)
    NaNGuard().hook(trainer)
    with pytest.warns(LuxmeterWarning, match="In a whole epoch Numbers.train_batch made no step"):
        trainer.train()
    trainer.close()
    assert trainer.metric("train/loss") == pytest.approx(sum(trainer.losses) / 6)
    assert len(trainer.run.metric("train/loss")) == 6

    class Again(Numbers):
        pass

    _, said = failing(Again, clip_norm=1.0)
    assert "The loss of Again.train_batch is a float, not a tensor." in said


def test_frames_of_an_installed_project_are_the_users(tmp_path: Path) -> None:
    def tb_of(file: Path) -> Any:
        names: dict[str, Any] = {}
        exec(compile("def fail():\n    raise KeyError(1)\n", str(file), "exec"), names)
        try:
            names["fail"]()
        except KeyError as error:
            return error.__traceback__

    installed = Path(torch.__file__).parent.parent / "a_project" / "train.py"

    def files(tb: Any) -> list[str]:
        return [frame.filename for frame in traceback.extract_tb(tb)]

    assert files(users_frames(tb_of(installed), "")) == [__file__]
    assert files(users_frames(tb_of(installed), str(installed.parent))) == [__file__, str(installed)]
    assert users_frames(None, "") is None
