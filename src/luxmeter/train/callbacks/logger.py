"""The lines of a training's log, as users of mmlab know them, and one that refreshes itself in between."""

from __future__ import annotations

import resource
import sys
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.experiment import AvgMeter
    from luxmeter.train.trainer import Trainer

_REFRESH_S = 0.2


class LoggerCallback(Callback):
    """A line every `every` batches (without it, the trainer's log_every): where it stands, and what train_batch returned.

    Epoch, batch of how many, lr, eta, time, data time, memory, averages of the last few batches. On a terminal a line that
    refreshes itself stands below. 0: lines at the ends of epochs and evaluations alone.
    """

    priority = 55  # an epoch's own line before those of its evaluation

    def __init__(self, every: int | None = None) -> None:
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 0):
            raise UsageError(
                "log-every", f"every={every!r} is no number of batches.", "Give a whole number from 0 on."
            )
        self.every = every
        self._every = 0
        self._optimizers: list[torch.optim.Optimizer] = []
        self._refreshes = False
        self._drawn = self._began = self._paused_before_s = 0.0
        self._done_before = 0

    def before_train(self, trainer: Trainer) -> None:
        """Begin to measure."""
        self._optimizers = trainer.optimizers
        self._every = trainer.options.log_every if self.every is None else self.every
        self._refreshes = not trainer.options.quiet and sys.stdout is not None and sys.stdout.isatty()
        self._drawn = self._began = perf_counter()
        self._done_before = trainer.position.global_step
        self._paused_before_s = trainer.pace.paused_s
        trainer.pace.take()

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """A line, if it is time."""
        if self._every and (trainer.position.idx + 1) % self._every == 0:
            trainer.logger.info(self.line(trainer))
        elif self._refreshes and perf_counter() - self._drawn > _REFRESH_S:
            self._drawn = perf_counter()
            trainer.logger.inline(self.line(trainer, takes=False))

    def after_epoch(self, trainer: Trainer, meter: AvgMeter) -> None:
        """The epoch's averages."""
        if len(meter):
            trainer.logger.info(f"Epoch(train) [{trainer.position.eidx}]  {averages(meter)}")

    def after_eval(self, trainer: Trainer, meter: AvgMeter) -> None:
        """The averages of the evaluation."""
        trainer.logger.info(f"Epoch(eval) [{trainer.position.begun_epoch}]  {averages(meter)}")

    def after_test(self, trainer: Trainer, meter: AvgMeter) -> None:
        """The averages of the test."""
        trainer.logger.info(f"Epoch(test) [{trainer.position.begun_epoch}]  {averages(meter)}")

    def after_train(self, trainer: Trainer) -> None:
        """How long it took."""
        if trainer.position.cut:
            self.after_epoch(trainer, trainer.meter)
        batches = trainer.position.global_step - self._done_before
        took = timedelta(seconds=round(perf_counter() - self._began))
        trainer.logger.info(f"Trained on {batches} batch{'es' * (batches != 1)} in {took}")

    def line(self, trainer: Trainer, *, takes: bool = True) -> str:
        """Where the training stands. `takes`: times are counted anew from here."""
        at, pace, total = trainer.position, trainer.pace, trainer.data.length("train")
        batches = pace.batches
        batch_s, data_s = (
            pace.take() if takes else (pace.total_s / max(1, batches), pace.data_s / max(1, batches))
        )
        width = len(str(total)) if total else 0
        of = f"/{total}" if total else ""
        parts = [f"Epoch(train) [{at.eidx}][{at.idx + 1:>{width}}{of}]"]
        if rates := [f"{group['lr']:.4e}" for one in self._optimizers for group in one.param_groups]:
            parts.append(f"lr: {' '.join(dict.fromkeys(rates))}")
        in_all = trainer.steps_in_all()
        if in_all is not None:
            done = at.done - self._done_before
            took_s = perf_counter() - self._began - pace.paused_s + self._paused_before_s
            left_s = took_s / max(1, done) * max(0, in_all - at.done)
            parts.append(f"eta: {timedelta(seconds=round(left_s))}")
        if batches:  # the one at hand is not over yet
            parts += [f"time: {batch_s:.4f}", f"data_time: {data_s:.4f}"]
        parts.append(f"memory: {memory_mib(trainer.device)}")
        return "  ".join([*parts, averages(trainer.meter, recent=True)])


def averages(meter: AvgMeter, *, recent: bool = False) -> str:
    """`loss: 0.3012  acc: 91.20%`: averages of all, or of the last few; as the meter was told to print them."""
    return "  ".join(f"{name}: {meter.shown(name, recent=recent)}" for name in meter)


def memory_mib(device: torch.device) -> int:
    """The most that was in use: on the accelerator, or by the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak / (2**20 if sys.platform == "darwin" else 2**10))
