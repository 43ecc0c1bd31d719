"""Callbacks are plain objects: called in an order that can be seen, as often as they ask for, and named when they fail."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from small_training import Small

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.train import EarlyStop, EvalCallback, LoggerCallback, ModelCheckpoint, NaNGuard, Optimization
from luxmeter.train.callbacks.callback import HOOKS, Callbacks
from luxmeter.train.position import Position

TRAINING = ["setup", "before_train", *["before_epoch", *["before_batch", "after_batch"] * 2, "after_epoch"] * 2, "after_train"]  # fmt: skip


class Short(Small):
    """Two batches an epoch."""

    def initial_trainer(self, params: Any) -> None:
        super().initial_trainer(params)
        data = list(lux.DataLoader([(self.data["train"].dataset[i]) for i in range(8)], batch_size=4))  # type: ignore[attr-defined]
        self.regist_databundler(train=data, eval=data[:1], test=data[:1])


class Listens:
    """Has every hook, and notes what it was called with."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, tuple[Any, ...]]] = []
        for name in HOOKS:
            setattr(self, name, lambda trainer, *given, name=name: self._hear(name, trainer, given))

    def _hear(self, name: str, trainer: Any, given: tuple[Any, ...]) -> None:
        self.heard.append((name, trainer.position.global_step, given))

    def names(self, *wanted: str) -> list[str]:
        return [name for name, *_ in self.heard if not wanted or name in wanted]


def short(**options: Any) -> Short:
    trainer = Short({"epoch": 2}, quiet=True, checkpoint=False, **options)
    trainer.initial_exp("hooks")
    return trainer


def test_every_hook_of_a_plain_object_with_what_stands_behind_it() -> None:
    trainer, listens = short(), Listens()
    trainer.callbacks.add(listens, priority=100)
    trainer.train()
    assert listens.names(*set(TRAINING)) == TRAINING
    assert listens.names("before_eval", "after_eval") == ["before_eval", "after_eval"] * 2
    given = {name: what for name, _, what in listens.heard}
    assert len(given["before_batch"][0]) == 2 and given["after_batch"][0].ndim == 0
    assert given["after_epoch"] == (trainer.meter,) and given["after_eval"] == (trainer.meters["eval"],)
    trainer.test()
    assert listens.names()[-2:] == ["before_test", "after_test"]
    assert {len(what) for name, _, what in listens.heard if not HOOKS[name]} == {0}


