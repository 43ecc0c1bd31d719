"""A training that was stopped anywhere goes on bit by bit as if it had not been."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_training import Small, same, weights

import luxmeter as lux
from luxmeter.errors import CheckpointError
from luxmeter.train import LRSchedule

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

EPOCHS, STEPS = 2, 12
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {"accumulate": 4, "clip_norm": 1.0, "amp": "bfloat16", "ema": 0.9},
    "float16": {"amp": "float16", "accumulate": 2},
}


def stopped_at(step: int, kind: type[Small], options: dict[str, Any]) -> Small:
    """Trained to a step, then gone on with in another object, as another process would."""
    first = kind({"epoch": EPOCHS}, quiet=True, **options)
    first.initial_exp("./stopped")
    first.train(epochs=EPOCHS, steps=step)
    first.close()
    second = kind({"epoch": EPOCHS}, quiet=True, **options)
    second.initial_exp("./stopped")
    torch.rand(step)  # whatever was drawn before does not count
    second.train(resume=True)
    assert first.losses + second.losses == uninterrupted(kind, options).losses
    return second


def uninterrupted(kind: type[Small], options: dict[str, Any]) -> Small:
    trainer = kind({"epoch": EPOCHS}, quiet=True, **options)
    trainer.initial_exp("./whole")
    trainer.train()
    trainer.close()
    return trainer


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_step(options: dict[str, Any]) -> None:
    whole = uninterrupted(Small, options)
    assert len(set(whole.losses)) == STEPS
    for step in range(1, STEPS):
        second = stopped_at(step, Small, options)
        assert same(weights(second), weights(whole)), step
        assert second.meter.to_dict() == pytest.approx(whole.meter.to_dict(), abs=0)
        assert second.meters["eval"].to_dict() == whole.meters["eval"].to_dict()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_with_workers(workers: int) -> None:
    kind = type("Workers", (Small,), {"workers": workers})
    for step in (3, 6, 8):
        assert same(weights(stopped_at(step, kind, {})), weights(uninterrupted(kind, {}))), step


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_torch_is_read_again(workers: int) -> None:
    kind = type("Torchs", (Small,), {"loader": torch.utils.data.DataLoader, "workers": workers})
    for step in (2, 6, 9):
        assert same(weights(stopped_at(step, kind, {})), weights(uninterrupted(kind, {}))), step


def test_schedules_and_early_ends() -> None:
    class Scheduled(Small):
        def initial_callback(self) -> None:
            super().initial_callback()
            LRSchedule(lux.Params.SCHE.Cos(start=1, end=0.1, right=12)).hook(self)

    for step in (1, 5, 6, 10):
        assert same(weights(stopped_at(step, Scheduled, {})), weights(uninterrupted(Scheduled, {}))), step


def test_the_same_trainer_goes_on() -> None:
    whole = uninterrupted(Small, {})
    for kind in (Small, type("Torchs", (Small,), {"loader": torch.utils.data.DataLoader})):
        trainer = kind({"epoch": EPOCHS}, quiet=True)
        trainer.train(steps=4)
        trainer.train(steps=9)
        trainer.train()
        assert len(trainer.losses) == STEPS
        if kind is Small:
            assert trainer.losses == whole.losses and same(weights(trainer), weights(whole))


def test_the_last_run_of_this_name() -> None:
    class Fails(Small):
        fails_at = 8

        def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
            if global_step == self.fails_at:
                raise RuntimeError("the machine went away")
            return super().train_batch(eidx, idx, global_step, *rest)

    first = Fails({"epoch": EPOCHS}, quiet=True)
    with pytest.raises(RuntimeError):
        first.train()
    second = type("Fails", (Small,), {})({"epoch": EPOCHS}, quiet=True)
    second.train(resume=True)
    assert same(weights(second), weights(uninterrupted(Small, {})))
    third = type("Fails", (Small,), {})({"epoch": EPOCHS}, quiet=True)
    third.train(resume=True)
    assert not third.losses  # the second came to its end
    third.train(epochs=EPOCHS + 1)
    assert len(third.losses) == 6 and third.position.global_step == 18


def test_from_another_run_and_from_a_file() -> None:
    first = Small({"epoch": EPOCHS}, quiet=True)
    first.train(steps=7)
    [path] = first.saver.find_checkpoints()[-1:]
    ident = first.experiment.id if first.experiment else ""
    first.close()
    for source in (ident, path, str(path)):
        second = Small({"epoch": EPOCHS}, quiet=True)
        second.initial_exp("other")
        second.train(resume=source)
        assert same(weights(second), weights(uninterrupted(Small, {})))


def test_a_checkpoint_of_another_model_changes_nothing() -> None:
    first = Small({"epoch": 1}, quiet=True)
    first.initial_exp("./one")
    first.train()
    first.close()

    class Wider(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Linear(9, 3))

    second = Wider({"epoch": 1}, quiet=True)
    second.initial_exp("./two")
    before = weights(second)
    with pytest.raises(CheckpointError) as caught:
        second.train(resume=first.saver.find_checkpoints()[-1])
    text = str(caught.value)
    assert "'model'" in text and "0.weight ((8, 6) there, (9, 6) here)" in text and "unknown here: 4.weight" in text
    assert same(before, weights(second))
