"""A training that was stopped anywhere goes on bit by bit as if it had not been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from small_training import Small, same, saving, weights

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


_whole: dict[str, Small] = {}


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    yield
    _whole.clear()


def uninterrupted(kind: type[Small], options: dict[str, Any]) -> Small:
    """Trained in one go; once for each kind and options."""
    key = f"{kind.__name__} {kind.loader.__module__} {kind.workers} {options}"
    if key not in _whole:
        trainer = kind({"epoch": EPOCHS}, quiet=True, **options)
        trainer.initial_exp("./whole")
        trainer.train()
        trainer.close()
        _whole[key] = trainer
    return _whole[key]


def gone_on(kind: type[Small], options: dict[str, Any], source: Any = True) -> Small:
    """As another process would."""
    second = kind({"epoch": EPOCHS}, quiet=True, **options)
    second.initial_exp("./stopped")
    torch.rand(3)  # whatever was drawn before does not count
    second.train(resume=source)
    return second


def stopped_at(step: int, kind: type[Small], options: dict[str, Any]) -> Small:
    """Trained to a step, then gone on with in another object."""
    first = kind({"epoch": EPOCHS}, quiet=True, **options)
    first.initial_exp("./stopped")
    first.train(epochs=EPOCHS, steps=step)
    first.close()
    second = gone_on(kind, options)
    assert first.losses + second.losses == uninterrupted(kind, options).losses
    return second


@pytest.mark.parametrize(
    ("options", "steps"), [("all", range(1, STEPS)), ("plain", (3, 6)), ("float16", (5, 8))]
)
def test_every_step(options: str, steps: Sequence[int]) -> None:
    """From a checkpoint that was saved behind each of the steps, as if the process had been killed there."""

    whole = uninterrupted(Small, OPTIONS[options])
    assert len(set(whole.losses)) == STEPS
    first = saving(Small)({"epoch": EPOCHS}, quiet=True, max_to_keep=None, **OPTIONS[options])
    first.initial_exp("./stopped")
    first.train()
    first.close()
    assert first.losses == whole.losses  # saving changes nothing
    saved = first.saver.find_checkpoints()
    assert len(saved) == STEPS
    for step in steps:
        second = gone_on(Small, OPTIONS[options], saved[step - 1])
        assert second.losses == whole.losses[step:]
        assert same(weights(second), weights(whole)), step
        assert second.meter.to_dict() == pytest.approx(whole.meter.to_dict(), abs=0)
        assert second.meters["eval"].to_dict() == whole.meters["eval"].to_dict()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_stopped_inside_and_between_epochs(options: dict[str, Any]) -> None:
    for step in (6, 7):
        assert same(weights(stopped_at(step, Small, options)), weights(uninterrupted(Small, options))), step


@pytest.mark.parametrize(("workers", "step"), [(1, 8), (2, 6), (3, 3), (4, 11)])
def test_with_workers(workers: int, step: int) -> None:
    kind = type("Workers", (Small,), {"workers": workers})
    whole = uninterrupted(Small, OPTIONS["all"])  # the number of workers changes nothing
    assert same(weights(stopped_at(step, kind, OPTIONS["all"])), weights(whole))


@pytest.mark.parametrize(("workers", "steps"), [(0, (2, 6, 9)), (2, (9,))])
def test_a_loader_of_torch_is_read_again(workers: int, steps: tuple[int, ...]) -> None:
    kind = type("Torchs", (Small,), {"loader": torch.utils.data.DataLoader, "workers": workers})
    for step in steps:
        assert same(weights(stopped_at(step, kind, {})), weights(uninterrupted(kind, {}))), step


def test_what_callbacks_draw_before_the_first_batch_does_not_count() -> None:
    class Drawing(Small):
        draws = False

        def initial_callback(self) -> None:
            super().initial_callback()
            if self.draws:
                self.callbacks.add(Draws())

    class Draws:
        def before_train(self, trainer: Any) -> None:
            torch.rand(5)

        before_epoch = before_train

    first = Drawing({"epoch": EPOCHS}, quiet=True)
    first.initial_exp("./stopped")
    first.train(epochs=EPOCHS, steps=4)
    first.close()
    Drawing.draws = True
    first_epoch = gone_on(Drawing, {}).losses[:2]
    assert first_epoch == uninterrupted(Small, {}).losses[4:6]


def test_schedules_and_early_ends() -> None:
    class Scheduled(Small):
        def initial_callback(self) -> None:
            super().initial_callback()
            LRSchedule(lux.Params.SCHE.Cos(start=1, end=0.1, right=12)).hook(self)

    for step in (5, 6):
        assert same(weights(stopped_at(step, Scheduled, {})), weights(uninterrupted(Scheduled, {}))), step


@pytest.mark.parametrize("options", [{"schedule": "epoch"}, {}], ids=["by an option", "by hand"])
def test_torchs_scheduler_at_an_epochs_end(options: Any, recwarn: pytest.WarningsRecorder) -> None:
    """The optimizer's steps were those of another process: torch need not miss them."""

    class ByHand(lux.Callback):
        def after_epoch(self, trainer: Any, meter: Any) -> None:
            trainer.scheduler.step()

    class Steps(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.optim, 1, gamma=0.5)
            if not options:
                ByHand().hook(self)

    assert same(weights(stopped_at(6, Steps, options)), weights(uninterrupted(Steps, options)))
    assert not [str(one.message) for one in recwarn if "lr_scheduler" in str(one.message)]


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


