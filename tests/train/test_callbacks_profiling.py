"""Chosen steps traced or profiled, into the run."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from small_training import Small

import luxmeter as lux
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.train import ProfilerCallback, TraceSteps
from luxmeter.view.cli import build_app


def steps_in(result: Any) -> int:
    return int(result.table()["torch.optim.AdamW.step"].n)


def trainer_with(*callbacks: Any, kind: type[Small] = Small) -> Any:
    trainer = kind({"epoch": 1}, quiet=True)
    trainer.initial_exp()
    for callback in callbacks:
        callback.hook(trainer)
    return trainer


def test_whole_steps_are_traced_into_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_with()
    trainer.train(trace=range(2, 4))
    log = (trainer.run.folder / "files" / "log" / "run.log").read_text()
    assert f"Steps 2 to 3 are traced: luxmeter show {trainer.experiment.id[:5]}/trace" in log
    trainer.close()
    result = trainer.run.trace
    table = result.table()
    assert table["torch.nn.CrossEntropyLoss"].n == 2
    assert table["Tensor.backward"].n == 2 and steps_in(result) == 2  # the optimizer's work, too
    assert not [callback for callback in trainer.callbacks if isinstance(callback, TraceSteps)]
    capsys.readouterr()
    build_app()(["show", f"{trainer.experiment.id[:5]}/trace"], standalone_mode=False)
    assert "Tensor.backward" in capsys.readouterr().out


def test_what_a_short_training_has_of_them() -> None:
    trainer = trainer_with(TraceSteps(range(4, 40), only=["torch.optim.*"]))
    trainer.train()
    assert steps_in(trainer.run.trace) == 2
    log = (trainer.run.folder / "files" / "log" / "run.log").read_text()
    assert "Steps 4 to 5 are traced" in log


def test_a_resumed_training_begins_inside_them(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_with()
    trainer.train(steps=3)
    late, past = TraceSteps(range(1, 5)), ProfilerCallback(range(2))
    late.hook(trainer)
    past.hook(trainer)
    trainer.train()
    assert steps_in(trainer.run.trace) == 2  # 3 and 4
    assert "ProfilerCallback: none of the steps 0 to 1 was trained on" in capsys.readouterr().out
    assert not [name for name in trainer.run.files if "profile" in name]


class Fails(Small):
    """At step 3."""

    def train_batch(self, eidx: int, idx: int, global_step: int, *rest: Any) -> Any:
        if global_step == 3:
            raise RuntimeError("in the middle")
        return super().train_batch(eidx, idx, global_step, *rest)


def test_an_error_inside_leaves_what_there_is() -> None:
    forward = torch.nn.Linear.forward
    trainer = trainer_with(TraceSteps(range(2, 6)), kind=Fails)
    with pytest.raises(RuntimeError, match="in the middle"):
        trainer.train()
    assert steps_in(trainer.run.trace) == 1 and torch.nn.Linear.forward is forward
    trainer = trainer_with(ProfilerCallback(range(2, 6)), kind=Fails)
    with pytest.raises(RuntimeError, match="in the middle"):
        trainer.train()
    assert "profile-2.json" in trainer.run.files


def test_a_profile_of_chosen_steps() -> None:
    trainer = trainer_with(ProfilerCallback(range(2, 4), record_shapes=True))
    trainer.train()
    found = json.loads(trainer.run.read_file("profile-2.json"))
    names = [event.get("name") for event in found["traceEvents"]]
    assert names.count("Optimizer.step#AdamW.step") == 2
    assert names.count("aten::cross_entropy_loss") == 2


@pytest.mark.one_core("a running trace is met, not looked into")
def test_two_traces_at_once_blame_the_second() -> None:
    trainer = trainer_with(TraceSteps(range(1, 3)))
    with lux.trace(), pytest.raises(LuxmeterError, match="Another trace") as caught:
        trainer.train()
    assert "It came from the callback TraceSteps.before_batch." in caught.value.__notes__


@pytest.mark.parametrize("steps", [range(0), range(3, 9, 2), range(-2, 3), 5])
def test_steps_that_are_none(steps: Any) -> None:
    with pytest.raises(UsageError, match="names no steps"):
        ProfilerCallback(steps)


def test_settings_are_looked_at_before_the_training() -> None:
    with pytest.raises(UsageError, match="Did you mean 'record_shapes'"):
        ProfilerCallback(recrd_shapes=True)
    with pytest.raises(UsageError, match="'schedule'"):
        ProfilerCallback(schedule=None)
    with pytest.raises(UsageError):
        TraceSteps(nothing=1)  # type: ignore[call-arg]
