"""The learning rate over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.optimization import Optimization

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class LRSchedule(Callback):
    """Changes learning rates: by a schedule (`Params.SCHE.Cos(...)`, a factor of the first rate), or torch's schedulers.

    Without a schedule the schedulers among the trainer's attributes are stepped. `every`: after each optimizer "step" or
    each "epoch". `monitor` is for ReduceLROnPlateau.
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
        self._steps = 0
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

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Change the rate, if there was a step."""
        optimization = self._optimization
        if self.every == "step" and (
            optimization is None or not optimization.is_active or optimization.stepped
        ):
            self._step(trainer)

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Change the rate."""
        left_over = self._optimization is not None and self._optimization.stepped
        if self.every == "epoch" or (left_over and self.every == "step"):
            self._step(trainer)

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
                if isinstance(scheduler, ReduceLROnPlateau):
                    scheduler.step(trainer.metric(self.monitor))
                else:
                    scheduler.step()
        else:
            self._scale(trainer)

    def _scale(self, trainer: Trainer) -> None:
        for optimizer in trainer.optimizers:
            self.schedule.scale(optimizer, self._steps)
