"""The loop: epochs of batches, with the callbacks around them. What else a training does is a callback's work."""

from __future__ import annotations

from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING

from luxmeter.train.callbacks.metrics import metrics_in
from luxmeter.train.data import samples_in
from luxmeter.train.parallel import same_buffers
from luxmeter.train.position import Phase

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer
    from luxmeter.train.training import Training


def train(trainer: Trainer, training: Training) -> None:
    """From where the trainer stands to its end."""
    at, hooks = training.position, training.callbacks.hooks
    hooks.call("before_train", trainer)
    training.look_around()
    while not training.is_over():
        if at.phase is Phase.BATCHES:
            hooks.call("before_epoch", trainer)
            training.begin_epoch()
            train_epoch(trainer, training)
            if at.cut:
                break
            at.phase = Phase.EPOCH_END
        hooks.call_rest("after_epoch", at.called, trainer, training.merge_meter())
        at.next_epoch()
        training.look_around()
    training.merge_meter()
    same_buffers(trainer)
    hooks.call("after_train", trainer)
    training.look_around()


def train_epoch(trainer: Trainer, training: Training) -> None:
    """The batches that are left of this epoch."""
    at, hooks, pace = training.position, training.callbacks.hooks, training.pace
    train_batch, params, device = trainer.batch_method("train"), trainer.params, trainer.device
    asked = perf_counter()
    with closing(training.batches("train", device)) as batches:
        for batch in batches:
            given = perf_counter()
            at.in_batch = True
            for hook in hooks["before_batch"]:
                hook(trainer, batch)
            result = train_batch(at.eidx, at.idx, at.global_step, batch, params, device)
            at.batch_done = True
            for hook in hooks["after_batch"]:
                hook(trainer, result)
            at.next_batch()
            if training.ends_epoch():
                break
            ended = perf_counter()
            pace.add(given - asked, ended - asked)
            asked = ended


def evaluate(trainer: Trainer, training: Training, which: str) -> None:
    """One pass over the data of `which`, "eval" or "test"; its averages count each sample alike."""
    at, hooks, meter = training.position, training.callbacks.hooks, training.meters[which]
    eval_batch, params, device = trainer.batch_method(which), trainer.params, trainer.device
    same_buffers(trainer)
    meter.reset()
    hooks.call(f"before_{which}", trainer)
    with closing(training.batches(which, device)) as batches:
        for idx, batch in enumerate(batches):
            result = eval_batch(at.begun_epoch, idx, at.done, batch, params, device)
            meter.update(metrics_in(result, trainer, which), weight=samples_in(batch) or 1)
            training.interrupt_if_alone()
    hooks.call(f"after_{which}", trainer, training.merge_evaluation(which))
