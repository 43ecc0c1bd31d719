"""When a training is saved: by epochs, by batches, by the clock, by what is best, and before Ctrl-C ends it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class ModelCheckpoint(Callback):
    """Saves after every `every_epochs` epochs, or every `every_steps` batches; the newest max_to_keep stay.

    With `monitor` (`eval/acc`, `loss`) the best of them is kept besides, as a keypoint that later ones replace: `mode`
    says whether small or large is good. At the end of the training there is always a checkpoint.
    """

    priority = 90

    def __init__(
        self,
        monitor: str | None = None,
        mode: Literal["min", "max"] = "min",
        *,
        every_epochs: int = 1,
        every_steps: int | None = None,
    ) -> None:
        if mode not in ("min", "max"):
            raise UsageError(
                "checkpoint-mode", f"mode={mode!r} says not what is best.", 'Give "min" or "max".'
            )
        for name, every in (("every_epochs", every_epochs), ("every_steps", every_steps)):
            if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
                raise UsageError("checkpoint-every", f"{name}={every!r} is never.", "Give 1 or more.")
        self.monitor = monitor
        self.mode = mode
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.best: float | None = None
        self.best_path = ""
        self._saved_at = -1
        if every_steps is not None:
            self.after_batch = self._after_batch

    def _after_batch(self, trainer: Trainer, result: Any) -> None:
        if trainer.position.done % (self.every_steps or 1) == 0:
            self._save(trainer, epoch_done=False)

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Save if it is time."""
        if trainer.position.eidx % self.every_epochs == 0 or self._is_better(trainer):
            self._save(trainer, epoch_done=True)

    def after_train(self, trainer: Trainer) -> None:
        """Save what was not saved yet, and wait for all of it to be on disk."""
        if self._saved_at != trainer.position.done:
            self._save(trainer, epoch_done=False)
        trainer.saver.flush()

    def state_dict(self) -> dict[str, Any]:
        """The best so far."""
        return {"best": self.best, "best_path": self.best_path}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.best, self.best_path = state["best"], state["best_path"]

    def _value(self, trainer: Trainer) -> float | None:
        return None if self.monitor is None else trainer.metric(self.monitor)

    def _is_better(self, trainer: Trainer) -> bool:
        value = self._value(trainer)
        if value is None or math.isnan(value):
            return False
        return self.best is None or (value < self.best if self.mode == "min" else value > self.best)

    def _save(self, trainer: Trainer, *, epoch_done: bool) -> None:
        is_better = epoch_done and self._is_better(trainer)
        value = self._value(trainer) if epoch_done else None
        if is_better:
            self.best = value
        info = {} if self.monitor is None or value is None else {self.monitor: value}
        trainer.save_checkpoint(info, epoch_done=epoch_done)
        if is_better:
            before, self.best_path = self.best_path, ""
            self.best_path = trainer.save_checkpoint(info, kind="keypoint", epoch_done=epoch_done)
            if before and before != self.best_path:
                trainer.saver.remove(before)
        self._saved_at = trainer.position.done


class TimingCheckpoint(Callback):
    """Saves when so many minutes have passed since the last time."""

    priority = 91

    def __init__(self, minutes: float = 10.0) -> None:
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not minutes > 0:
            raise UsageError(
                "checkpoint-every", f"minutes={minutes!r} is never.", "Give a number above zero."
            )
        self.seconds = minutes * 60
        self._last = 0.0

    def before_train(self, trainer: Trainer) -> None:
        """Begin to count."""
        self._last = time.monotonic()

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Save if it is time."""
        if time.monotonic() - self._last >= self.seconds:
            trainer.save_checkpoint()
            self._last = time.monotonic()


class KeyErrorSave(Callback):
    """Ctrl-C saves first: the training ends after the batch at hand, with a checkpoint to go on from."""

    priority = 92

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Save, if the training stands between two batches."""
        if not isinstance(error, KeyboardInterrupt):
            return
        if trainer.was_interrupted_between_batches:
            path = trainer.save_checkpoint()
            trainer.saver.flush()
            trainer.logger.warn(f"Saved {path} ({trainer.position}): go on with train(resume=True)")
        else:
            trainer.logger.warn("Ended inside a batch: the last checkpoint is the one to go on from")
