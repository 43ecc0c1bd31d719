"""The learning rate over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from luxmeter.errors import UsageError, warn_once
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.optimization import Optimization

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class LRSchedule(Callback):
    """Changes learning rates: by a schedule (`Params.SCHE.Cos(...)`, a factor of the first rate), or torch's schedulers.

    Without a schedule the schedulers among the trainer's attributes are stepped. `every`: after each optimizer "step" or
    each "epoch", when that was evaluated. `monitor` is for ReduceLROnPlateau: of an evaluation, it counts evaluations.
    """

    priority = 40

    def __init__(
        self,
        schedule: Any = None,
        *,
        every: Literal["step", "epoch"] | None = None,
        monitor: str = "loss",
    ) -> None:
        chosen = every or ("epoch" if schedule is None or isinstance(schedule, LRScheduler) else "step")
        if chosen not in ("step", "epoch"):
            raise UsageError(
                "schedule-every",
                f"every={every!r} is no moment to change the rate.",
                'Give "step" or "epoch".',
            )
        if (
            schedule is not None
            and not isinstance(schedule, LRScheduler)
            and not callable(getattr(schedule, "scale", None))
        ):
            raise UsageError(
                "schedule-kind",
                f"{schedule!r} is no schedule.",
                'Give "step", "epoch", a schedule such as Params.SCHE.Cos(right=1000), or a scheduler of torch.',
            )
        self.schedule = schedule
        self.every = chosen
        self.monitor = monitor
        self.priority = 40 if chosen == "step" else 65  # behind EvalCallback
        self._steps = 0
        self._seen = 0  # of the optimizers' steps
        self._is_evaluated = False  # since the last change
        self._schedulers: list[LRScheduler] = []
        self._optimization: Optimization | None = None

    def setup(self, trainer: Trainer) -> None:
        """Find the schedulers; set the first rate."""
        self._optimization = trainer.callbacks.find(Optimization)
        if isinstance(self.schedule, LRScheduler):
            self._schedulers = [self.schedule]
        elif self.schedule is None:
            self._schedulers = trainer.schedulers
            if not self._schedulers:
                raise UsageError(
                    "no-scheduler",
                    f"{type(trainer).__name__} has no scheduler to step.",
                    "Make one in initial_trainer: self.scheduler = StepLR(self.optim, 10), or give a schedule.",
                )
        else:
            self._scale(trainer)

    def before_train(self, trainer: Trainer) -> None:
        """Count steps from here."""
        self._seen = self._optimization.steps if self._optimization is not None else 0

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Change the rate, if there was a step."""
        if self.every != "step":
            return
        if self._optimization is None:
            self._step(trainer)
        elif self._optimization.steps != self._seen:
            self._seen = self._optimization.steps
            self._step(trainer)

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """There is something new to go by."""
        self._is_evaluated = True

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Change the rate."""
        if self.every == "epoch":
            self._step(trainer)
        elif self._optimization is not None:
            self.after_batch(trainer, None)  # the last batches of an epoch may be a step of their own

    def state_dict(self) -> dict[str, Any]:
        """How often the rate was changed; a scheduler that is no attribute of the trainer, too."""
        given = self.schedule.state_dict() if isinstance(self.schedule, LRScheduler) else {}
        return {"steps": self._steps, "scheduler": given}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._steps = int(state["steps"])
        if isinstance(self.schedule, LRScheduler) and state["scheduler"]:
            self.schedule.load_state_dict(dict(state["scheduler"]))

    def _step(self, trainer: Trainer) -> None:
        self._steps += 1
        if self._schedulers:
            for scheduler in self._schedulers:
                if not isinstance(scheduler, ReduceLROnPlateau):
                    scheduler.step()
                elif self._has_come(trainer):
                    scheduler.step(trainer.metric(self.monitor))
            self._is_evaluated = False
        else:
            self._scale(trainer)

    def _has_come(self, trainer: Trainer) -> bool:
        """Whether the metric is new. One that nobody knows is an error as soon as there was an evaluation."""
        waits = "eval" in trainer.data and not len(trainer.meters["eval"])
        if waits and not self.monitor.startswith("train/"):
            return False
        return self._is_evaluated or not trainer.metric_name(self.monitor).startswith("eval/")

    def _scale(self, trainer: Trainer) -> None:
        for optimizer in trainer.optimizers:
            self.schedule.scale(optimizer, self._steps)


class UnusedSchedulers(Callback):
    """Tells of schedulers among the trainer's attributes that nobody steps; hooked where no LRSchedule is."""

    priority = 99

    def __init__(self) -> None:
        self._first = 0  # the epoch that the training began with
        self._before: list[int] | None = None

    def before_train(self, trainer: Trainer) -> None:
        """Where they stand."""
        self._first, self._before = trainer.position.eidx, [one.last_epoch for one in trainer.schedulers]

    def before_epoch(self, trainer: Trainer) -> None:
        """After the first epoch: whether one of them has moved."""
        if self._before is None or trainer.position.eidx == self._first:
            return
        if self._before == [one.last_epoch for one in trainer.schedulers]:
            warn_once(
                "scheduler-not-stepped",
                f"In a whole epoch no scheduler of {type(trainer).__name__} was stepped.",
                'Give schedule="epoch" or schedule="step", or step it yourself.',
                key=type(trainer).__name__,
            )
        self._before = None
