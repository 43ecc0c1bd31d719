"""When a training is saved: by epochs, by batches, by the clock, by what is best, and before Ctrl-C ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.experiment import file_name
from luxmeter.ranks import is_main
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.monitor import Mode, Monitor
from luxmeter.train.in_step import Listener

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
        mode: Mode = "min",
        *,
        every_epochs: int = 1,
        every_steps: int | None = None,
    ) -> None:
        for name, every in (("every_epochs", every_epochs), ("every_steps", every_steps)):
            if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
                raise UsageError("checkpoint-every", f"{name}={every!r} means never.", "Give 1 or more.")
        self.monitor = None if monitor is None else Monitor(monitor, mode, who="ModelCheckpoint")
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.best_path = ""  # the keypoint of the best; empty as long as there is none in this run
        self._value: float | None = None  # that came since the last save
        self._saved_at = -1
        if every_steps is None:
            self.after_batch = None  # type: ignore[assignment]  # not to be called

    @property
    def best(self) -> float | None:
        """The best value so far; None without a monitor, and before the first one."""
        return None if self.monitor is None else self.monitor.best

    def before_train(self, trainer: Trainer) -> None:
        """Look for the best one that a resumed training had."""
        if self.monitor is not None:
            self.monitor.check(trainer)
            best = trainer.saver.folder / file_name("keypoint", max(0, self.monitor.best_step))
            self.best_path = str(best) if self.monitor.best is not None and best.is_file() else ""

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Save if it is time."""
        if trainer.position.done % (self.every_steps or 1) == 0:
            self._save(trainer, epoch_done=False)

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """Look at the metric."""
        self._look(trainer, "eval")

    def after_test(self, trainer: Trainer, meter: Any) -> None:
        """Look at the metric."""
        self._look(trainer, "test")

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Save if it is time."""
        self._look(trainer, "train")
        if trainer.position.eidx % self.every_epochs == 0 or self._is_better():
            self._save(trainer, epoch_done=True)

    def after_train(self, trainer: Trainer) -> None:
        """Save what was not saved yet, and wait for all of it to be on disk."""
        if self._saved_at != trainer.position.done or self._is_better():
            self._save(trainer, epoch_done=False)
        if self.monitor is not None:
            self.monitor.tell_if_absent(trainer)
        trainer.saver.flush()

    def state_dict(self) -> dict[str, Any]:
        """The best so far."""
        return {} if self.monitor is None else self.monitor.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if self.monitor is not None and state:
            self.monitor.load_state_dict(state)

    def _look(self, trainer: Trainer, which: str) -> None:
        if self.monitor is not None:
            value = self.monitor.value(trainer, which)
            self._value = self._value if value is None else value

    def _is_better(self) -> bool:
        return self.monitor is not None and self._value is not None and self.monitor.is_better(self._value)

    def _save(self, trainer: Trainer, *, epoch_done: bool) -> None:
        info: dict[str, float] = {}
        if self.monitor is not None and self._value is not None:
            info[self.monitor.whole] = self._value
            if self.monitor.is_better(self._value):
                before = self.monitor.best_step
                self.monitor.take(self._value, trainer)  # before it is saved: who resumes has to know it
                self.best_path = trainer.save_checkpoint(info, kind="keypoint", epoch_done=epoch_done)
                self._remove(before, trainer)
        trainer.save_checkpoint(info, epoch_done=epoch_done)
        self._value = None
        self._saved_at = trainer.position.done

    def _remove(self, step: int, trainer: Trainer) -> None:
        """Remove the keypoint that was the best, unless another callback has it as its best."""
        bests = [
            one.monitor.best_step
            for one in trainer.callbacks
            if isinstance(one, ModelCheckpoint) and one.monitor
        ]
        if step >= 0 and step not in bests and is_main():
            trainer.saver.remove(trainer.saver.folder / file_name("keypoint", step))


class TimingCheckpoint(Callback):
    """Saves when so many minutes have passed since the last time. `clock` gives seconds."""

    priority = 91

    def __init__(self, minutes: float = 10.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not minutes > 0:
            raise UsageError(
                "checkpoint-every", f"minutes={minutes!r} means never.", "Give a number above zero."
            )
        self.seconds = minutes * 60
        self._clock = clock
        self._last = 0.0
        self._listener: Listener | None = None

    def before_train(self, trainer: Trainer) -> None:
        """Begin to count."""
        self._last = self._clock()
        in_step = trainer._training.in_step
        if in_step is not None:  # all ranks save, by the clock of the first
            self._listener = Listener(lambda: is_main() and self._is_due(), lambda: self._save(trainer))
            in_step.listeners.append(self._listener)

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Save if it is time."""
        if self._listener is None and self._is_due():
            self._save(trainer)

    def after_train(self, trainer: Trainer) -> None:
        """No more."""
        self._let_go(trainer)

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """No more."""
        self._let_go(trainer)

    def _is_due(self) -> bool:
        return self._clock() - self._last >= self.seconds

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint()
        self._last = self._clock()

    def _let_go(self, trainer: Trainer) -> None:
        in_step = trainer._training.in_step
        if in_step is not None and self._listener is not None:
            in_step.listeners.remove(self._listener)
        self._listener = None


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