def test_the_last_run_of_this_name(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setenv("LUXMETER_STORE_URL", "postgresql://lux@127.0.0.1:1/away")  # it is found without
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
    for source in (ident, path, first.saver.folder):
        second = Small({"epoch": EPOCHS}, quiet=True)
        second.initial_exp("other")
        second.train(resume=source)
        assert same(weights(second), weights(uninterrupted(Small, {})))
    with pytest.raises(CheckpointError, match=r"There is no file nowhere\.ckpt"):
        second.load_checkpoint("nowhere.ckpt")


def test_a_folder_without_checkpoints_begins_at_the_start() -> None:
    uninterrupted(Small, {})
    elsewhere = Small({"epoch": EPOCHS}, quiet=True)
    elsewhere.initial_exp("./elsewhere")  # of the same name, in another folder
    elsewhere.train(steps=1, resume=True)
    assert len(elsewhere.losses) == 1


def test_a_checkpoint_of_another_model_changes_nothing() -> None:
    first = Small({"epoch": 1}, quiet=True)
    first.initial_exp("./one")
    first.train()
    first.close()

    class Wider(Small):
        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            self.model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))
            self.optim = torch.optim.AdamW(self.model.parameters())

    second = Wider({"epoch": 1}, quiet=True)
    second.initial_exp("./two")
    before, path = weights(second), first.saver.find_checkpoints()[-1]
    with pytest.raises(CheckpointError) as caught:
        second.load_checkpoint(path)
    text = str(caught.value)
    assert f"{path} holds another model than 'model' (Sequential)" in text
    assert "missing there: 2.weight, 2.bias" in text and "unknown here: 1.weight, 1.bias" in text
    assert "of another shape: 0.weight ((8, 6) there, (9, 6) here)" in text and "Nothing was changed" in text
    assert same(before, weights(second))
    with pytest.raises(CheckpointError, match="checkpoint-of-another-model"):
        second.train(resume=path)
    assert second.run.state == "failed" and same(before, weights(second)) and second.position.done == 0


def test_a_checkpoint_of_another_optimizer_changes_nothing() -> None:
    first = Small({"epoch": 1}, quiet=True)
    first.train()
    path = first.saver.find_checkpoints()[-1]
    for make, told in (
        (
            lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            "it has no dampening, momentum, nesterov",
        ),
        (
            lambda model: torch.optim.AdamW(list(model.parameters())[2:]),
            r"\[6\] parameters in its groups there, \[4\] here",
        ),
    ):

        class Other(Small):
            def initial_trainer(self, params: Any) -> None:
                super().initial_trainer(params)
                self.optim = make(self.model)

        second = Other({"epoch": 1}, quiet=True)
        second.initial_exp("other")
        before = weights(second)
        with pytest.raises(CheckpointError, match=told):
            second.load_checkpoint(path)
        assert same(before, weights(second))
