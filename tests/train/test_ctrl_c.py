"""Ctrl-C saves first; whatever moment it comes at, the training goes on bit by bit as if it had not come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_training import Small, same, weights

import luxmeter as lux
from luxmeter.train import LRSchedule


class Pressed(Small):
    """Ctrl-C in a chosen batch, so many times."""

    where: Any = None  # ("train" | "eval", epoch, batch)
    times = 1

    def train_batch(self, eidx: int, idx: int, *rest: Any) -> Any:
        self._press("train", eidx, idx)
        return super().train_batch(eidx, idx, *rest)

    def eval_batch(self, eidx: int, idx: int, *rest: Any) -> Any:
        self._press("eval", eidx, idx)
        return super().eval_batch(eidx, idx, *rest)

    def initial_callback(self) -> None:
        super().initial_callback()
        LRSchedule(lux.Params.SCHE.Power(1.0, 1, 0.5), every="epoch").hook(self)

    def _press(self, *here: Any) -> None:
        if here == self.where:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def pressed(where: Any, **options: Any) -> Pressed:
    trainer = Pressed({"epoch": 3}, quiet=True, **options)
    trainer.initial_exp("./pressed")
    Pressed.where = where
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    finally:
        Pressed.where = None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert trainer.run.state == "interrupted" and trainer.run.ending is not None
    assert trainer.run.ending.signal == "SIGINT"
    return trainer


def gone_on(**options: Any) -> Pressed:
    trainer = Pressed({"epoch": 3}, quiet=True, **options)
    trainer.initial_exp("./pressed")
    trainer.train(resume=True)
    trainer.close()
    return trainer


@pytest.fixture
def whole() -> Pressed:
    trainer = Pressed({"epoch": 3}, quiet=True)
    trainer.train()
    trainer.close()
    return trainer


@pytest.mark.parametrize(
    "where", [("train", 1, 0), ("train", 2, 3), ("train", 2, 5), ("eval", 1, 0), ("eval", 2, 2)], ids=str
)
def test_it_saves_first_and_goes_on_as_if_nothing_had_been(whole: Pressed, where: Any) -> None:
    first = pressed(where)
    assert "Stopping after this batch (Ctrl-C again: at once)" in log_of(first)
    assert "go on with train(resume=True)" in log_of(first)
    second = gone_on()
    assert first.losses + second.losses == whole.losses
    assert same(weights(second), weights(whole))
    assert second.optim.param_groups[0]["lr"] == whole.optim.param_groups[0]["lr"]
    of_first = first.run.metric("eval/acc") if "eval/acc" in first.run.metrics else []
    steps = [point.step for point in [*of_first, *second.run.metric("eval/acc")]]
    assert steps == [6, 12, 18]  # each epoch was evaluated once


def log_of(trainer: Any) -> str:
    return str((trainer.saver.folder.parent / "log" / "run.log").read_text())


def test_the_second_one_ends_it_at_once(whole: Pressed) -> None:
    Pressed.times = 2
    try:
        first = pressed(("train", 2, 3))
    finally:
        Pressed.times = 1
    assert len(first.losses) == 9 and "the last checkpoint is the one to go on from" in log_of(first)
    second = gone_on()
    assert first.losses[:6] + second.losses == whole.losses and same(weights(second), weights(whole))


def test_it_is_not_lost_behind_the_last_batch() -> None:
    class Late(lux.Callback):
        def after_train(self, trainer: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    trainer = Small({"epoch": 1}, quiet=True)
    Late().hook(trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.run.state == "interrupted" and trainer.position.done == 6


def test_a_handler_of_the_programs_own_decides_for_itself() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        Pressed.where = ("train", 1, 2)
        trainer = Pressed({"epoch": 1}, quiet=True)
        trainer.train()
    finally:
        Pressed.where = None
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT] and len(trainer.losses) == 6
    trainer.close()
    assert trainer.run.state == "finished"


def test_in_an_evaluation_alone() -> None:
    trainer = Pressed({"epoch": 1}, quiet=True)
    Pressed.where = ("eval", 0, 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            trainer.eval()
    finally:
        Pressed.where = None
    assert trainer.run.state == "interrupted"


def test_workers_that_die_of_it_end_the_training_as_it_does(whole: Pressed) -> None:
    class Dies(Pressed):
        dies = True

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            data = self.data["train"].dataset  # type: ignore[attr-defined]
            real = type(data).__getitem__

            class Dying(type(data)):  # type: ignore[misc]
                read = 0

                def __getitem__(self, index: int) -> Any:
                    type(self).read += 1
                    if Dies.dies and self.read == 35:  # of the third batch of the second epoch
                        os.kill(os.getpid(), signal.SIGINT)
                        raise RuntimeError("DataLoader worker (pid 7) exited unexpectedly")
                    return real(self, index)

            data.__class__ = Dying

    Dies.__name__ = "Pressed"  # of the same folder
    first = Dies({"epoch": 3}, quiet=True)
    first.initial_exp("./pressed")
    with pytest.raises(KeyboardInterrupt):
        first.train()
    Dies.dies = False
    assert first.run.state == "interrupted"
    second = gone_on()
    assert first.losses + second.losses == whole.losses and same(weights(second), weights(whole))


SCRIPT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from small_training import Small

class Pressed(Small):
    workers = 2
    def train_batch(self, eidx, idx, global_step, *rest):
        if global_step == 7:
            os.killpg(os.getpgrp(), signal.SIGINT)  # as a terminal does
        return super().train_batch(eidx, idx, global_step, *rest)

trainer = Pressed({"epoch": 2})
trainer.initial_exp("./group")
trainer.train()
"""


def test_of_a_whole_group_of_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py", str(Path(__file__).parent)], cwd=tmp_path, capture_output=True, text=True, check=False, start_new_session=True,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert said.count("Stopping after this batch") == 1 and "go on with train(resume=True)" in said
    assert done.stderr.count("Traceback") == 1 and "KeyboardInterrupt" in done.stderr, done.stderr
    assert (tmp_path / "group" / "Pressed" / "save" / "000008.ckpt").is_file()
