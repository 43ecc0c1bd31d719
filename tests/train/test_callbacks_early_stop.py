"""EarlyStop: when it stops, what it says, and what a resumed training knows."""

from __future__ import annotations

from typing import Any

import pytest
from small_training import Small

from luxmeter.errors import UsageError
from luxmeter.train import EarlyStop, EvalCallback

NAN = float("nan")


class Scored(Small):
    """Its evaluations say what they are told to; six batches an epoch."""

    stop = EarlyStop()
    scores: tuple[float, ...] = ()
    eval_every = 1

    def initial_callback(self) -> None:
        EvalCallback(self.eval_every).hook(self)
        self.stop.hook(self)

    def eval_batch(self, eidx: int, *rest: Any) -> Any:
        return {"acc": self.scores[eidx - 1]}


def trained(stop: EarlyStop, scores: tuple[float, ...], **more: Any) -> Any:
    kind = type("Scored", (Scored,), {"stop": stop, "scores": scores, **more})
    trainer = kind({"epoch": len(scores)}, quiet=True)
    trainer.initial_exp("stopped")
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("options", "scores", "epochs"),
    [
        ({}, (0.5, 0.25, 0.25, 0.25, 1.0), 4),
        ({"mode": "min"}, (0.5, 0.25, 0.125, 0.5, 0.5, 0.5, 0.0), 6),
        ({"min_delta": 0.25}, (0.5, 0.625, 0.75, 0.75, 0.75), 4),  # 0.25 more is not more than 0.25
        ({"goal": 0.75}, (0.25, 0.5, 0.75, 1.0), 3),
        ({}, (NAN, NAN, NAN, 0.5), 3),
        ({}, (0.5, 0.25, 0.25, 0.625, 0.5, 0.5), 6),
    ],
)
def test_when_it_stops(options: dict[str, Any], scores: tuple[float, ...], epochs: int) -> None:
    stop = EarlyStop("eval/acc", **{"mode": "max", "patience": 3, **options})
    trainer = trained(stop, scores)
    assert trainer.position.global_step == epochs * 6
    assert bool(stop.reason) == (epochs < len(scores))


def test_it_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    stop = EarlyStop("acc", "max", patience=2, min_delta=0.125)
    trainer = trained(stop, (0.5, 0.25, 0.5, 1.0))
    why = (
        "EarlyStop: stopped in epoch 3, step 18: eval/acc was not better than 0.5 in epoch 1 by more than 0.125"
        " for 2 evaluations."
    )
    assert stop.reason == why == trainer.run.note
    assert why in (trainer.run.folder / "files" / "log" / "run.log").read_text()
    assert trainer.run.state == "running"  # it is no failure
    trainer.experiment.note("mine")
    goal = EarlyStop("train/loss", goal=1000)
    goal.hook(trainer)
    trainer.train(epochs=5)
    assert trainer.run.note.startswith("mine\nEarlyStop: stopped in epoch ")


def test_epochs_without_evaluation_do_not_count() -> None:
    stop = EarlyStop("eval/acc", "max", patience=2)
    trainer = trained(stop, (0.5,) * 8, eval_every=2)
    assert trainer.position.global_step == 6 * 6  # evaluated after epochs 2, 4 and 6
    assert "for 2 evaluations" in stop.reason


def test_an_evaluation_made_twice_counts_once() -> None:
    stop = EarlyStop("eval/acc", "max", patience=9)
    kind = type("Scored", (Scored,), {"stop": stop, "scores": (0.5, 0.25, 0.25)})
    trainer = kind({"epoch": 3}, quiet=True)
    trainer.train(epochs=2)
    assert stop.waited == 1
    trainer.eval()
    assert stop.waited == 1


def test_of_the_training() -> None:
    stop = EarlyStop("loss", "max", patience=1, min_delta=100.0)
    trainer = trained(stop, (0.0, 0.0, 0.0))
    assert trainer.position.global_step == 12 and "train/loss was not better" in stop.reason
    assert "for 1 epoch." in stop.reason


def test_a_resumed_training_goes_on_counting() -> None:
    scores = (0.5, 0.25, 0.25, 0.25, 0.25, 0.25)
    first = type("Scored", (Scored,), {"stop": EarlyStop("eval/acc", "max", patience=3), "scores": scores})
    one = first({"epoch": 6}, quiet=True)
    one.train(epochs=3)
    assert one.stop.waited == 2 and not one.stop.reason
    one.close()
    for patience, step, reason in (
        (3, 24, "in epoch 4"),
        (3, 24, "in epoch 4, step 24"),
        (5, 36, "in epoch 6"),
    ):
        stop = EarlyStop("eval/acc", "max", patience=patience)
        trainer = type("Scored", (Scored,), {"stop": stop, "scores": scores})({"epoch": 6}, quiet=True)
        trainer.train(resume=True)
        assert trainer.position.global_step == step and reason in stop.reason, patience
        assert stop.monitor.best == 0.5 and stop.monitor.best_epoch == 1
        trainer.close()


@pytest.mark.parametrize(
    "wrong",
    [{"patience": 0}, {"goal": "high"}, {"goal": NAN}, {"mode": "up"}, {"min_delta": -1}, {"monitor": 3}],
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        EarlyStop(**wrong)


def test_a_metric_that_never_comes_is_blamed_on_it() -> None:
    with pytest.raises(
        UsageError, match="EarlyStop watches 'eval/f1', which is none of the metrics"
    ) as caught:
        trained(EarlyStop("eval/f1"), (0.5, 0.5))
    assert "It came from the callback EarlyStop.after_eval." in caught.value.__notes__
