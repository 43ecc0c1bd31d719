"""The loop: epochs of batches, with the callbacks around them. What else a training does is a callback's work."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from luxmeter.train.position import Phase

if TYPE_CHECKING:
    from luxmeter.train.callbacks.callback import Hooks
    from luxmeter.train.trainer import Trainer


def train(trainer: Trainer, hooks: Hooks) -> None:
    """From where the trainer stands to its end."""
    at = trainer.position
    hooks.call("before_train", trainer)
    while not trainer.is_over():
        if at.phase is Phase.BATCHES:
            hooks.call("before_epoch", trainer)
            train_epoch(trainer, hooks)
            if at.cut:
                break
            at.phase = Phase.EPOCH_END
        hooks.call("after_epoch", trainer, trainer.meter)
        at.next_epoch()
    hooks.call("after_train", trainer)


def train_epoch(trainer: Trainer, hooks: Hooks) -> None:
    """The batches that are left of this epoch."""
    at, params, device, pace = trainer.position, trainer.params, trainer.device, trainer.pace
    train_batch, before, after = trainer.step, hooks["before_batch"], hooks["after_batch"]
    if not at.idx:
        trainer.meter.reset()
    asked = perf_counter()
    for batch in trainer.batches("train"):
        given = perf_counter()
        for hook in before:
            hook(trainer, batch)
        result = train_batch(at.eidx, at.idx, at.global_step, batch, params, device)
        at.batch_done = True  # what is saved from here on goes on behind this batch
        for hook in after:
            hook(trainer, result)
        at.next_batch()
        if trainer.ends_epoch():
            break
        ended = perf_counter()
        pace.add(given - asked, ended - asked)
        asked = ended


def evaluate(trainer: Trainer, hooks: Hooks, which: str) -> None:
    """One pass over the data of `which`, "eval" or "test", into the trainer's meter for it."""
    batch_of, meter, at = trainer.batch_method(which), trainer.meters[which], trainer.position
    meter.reset()
    hooks.call(f"before_{which}", trainer)
    for idx, batch in enumerate(trainer.batches(which)):
        meter.update(batch_of(at.eidx, idx, at.done, batch, trainer.params, trainer.device))
        trainer.interrupt_if_asked()
    hooks.call(f"after_{which}", trainer, meter)
