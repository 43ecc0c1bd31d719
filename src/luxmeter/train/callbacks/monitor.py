"""A metric that is watched for its best value: by what keeps the best checkpoint, and by what stops a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from luxmeter.errors import UsageError, suggestion
from luxmeter.train.data import NAMES

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

Mode = Literal["min", "max"]


class Monitor:
    """The best of one metric: `eval/acc`; or `acc`, which is the evaluation's if it has one, else the training's.

    Which of them it is, is decided when the first one comes, and stays. A value that is not a number is never better.
    """

    def __init__(self, name: str, mode: Mode, *, who: str, min_delta: float = 0.0) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(
                "monitor-name", f"{who} was given the metric {name!r}.", "Give a name such as 'eval/acc'."
            )
        if mode not in ("min", "max"):
            raise UsageError(
                "monitor-mode", f"mode={mode!r} does not say what is best.", 'Give "min" or "max".'
            )
        is_number = isinstance(min_delta, int | float) and not isinstance(min_delta, bool)
        if not is_number or not 0 <= min_delta < math.inf:
            raise UsageError("monitor-delta", f"min_delta={min_delta!r} is no amount.", "Give 0 or more.")
        self.name = name
        self.mode = mode
        self.min_delta = min_delta
        self.best: float | None = None
        self.best_step = -1
        self.best_epoch = 0
        self._who = who
        self._whole = name if name.partition("/")[0] in NAMES else ""
        self._came = False

    @property
    def whole(self) -> str:
        """Its name with `train/`, `eval/` or `test/`; the name it was given before that is known."""
        return self._whole or self.name

    def check(self, trainer: Trainer) -> None:
        """Before a training: refuse a metric of data that is not there."""
        group = self._group
        if group in NAMES[1:] and group not in trainer.data:
            raise UsageError(
                "monitor-never-comes",
                f"{self._who} watches {self.whole!r}, but there is no {group} data.",
                f"Register it: self.regist_databundler({group}=...), or watch another metric.",
            )

    def value(self, trainer: Trainer, which: str) -> float | None:
        """Its value if it is a metric of `which` (train, eval, test), whose values have just come; else None."""
        known = trainer.metrics()
        if not self._whole:
            found = (f"{group}/{self.name}" for group in ("eval", "train", "test"))
            self._whole = next((whole for whole in found if whole in known), "")
            can_come = which != "eval" and "eval" in trainer.data
            if not self._whole and len(trainer.meter) and not can_come:
                raise self._absent(known)
        if self._group != which:
            return None
        if self._whole not in known:
            raise self._absent(known)
        self._came = True
        try:
            return float(known[self._whole])
        except (TypeError, ValueError) as error:
            raise UsageError(
                "monitor-not-a-number",
                f"{self._who} watches {self._whole!r}, which is {known[self._whole]!r}.",
                "Watch a metric that is a number.",
            ) from error

    def is_better(self, value: float) -> bool:
        """Whether it is better than the best so far, by more than min_delta."""
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta

    def take(self, value: float, trainer: Trainer) -> None:
        """This is the best from now on."""
        self.best, self.best_step, self.best_epoch = (
            value,
            trainer.position.done,
            trainer.position.begun_epoch,
        )

    def tell_if_absent(self, trainer: Trainer) -> None:
        """At the end of a training: say so if the metric never came."""
        if not self._came:
            there = ", ".join(trainer.metrics()) or "none"
            trainer.logger.warn(f"{self._who} watches {self.whole!r}, which never came. There are {there}.")

    def state_dict(self) -> dict[str, Any]:
        """The best so far, and which metric it is."""
        names = ("best", "best_step", "best_epoch", "_whole", "_came")
        return {name.strip("_"): getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; a checkpoint that watched another metric says nothing about this one."""
        if state["whole"] in (self._whole, *(f"{group}/{self.name}" for group in NAMES)):
            self.best, self.best_step = state["best"], int(state["best_step"])
            self.best_epoch = int(state["best_epoch"])
            self._whole, self._came = str(state["whole"]), bool(state["came"])

    @property
    def _group(self) -> str:
        return self._whole.partition("/")[0]

    def _absent(self, known: Mapping[str, Any]) -> UsageError:
        return UsageError(
            "monitor-never-comes",
            f"{self._who} watches {self.whole!r}, which is none of the metrics.",
            suggestion(self.whole, known) or f"There are {', '.join(known) or 'none'}.",
        )
