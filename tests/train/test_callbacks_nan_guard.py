"""NaNGuard: it stops in time, and what it leaves makes the step again."""

from __future__ import annotations

import math
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from broken_training import Broken
from small_training import Small, same, weights

import luxmeter as lux
from luxmeter.errors import CheckpointError, LuxmeterError, UsageError
from luxmeter.train import FailedStep, NaNGuard
from luxmeter.train.nan_origin import StopAtNaN, check_given

pytestmark = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")


def failed(guard: NaNGuard, kind: str = "forward", **params: Any) -> tuple[Broken, Path, LuxmeterError]:
    """A training that NaNGuard ended, and the folder it left."""
    options = params.pop("options", {})
    trainer = Broken({"epoch": 3, "kind": kind, **params}, quiet=True, **options)
    trainer.initial_exp("broken")
    guard.hook(trainer)
    with pytest.raises(LuxmeterError) as caught:
        trainer.train()
    assert caught.value.slug == "loss-not-finite", caught.value
    [folder] = (trainer.run.folder / "files").glob("nan-*")
    return trainer, folder, caught.value


def replayed(folder: Path, *words: str) -> pytest.ExceptionInfo[Exception]:
    """What the script raises, run in this process."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises((LuxmeterError, RuntimeError)) as caught:
        patch.setattr(sys, "argv", ["replay.py", *words])
        patch.setattr(sys, "path", list(sys.path))
        runpy.run_path(str(folder / "replay.py"), run_name="__main__")
    return caught


def lines_of(caught: pytest.ExceptionInfo[Exception]) -> list[str]:
    return [
        str(entry.statement).strip()
        for entry in caught.traceback
        if Path(entry.path).name == "broken_training.py"
    ]


def test_the_script_makes_the_step_again() -> None:
    trainer, folder, error = failed(NaNGuard(), options={"clip_norm": 1.0})
    assert error.what == "The loss of step 8 (epoch 2, batch 2) is nan."
    assert f"python {folder}/replay.py makes the step again" in str(error)
    assert "It came from the callback NaNGuard.after_batch." in error.__notes__
    assert trainer.run.state == "failed" and "nan-000008/replay.py" in trainer.run.files
    assert (
        math.isnan(trainer.run.metric("train/loss").values[-1]) and len(trainer.run.metric("train/loss")) == 9
    )
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())
    done = subprocess.run(
        [sys.executable, str(folder / "replay.py")], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 1
    assert re.search(
        r'broken_training.py", line \d+, in broken\n    return torch.log\(out - 2\)', done.stderr
    )
    assert "torch.log made 2 of 2 values nan, out of (2, 1) float32 from -" in done.stderr
    assert "clip_norm=1.0" in (folder / "replay.py").read_text()


def test_it_is_the_very_step(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, folder, _ = failed(NaNGuard(exact=True))
    made: list[Broken] = []
    initial = Broken.initial_trainer
    monkeypatch.setattr(
        Broken, "initial_trainer", lambda self, params: (made.append(self), initial(self, params))[1]
    )
    replayed(folder)
    assert made[0].seen == trainer.seen[8:]  # the same weights, batch, dropout, and draws of python and numpy
    replayed(folder, "--from-checkpoint")
    assert made[1].seen == trainer.seen[6:]


def test_without_exact_torchs_draws_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, folder, _ = failed(NaNGuard())
    step = FailedStep(folder)
    assert step.batch.shape == (2, 4) and step.params.kind == "forward"
    made = Broken(step.params, quiet=True)
    with pytest.raises(LuxmeterError, match=r"torch\.log made"):
        step.replay(made)
    assert same(weights(made), weights(trainer)) and made.position.global_step == 8


@pytest.mark.parametrize("exact", [False, True])
def test_a_train_batch_that_steps_itself(exact: bool) -> None:
    trainer, folder, _ = failed(NaNGuard(exact=exact), steps_itself=True)
    assert any(torch.isnan(weight).any() for weight in trainer.model.parameters())  # too late for those
    assert FailedStep(folder).record["is_exact"] is exact
    assert ("from the weights before it" in (folder / "replay.py").read_text()) is exact
    assert lines_of(replayed(folder))[-1].startswith("return torch.log(out - 2)")


def test_seldom_looks_find_the_step_later() -> None:
    _, folder, error = failed(NaNGuard(every=4))
    assert error.what == "The loss of step 11 (epoch 2, batch 5) is nan."
    caught = replayed(folder)
    assert (
        lines_of(caught)[-1].startswith("return torch.log")
        and "train batch 2 of epoch 2" in caught.value.__notes__[0]
    )


def test_gradients_before_they_are_applied() -> None:
    trainer, folder, error = failed(NaNGuard(gradients=True), "backward")
    assert error.what == "The norm of the gradients of step 8 (epoch 2, batch 2) is nan."
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        caught = replayed(folder)
    assert "SqrtBackward0' returned nan values" in str(caught.value) or "PowBackward0" in str(caught.value)
    assert any("torch.sqrt((out - out.detach())" in str(one.message) for one in said)  # where it was called
    _, _, error = failed(NaNGuard(gradients=True), "backward", options={"clip_norm": 1.0})
    assert error.what == "The norm of the gradients of step 8 (epoch 2, batch 2) is nan."
    trainer, folder, _ = failed(NaNGuard(gradients=True), "backward", steps_itself=True)
    assert FailedStep(folder).record["is_exact"]  # it was stopped before its step


@pytest.mark.parametrize("words", [(), ("--from-checkpoint",)])
def test_a_nan_that_is_in_the_batch(words: tuple[str, ...]) -> None:
    _, folder, error = failed(NaNGuard(exact=True), kind="data")
    assert re.search(r"loss of step \d+ .* is nan", error.what)
    caught = replayed(folder, *words)
    assert "The batch itself holds nan: 1 of the 8 values of its tensor 0, (2, 4) float32." in str(
        caught.value
    )
    assert not lines_of(caught), "the step was begun"


@pytest.mark.parametrize("words", [(), ("--from-checkpoint",)])
def test_a_nan_that_comes_of_an_infinity_in_the_batch(words: tuple[str, ...]) -> None:
    """Infinities may be meant: the call that made a nan of one is named, and the batch beside it."""
    _, folder, _ = failed(NaNGuard(exact=True), kind="infinite data")
    error = replayed(folder, *words).value
    assert "values nan, out of" in str(error)
    assert "The batch holds infinities: 1 of the 8 values of its tensor 0." in error.__notes__


def test_a_nan_that_is_in_the_weights() -> None:
    model = torch.nn.Linear(2, 2)
    check_given([torch.full((2,), -math.inf)], {"model": model})  # a mask
    with torch.no_grad():
        model.bias[1] = math.inf
    with pytest.raises(LuxmeterError, match=r"model\.bias holds values that are not finite before the step"):
        check_given([], {"model": model})


def test_what_is_infinite() -> None:
    _, folder, error = failed(NaNGuard(), "infinite")
    assert "is inf." in error.what or "is -inf." in error.what
    assert "values not finite, out of" in str(replayed(folder).value)


def test_a_batch_that_cannot_be_saved(capsys: pytest.CaptureFixture[str]) -> None:
    class Odd:
        def __init__(self, values: torch.Tensor) -> None:
            self.values = values

        def __truediv__(self, other: float) -> torch.Tensor:
            return self.values / other

    trainer = Broken({"epoch": 3, "kind": "forward"}, quiet=True)
    trainer.initial_exp("odd")
    trainer.regist_databundler(train=[Odd(torch.ones(2, 4))] * 6)
    NaNGuard().hook(trainer)
    with pytest.raises(LuxmeterError, match="is nan"):
        trainer.train()
    assert (
        "The step cannot be kept as it is: 'parts.failing.value.batch' of the state is a"
        in capsys.readouterr().out
    )
    step = FailedStep(trainer.run.folder / "files" / "nan-000008")
    assert step.batch is None
    # From the checkpoint on, with data of its own.
    with pytest.raises(LuxmeterError, match=r"torch\.log made"):
        step.replay(Broken(step.params, quiet=True))


def test_a_disk_that_is_full_hides_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("luxmeter.train.failed_step.save", full)
    trainer = Broken({"epoch": 3, "kind": "forward"}, quiet=True)
    trainer.initial_exp("full")
    NaNGuard().hook(trainer)
    with pytest.raises(LuxmeterError, match=r"The loss of step 8 .* is nan. Lower the learning rate"):
        trainer.train()
    assert "The step could not be kept: OSError" in capsys.readouterr().out


def test_a_sound_training_costs_a_checkpoint_alone() -> None:
    ways = {}
    for name, guards in {
        "without": [],
        "with": [NaNGuard(gradients=True)],
        "exact": [NaNGuard(exact=True)],
    }.items():
        trainer = Broken({"epoch": 1, "kind": "forward"}, quiet=True, max_to_keep=None)
        trainer.initial_exp(name)
        for guard in guards:
            guard.hook(trainer)
        trainer.train()
        steps = [int(Path(path).stem) for path in trainer.saver.find_checkpoints()]
        assert steps == ([0, 6] if guards else [6])
        assert not [file for file in trainer.run.files if file.startswith("nan")]
        assert not trainer.optim._optimizer_step_pre_hooks
        ways[name] = trainer
    assert all(same(weights(ways["without"]), weights(ways[name])) for name in ("with", "exact"))
    assert ways["without"].seen == ways["with"].seen == ways["exact"].seen


def test_nothing_to_look_at() -> None:
    for monitor, said in (("los", "Did you mean 'loss'?"), ("cost", "there: loss.")):
        trainer = Broken({"epoch": 1, "kind": "", "steps_itself": True}, quiet=True)
        trainer.initial_exp()
        NaNGuard(monitor).hook(trainer)
        with pytest.raises(UsageError, match="NaNGuard looks at") as caught:
            trainer.train()
        assert said in str(caught.value)
    with pytest.raises(UsageError, match="every=0"):
        NaNGuard(every=0)
    with pytest.raises(UsageError, match="exact=True looks at every batch"):
        NaNGuard(every=2, exact=True)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no step"):
        FailedStep(tmp_path)


def test_classes_of_scripts_and_of_functions(tmp_path: Path) -> None:
    class Inside(Broken):
        pass

    trainer = Inside({"epoch": 2, "kind": "forward"}, quiet=True, schedule=lux.Params.SCHE.Cos(right=10))
    trainer.initial_exp("inside")
    NaNGuard().hook(trainer)
    with pytest.raises(LuxmeterError, match="is nan"):
        trainer.train()
    folder = trainer.run.folder / "files" / "nan-000008"
    text = (folder / "replay.py").read_text()
    assert (
        'raise SystemExit("test_classes_of_scripts_and_of_functions.<locals>.Inside is no class of a file'
        in text
    )
    assert "# schedule=CosSchedule(" in text
    script = tmp_path / "its_own.py"
    script.write_text(
        "class A:\n    class B:\n        pass\nif __name__ == '__main__':\n    raise SystemExit\n"
    )
    step = FailedStep(folder)
    try:
        assert step.class_of(str(script), "A.B").__qualname__ == "A.B"
        with pytest.raises(UsageError, match=r"has no A\.C"):
            step.class_of(str(script), "A.C")
    finally:
        sys.modules.pop("replayed_its_own", None)
    with pytest.raises(UsageError, match="There is no file"):
        step.class_of(str(tmp_path / "gone.py"), "A")


def test_a_script_that_trains_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from broken_training import Broken\n"
        "class Mine(Broken):\n    pass\n"
        "trainer = Mine({'epoch': 1, 'kind': 'forward'}, quiet=True)\n"
        "trainer.initial_exp('unguarded')\ntrainer.train()\n"
    )
    _, folder, _ = failed(NaNGuard())
    step, before = FailedStep(folder), len(lux.runs())
    assert step.class_of(str(script), "Mine").__qualname__ == "Mine"
    assert len(lux.runs()) == before  # it was left where it would begin one
    sound = Broken({"epoch": 1, "kind": "forward"}, quiet=True)
    sound.train()
    assert sound.run.state == "running"  # and others are not
    sound.close()
    sys.modules.pop("replayed_unguarded", None)


def test_where_a_nan_arises() -> None:
    masked = torch.zeros(3, 3).masked_fill(torch.eye(3, dtype=torch.bool), float("-inf"))
    with StopAtNaN():
        torch.softmax(masked, 1)  # infinite on purpose
        torch.empty(100).fill_(float("nan")) + 1  # was nan before
        with pytest.raises(
            LuxmeterError, match=r"softmax made 3 of 9 values nan, out of \(3, 3\) float32 from -inf"
        ):
            torch.softmax(torch.full((3, 3), float("-inf")).triu(), 1).sum() + torch.softmax(
                torch.where(torch.arange(3)[:, None] == 1, float("-inf"), 0.0).expand(3, 3), 1
            )
        with pytest.raises(LuxmeterError, match="log_"):
            torch.full((2,), -1.0).log_()
    with StopAtNaN(inf=True), pytest.raises(LuxmeterError, match="made 2 of 2 values not finite"):
        torch.ones(2) / torch.zeros(2)


@pytest.mark.parametrize("loader", [lux.DataLoader, torch.utils.data.DataLoader])
def test_the_checkpoint_at_the_start_goes_on_as_the_one_before(loader: Any) -> None:
    class Guarded(Small):
        def initial_callback(self) -> None:
            NaNGuard().hook(self)

    kind = type("Guarded", (Guarded,), {"loader": loader})
    whole = kind({"epoch": 2}, quiet=True)
    whole.train()
    seen: list[float] = []
    for steps, source in (
        (8, False),
        (9, True),
        (12, 8),
    ):  # 8 is what the second one saved before its first batch
        trainer = kind({"epoch": 2}, quiet=True)
        trainer.initial_exp("./guarded")
        if source:
            torch.rand(steps)  # whatever was drawn before does not count
        trainer.train(epochs=2, steps=steps, resume=source)
        seen = [*seen[: 8 if steps > 8 else 0], *trainer.losses]
        trainer.close()
    assert seen == whole.losses and same(weights(trainer), weights(whole))
