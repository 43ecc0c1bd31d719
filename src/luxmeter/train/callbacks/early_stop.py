"""A training that gets no better is stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.monitor import Mode, Monitor

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class EarlyStop(Callback):
    """Stops the training when `monitor` got no better for `patience` evaluations (epochs, for one of the training's).

    Better means by more than `min_delta`; a value that is not a number is no better. `goal`: stop as soon as it is reached.
    Why it stopped stands in the log, in `reason` and in the run's note. A training that is resumed behind the stop
    stops at once: give a larger patience to go on.
    """

    priority = 80

    def __init__(
        self,
        monitor: str = "eval/loss",
        mode: Mode = "min",
        *,
        patience: int = 5,
        min_delta: float = 0.0,
        goal: float | None = None,
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise UsageError(
                "early-stop-patience", f"patience={patience!r} would stop at once.", "Give 1 or more."
            )
        is_number = isinstance(goal, int | float) and not isinstance(goal, bool) and math.isfinite(goal)
        if goal is not None and not is_number:
            raise UsageError(
                "early-stop-goal", f"goal={goal!r} is no goal.", "Give a number, or leave it out."
            )
        self.monitor = Monitor(monitor, mode, who="EarlyStop", min_delta=min_delta)
        self.patience = patience
        self.goal = goal
        self.waited = 0  # evaluations, or epochs, since the best
        self.reason = ""
        self._looked_at = -1  # the step; another evaluation of the same one says nothing new

    def before_train(self, trainer: Trainer) -> None:
        """Stop, if a training that is resumed had come to its stop."""
        self.monitor.check(trainer)
        self.reason = ""
        if self.waited >= self.patience or self._is_reached(self.monitor.best):
            self._stop(trainer)

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """Look at the metric."""
        self._look(trainer, "eval")

    def after_test(self, trainer: Trainer, meter: Any) -> None:
        """Look at the metric."""
        self._look(trainer, "test")

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Look at the metric."""
        self._look(trainer, "train")

    def after_train(self, trainer: Trainer) -> None:
        """Say so if there was nothing to look at."""
        self.monitor.tell_if_absent(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The best so far, and how long ago it was."""
        return {"monitor": self.monitor.state_dict(), "waited": self.waited, "looked_at": self._looked_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.monitor.load_state_dict(state["monitor"])
        self.waited, self._looked_at = int(state["waited"]), int(state["looked_at"])

    def _look(self, trainer: Trainer, which: str) -> None:
        value = self.monitor.value(trainer, which)
        if value is None or self.reason or self._looked_at == trainer.position.done:
            return
        self._looked_at = trainer.position.done
        if self.monitor.is_better(value):
            self.monitor.take(value, trainer)
            self.waited = 0
        else:
            self.waited += 1
        if self.waited >= self.patience or self._is_reached(value):
            self._stop(trainer)

    def _is_reached(self, value: float | None) -> bool:
        if self.goal is None or value is None:
            return False
        return value <= self.goal if self.monitor.mode == "min" else value >= self.goal

    def _stop(self, trainer: Trainer) -> None:
        monitor = self.monitor
        best = "" if monitor.best is None else f"{monitor.best:.6g} in epoch {monitor.best_epoch}"
        if self._is_reached(monitor.best):
            why = f"{monitor.whole} reached {self.goal:g}: {best}"
        else:
            times = "epoch" if monitor.whole.startswith("train/") else "evaluation"
            times += "s" if self.waited > 1 else ""
            than = f"better than {best}" if best else "a number"
            by = f" by more than {monitor.min_delta:g}" if monitor.min_delta else ""
            why = f"{monitor.whole} was not {than}{by} for {self.waited} {times}"
        self.reason = f"EarlyStop: stopped in epoch {trainer.position.begun_epoch}, step {trainer.position.done}: {why}."
        trainer.logger.info(self.reason)
        experiment = trainer.experiment
        if experiment is not None and experiment.writer is not None:
            before = experiment.writer.marks.note
            experiment.note(f"{before}\n{self.reason}" if before else self.reason)
        trainer.stop_train()
