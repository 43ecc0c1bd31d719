"""Points found by Optuna: it is asked for the next and told what came of each (an extra: luxmeter[sweep])."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

from luxmeter.errors import MissingExtraError
from luxmeter.train.queue.space import Axis


def has_optuna() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("optuna") is not None


class OptunaSearch:
    """`count` trials, each asked for when there is room for it, so that it learns from those before."""

    def __init__(self, space: Mapping[str, Axis], count: int, *, mode: str, seed: int, prune: bool) -> None:
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError as error:
            raise MissingExtraError(
                "no-optuna",
                f"A search that learns, or prunes, needs Optuna ({error}).",
                "Run: pip install 'luxmeter[sweep]', or say --sampler random without --prune.",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._pruned = optuna.trial.TrialState.PRUNED
        self._failed = optuna.trial.TrialState.FAIL
        self._study = optuna.create_study(
            direction="maximize" if mode == "max" else "minimize",
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=3) if prune else optuna.pruners.NopPruner(),
        )
        self._space = dict(space)
        self._left = count
        self._trials: list[Any] = []
        self._hopeless: set[int] = set()
        self._reported: dict[int, int] = {}

    def next_points(self, room: int) -> list[Mapping[str, Any]]:
        """As many as there is room for."""
        points: list[Mapping[str, Any]] = []
        for _ in range(min(room, self._left)):
            self._left -= 1
            trial = self._study.ask()
            self._trials.append(trial)
            points.append({name: self._suggested(trial, axis) for name, axis in self._space.items()})
        return points

    def is_over(self) -> bool:
        """After `count` of them."""
        return not self._left

    def told(self, number: int, value: float | None) -> None:
        """What came of it; a trial that was ended early counts by what it had reached."""
        if number in self._hopeless:
            self._study.tell(self._trials[number], state=self._pruned)
        elif value is None:
            self._study.tell(self._trials[number], state=self._failed)
        else:
            self._study.tell(self._trials[number], value)

    def reported(self, number: int, steps: Mapping[int, float]) -> None:
        """What it has not been told yet; ended trials count, too, since others are held against them."""
        for step in sorted(step for step in steps if step > self._reported.get(number, -1)):
            self._reported[number] = step
            self._trials[number].report(steps[step], step)

    def is_hopeless(self, number: int) -> bool:
        """Whether it does worse than the middle of the others at the same step."""
        if self._trials[number].should_prune():
            self._hopeless.add(number)
        return number in self._hopeless

    @staticmethod
    def _suggested(trial: Any, axis: Axis) -> Any:
        if axis.choices:
            return trial.suggest_categorical(axis.name, list(axis.choices))
        if axis.whole:
            return trial.suggest_int(axis.name, int(axis.low), int(axis.high), log=axis.log)
        return axis.rounded(trial.suggest_float(axis.name, axis.low, axis.high, log=axis.log))
