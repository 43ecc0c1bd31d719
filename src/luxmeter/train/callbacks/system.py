"""How fast a training goes, as metrics of its run."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from luxmeter.errors import UsageError
from luxmeter.store import records
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.data import samples_in

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class SystemMetrics(Callback):
    """Logs, every `every` batches and at the ends of epochs, what the run does not know by itself, by the training's step.

    `system/samples_per_s`, `system/batches_per_s`, `system/data_share` (of the time, spent on waiting for data) and on an
    accelerator `system/peak_memory_bytes` (by torch, since the last time). CPU, memory and GPUs the run samples anyway.
    `samples(batch)` says how many there are in a batch; without it, the length of its first tensor.
    """

    priority = 98

    def __init__(
        self,
        every: int = 50,
        *,
        samples: Callable[[Any], int] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise UsageError("system-every", f"every={every!r} means never.", "Give 1 or more.")
        if samples is not None and not callable(samples):
            raise UsageError(
                "system-samples",
                f"samples={samples!r} cannot be called.",
                "Give a function of a batch: samples=lambda batch: len(batch[0]).",
            )
        self.every = every
        self._samples_of = samples or samples_in
        self._clock = clock
        self._mark = 0.0  # when the last batch ended
        self._clear()

    def before_epoch(self, trainer: Trainer) -> None:
        """Begin to measure: what lies between epochs does not count."""
        self._mark = self._clock()

    def before_batch(self, trainer: Trainer, batch: Any) -> None:
        """Until here data was waited for."""
        now = self._clock()
        self._waited_s += now - self._mark
        self._total_s += now - self._mark
        self._mark = now
        self._samples += self._samples_of(batch)

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """One more; log if it is time."""
        now = self._clock()
        self._total_s += now - self._mark
        self._mark = now
        self._batches += 1
        if self._batches >= self.every:
            self._log(trainer)

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Log the rest."""
        self._log(trainer)

    def after_train(self, trainer: Trainer) -> None:
        """Log the rest of an epoch that was cut."""
        self._log(trainer)

    def _log(self, trainer: Trainer) -> None:
        if not self._batches or self._total_s <= 0:
            return
        found = {
            "batches_per_s": self._batches / self._total_s,
            "data_share": self._waited_s / self._total_s,
        }
        if self._samples:
            found["samples_per_s"] = self._samples / self._total_s
        if trainer.device.type not in ("cpu", "meta"):
            device = torch.get_device_module(trainer.device.type)
            if hasattr(device, "max_memory_allocated"):
                found["peak_memory_bytes"] = float(device.max_memory_allocated(trainer.device))
                device.reset_peak_memory_stats(trainer.device)
        self._clear()
        if trainer.experiment is not None:
            values = {records.SYSTEM + name: value for name, value in found.items()}
            trainer.experiment.log(values, step=trainer.position.done)

    def _clear(self) -> None:
        self._batches = self._samples = 0
        self._waited_s = self._total_s = 0.0
