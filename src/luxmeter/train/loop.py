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
    training.exchange()
    while not training.is_over():
        if at.phase is Phase.BATCHES:
            training.merged = None
            hooks.call("before_epoch", trainer)
            if training.replicas is not None:
                training.replicas.renew_if_changed()
            train_epoch(trainer, training)
            if at.cut:
                break
            at.phase = Phase.EPOCH_END
        hooks.call_rest("after_epoch", at.called, trainer, training.merge_meter())
        at.next_epoch()
        training.exchange()
        training.interrupt_if_asked()
    training.merge_meter()
    if training.in_step is not None:
        same_buffers(trainer)
    hooks.call("after_train", trainer)
    training.exchange()
    training.interrupt_if_asked()


def train_epoch(trainer: Trainer, training: Training) -> None:
    """The batches that are left of this epoch."""
    at, hooks, pace = training.position, training.callbacks.hooks, training.pace
    train_batch, params, device = trainer.batch_method("train"), trainer.params, trainer.device
    if not at.idx:
        training.meter.reset()
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
    is_alone = training.in_step is None
    if not is_alone:
        same_buffers(trainer)
    eval_batch, params, device = trainer.batch_method(which), trainer.params, trainer.device
    meter.reset()
    hooks.call(f"before_{which}", trainer)
    with closing(training.batches(which, device)) as batches:
        for idx, batch in enumerate(batches):
            result = eval_batch(at.begun_epoch, idx, at.done, batch, params, device)
            meter.update(metrics_in(result, trainer, which), weight=samples_in(batch) or 1)
            if is_alone:
                training.interrupt_if_asked()
    if training.shards is not None:
        training.shards.help_others()
    if not is_alone:  # ranks may have had different numbers of batches: all end here
        meter = training.meters[which] = meter.merge_ranks()
        training.exchange()
        training.interrupt_if_asked()
    hooks.call(f"after_{which}", trainer, meter)