def test_lower_priorities_first_then_the_order_of_hooking() -> None:
    order: list[str] = []

    class Named(lux.Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def before_train(self, trainer: Any) -> None:
            order.append(self.name)

    trainer = short()
    for name, priority in (("c", None), ("a", 5), ("d", 50), ("b", 10.5), ("e", 51)):
        Named(name).hook(trainer, priority=priority)  # type: ignore[arg-type]
    trainer.train(steps=1)
    assert order == ["a", "b", "c", "d", "e"]
    lines = str(trainer.callbacks).splitlines()
    assert lines[0].split() == ["priority", "callback", "called"]
    shown = [line.split()[:2] for line in lines[1:]]
    assert shown == sorted(shown, key=lambda pair: float(pair[0])) and ["5", "a"] in shown
    assert "10  Optimization    setup, before_train, after_train" in str(trainer.callbacks)


def test_every_and_once_are_shown_and_keep_their_rhythm() -> None:
    trainer = short()
    second, once, evals = Listens(), Listens(), Listens()
    trainer.callbacks.add(second, every=2)
    trainer.callbacks.add(once, every=3, once=True)
    trainer.callbacks.add(evals, every=2)
    trainer.train()
    assert [step for name, step, _ in second.heard if name == "after_batch"] == [
        1,
        3,
    ]  # the second, the fourth
    assert second.names("before_epoch", "after_epoch") == [
        "before_epoch",
        "after_epoch",
    ]  # of the second epoch
    assert evals.names("after_eval") == ["after_eval"]
    assert once.names("after_batch") == ["after_batch"] and not once.names("after_epoch")
    assert second.names("before_train", "after_train") == ["before_train", "after_train"]  # never filtered
    trainer.train(epochs=4)
    assert [step for name, step, _ in once.heard if name == "after_batch"] == [2]
    assert once.names("after_epoch") == ["after_epoch"]  # the third
    assert "once      3  setup" in str(trainer.callbacks)


def test_a_resumed_training_keeps_the_rhythm() -> None:
    def trained(steps: int | None, resume: bool) -> tuple[Listens, Listens]:
        trainer = Short({"epoch": 4}, quiet=True)
        trainer.initial_exp("./rhythm")
        third, once = Listens(), Listens()
        trainer.callbacks.add(third, every=3)
        trainer.callbacks.add(once, once=True)
        trainer.train(epochs=4, steps=steps, resume=resume)
        trainer.close()
        return third, once

    first, first_once = trained(4, False)
    second, second_once = trained(None, True)
    steps = [step for name, step, _ in first.heard + second.heard if name == "after_batch"]
    assert steps == [2, 5]
    evals = first.names("after_eval") + second.names("after_eval")
    assert len(evals) == 1  # the third of four
    assert first_once.names("after_batch", "after_eval") == ["after_batch", "after_eval"]
    assert not second_once.names("after_batch", "after_eval")


def test_hooked_and_unhooked_while_training() -> None:
    trainer, late = short(), Listens()

    class Swaps(lux.Callback):
        def after_batch(self, trainer: Any, result: Any) -> None:
            if trainer.position.global_step == 1:
                trainer.callbacks.add(late, once=True)
                self.unhook(trainer)

    swaps = Swaps().hook(trainer)
    trainer.train()
    assert swaps not in trainer.callbacks
    assert [step for name, step, _ in late.heard if name == "after_batch"] == [2]
    with pytest.raises(UsageError, match=r"Swaps is not hooked\. Hooked are Optimization, Metrics, "):
        swaps.unhook(trainer)


def test_a_hooked_callback_takes_the_place_of_the_trainers_own() -> None:
    class Mine(Optimization):
        pass

    trainer = short()
    assert type(trainer.callbacks.find(Optimization)) is Optimization
    mine = Mine(accumulate=2).hook(trainer)
    LoggerCallback(7).hook(trainer)
    assert [one for one in trainer.callbacks if isinstance(one, Optimization)] == [mine]
    assert [one.every for one in trainer.callbacks if isinstance(one, LoggerCallback)] == [7]
    before = Short({"epoch": 1}, quiet=True, checkpoint=False)
    eval_only = EvalCallback(2, 0).hook(before)  # before initial_callback: that one is left out
    before.initialise()
    assert before.callbacks.find(EvalCallback) is eval_only
    two = [ModelCheckpoint().hook(before), ModelCheckpoint(every_epochs=2).hook(before)]
    assert [one for one in before.callbacks if isinstance(one, ModelCheckpoint)] == two
    assert list(before.callbacks.stateful())[-3:] == ["ModelCheckpoint", "ModelCheckpoint#2", "Control"]


def test_what_cannot_be_hooked() -> None:
    class Misspelt(lux.Callback):
        def after_epochs(self, trainer: Any, meter: Any) -> None: ...

    callbacks, good = Callbacks(), Listens()
    callbacks.add(good)
    for callback, settings, told in (
        (Misspelt, {}, r"Misspelt is a class; .*Hook Misspelt\(\)"),
        (Misspelt(), {}, "has none of the methods.*Did you mean 'after_epoch'"),
        (SimpleNamespace(x=1), {}, "They are setup, before_train"),
        (good, {}, "Listens is hooked already"),
        (Listens(), {"every": 0}, "every=0 means never"),
        (Listens(), {"every": True}, "every=True means never"),
        (Listens(), {"priority": "high"}, "The priority of Listens is 'high'.*lower ones are called first"),
    ):
        with pytest.raises(UsageError, match=told):
            callbacks.add(callback, **settings)
    assert len(callbacks) == 1 and str(Callbacks()).startswith("no callbacks yet")


class Breaks(lux.Callback):
    """Fails in the hook that it is told to."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._break)

    def _break(self, *_: Any) -> None:
        self.deeper()

    def deeper(self) -> None:
        raise ZeroDivisionError("in a callback")


@pytest.mark.parametrize("hook", ["setup", "before_epoch", "after_batch", "after_eval", "after_train"])
def test_an_error_names_its_callback_and_the_users_frames(hook: str) -> None:
    trainer = short()
    Breaks(hook).hook(trainer)
    with pytest.raises(ZeroDivisionError) as caught:
        trainer.train()
    assert f"It came from the callback Breaks.{hook}." in caught.value.__notes__
    shown = "".join(traceback.format_exception(caught.value))
    assert "self.deeper()" in shown and "hook(trainer" not in shown and "hook(*given)" not in shown
    run = trainer.run
    whole = (run.folder / "files" / "traceback.txt").read_text()
    assert run.state == "failed" and "src/luxmeter/train" in whole and "self.deeper()" in whole
    assert f"The whole traceback: {run.folder / 'files' / 'traceback.txt'}" in shown
    assert run.error is not None and "in a callback" in run.error


@pytest.mark.parametrize(
    ("callback", "named"),
    [
        (EarlyStop("eval/acx", "max"), "EarlyStop.after_eval"),
        (ModelCheckpoint("eval/acx", "max"), "ModelCheckpoint.after_eval"),
        (ModelCheckpoint("test/acx"), "ModelCheckpoint.after_test"),
        (EarlyStop("test/acc"), "EarlyStop.before_train"),
        (NaNGuard("los"), "NaNGuard.after_batch"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_an_error_of_our_own_callbacks_is_a_message(callback: Any, named: str) -> None:
    class Watched(Small):
        def initial_callback(self) -> None:
            EvalCallback(1, 1).hook(self)
            callback.hook(self)

        def initial_trainer(self, params: Any) -> None:
            super().initial_trainer(params)
            if named == "EarlyStop.before_train":
                self.data.register({"test": None})

        def train_batch(self, *given: Any) -> Any:
            return {"loss": super().train_batch(*given)}

    trainer = Watched({"epoch": 1}, quiet=True)
    with pytest.raises(UsageError) as caught:
        trainer.train()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.filename for frame in frames] == [__file__]  # trainer.train() above
    assert f"It came from the callback {named}." in caught.value.__notes__
    assert named.partition(".")[0] in str(caught.value)
    assert "src/luxmeter/train" in (trainer.run.folder / "files" / "traceback.txt").read_text()


def test_what_an_error_of_ours_came_of_is_short_too() -> None:
    class Named(Small):
        def eval_batch(self, *_: Any) -> Any:
            return {"acc": "good"}

    trainer = Named({"epoch": 1}, quiet=True)
    EarlyStop("eval/acc").hook(trainer)
    with pytest.raises(UsageError, match=r"watches 'eval/acc', which is 'good'") as caught:
        trainer.train()
    shown = "".join(traceback.format_exception(caught.value))
    assert "ValueError: could not convert" in shown and "src/luxmeter" not in shown


def test_an_error_of_torch_in_our_callback_says_where_it_is_told() -> None:
    class Again(Short):
        def train_batch(self, *given: Any) -> Any:
            self.kept = getattr(self, "kept", None) or super().train_batch(*given)
            return self.kept

    trainer = Again({"epoch": 1}, quiet=True)
    with pytest.raises(RuntimeError, match="backward through the graph a second time") as caught:
        trainer.train()
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 1
    assert "It came from the callback Optimization.after_batch." in caught.value.__notes__
    assert any(note.startswith("The whole traceback: ") for note in caught.value.__notes__)


def test_an_error_of_the_trainer_blames_no_callback() -> None:
    class Fails(Short):
        def eval_batch(self, *_: Any) -> Any:
            raise KeyError("not in a callback")

    trainer = Fails({"epoch": 1}, quiet=True, checkpoint=False)
    with pytest.raises(KeyError) as caught:
        trainer.train()  # inside EvalCallback.after_epoch
    assert not any("callback" in note for note in caught.value.__notes__)
    assert any(note.startswith("It was eval batch 0 of epoch 1: ") for note in caught.value.__notes__)


def test_the_whole_traceback_can_be_shown() -> None:
    trainer = short(full_traceback=True)
    Breaks("after_batch").hook(trainer)
    with pytest.raises(ZeroDivisionError) as caught:
        trainer.train()
    assert "loop.train(self, state)" in "".join(traceback.format_exception(caught.value))


def test_a_callback_that_fails_on_an_exception_hides_nothing() -> None:
    trainer = short()
    Breaks("after_batch").hook(trainer)
    Breaks("on_exception").hook(trainer)
    heard = Listens()
    trainer.callbacks.add(heard, priority=99)
    with pytest.raises(ZeroDivisionError) as caught:
        trainer.train()
    assert "Then Breaks#2.on_exception failed: ZeroDivisionError: in a callback" in caught.value.__notes__
    assert heard.names("on_exception") == ["on_exception"]
    assert trainer.run.state == "failed"


def test_positions_go_on_where_they_were() -> None:
    params = lux.Params()
    at = Position(params)
    at.next_batch()
    at.in_batch = at.batch_done = True
    assert at.state_dict() == {"eidx": 1, "idx": 2, "phase": "batches", "called": [], "global_step": 2}
    assert at.state_dict(epoch_done=True) == {
        "eidx": 2, "idx": 0, "phase": "batches", "called": [], "global_step": 2,
    }  # fmt: skip
    other = Position(lux.Params())
    other.load_state_dict(at.state_dict())
    assert repr(other) == "epoch 1, batch 2, step 2" and not other.batch_done
    assert (params.eidx, params.idx, params.global_step) == (1, 1, 1)
