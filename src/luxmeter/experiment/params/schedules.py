"""Schedules: a value that changes with the step. Each is a frozen record that is called with the step.

They hash, compare and print by their numbers, so they can stand among the parameters of an experiment.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from luxmeter.errors import UsageError


class _ActsOnOptimizer:
    """What every schedule can do with an optimizer."""

    def __call__(self, cur: float) -> float:
        raise NotImplementedError

    def apply(self, optimizer: Any, cur: float) -> float:
        """Set the learning rate of every group to the value at `cur`."""
        value = self(cur)
        for group in optimizer.param_groups:
            group["lr"] = value
        return value

    def scale(self, optimizer: Any, cur: float) -> float:
        """Set every group's learning rate to its initial one times the value at `cur`."""
        value = self(cur)
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * value
        return value


@dataclass(frozen=True)
class _Between(_ActsOnOptimizer):
    """From `start` at step `left` to `end` at step `right`; constant outside."""

    start: float = 0.0
    end: float = 1.0
    left: float = 0.0
    right: float = 1.0

    def __post_init__(self) -> None:
        if not self.left < self.right:
            raise UsageError(
                "schedule-interval",
                f"{type(self).__name__} goes from step {self.left} to step {self.right}.",
                "left must be below right.",
            )

    def __call__(self, cur: float) -> float:
        # The ends are given back as they are: start + (end - start) can miss `end` by a rounding.
        if cur <= self.left:
            return self.start
        if cur >= self.right:
            return self.end
        return self._at((cur - self.left) / (self.right - self.left))

    def _at(self, ratio: float) -> float:
        share = self._share(ratio)
        return self.start * (1 - share) + self.end * share

    def _share(self, ratio: float) -> float:
        raise NotImplementedError


class CosSchedule(_Between):
    """Half a cosine from start to end: slow, quick, slow."""

    def _share(self, ratio: float) -> float:
        return (1 - math.cos(math.pi * ratio)) / 2


class LinearSchedule(_Between):
    """A straight line from start to end."""

    def _share(self, ratio: float) -> float:
        return ratio


_STEEPNESS = 5.0  # exp(-5) < 0.01: the slow end is nearly flat; the rest is spread so that both ends are met


class ExpSchedule(_Between):
    """Slow at first, quick at the end."""

    def _share(self, ratio: float) -> float:
        return math.exp((ratio - 1) * _STEEPNESS) - math.exp(-_STEEPNESS) * (1 - ratio)


class LogSchedule(_Between):
    """Quick at first, slow at the end."""

    def _share(self, ratio: float) -> float:
        return 1 - math.exp(-ratio * _STEEPNESS) + math.exp(-_STEEPNESS) * ratio


@dataclass(frozen=True)
class ConstSchedule(_ActsOnOptimizer):
    """Always `value`."""

    value: float = 0.5
    left: float = 0.0
    right: float = math.inf

    def __call__(self, cur: float) -> float:
        return self.value


class PeriodCosSchedule(_Between):
    """A whole cosine, start to end and back, again and again every `right - left` steps."""

    def __call__(self, cur: float) -> float:
        return self._at(_phase(cur, self.left, self.right))

    def _share(self, ratio: float) -> float:
        return (1 - math.cos(2 * math.pi * ratio)) / 2


class HalfPeriodCosSchedule(_Between):
    """Half a cosine from start to end, then again from start (warm restarts)."""

    def __call__(self, cur: float) -> float:
        return self._at(_phase(cur, self.left, self.right))

    def _share(self, ratio: float) -> float:
        return (1 - math.cos(math.pi * ratio)) / 2


class PeriodLinearSchedule(_Between):
    """A straight line from start to end, then again from start."""

    def __call__(self, cur: float) -> float:
        return self._at(_phase(cur, self.left, self.right))

    def _share(self, ratio: float) -> float:
        return ratio


class PeriodTriangleSchedule(_Between):
    """A straight line from start to end and back, again and again every `right - left` steps."""

    def __call__(self, cur: float) -> float:
        return self._at(_phase(cur, self.left, self.right))

    def _share(self, ratio: float) -> float:
        return 1 - abs(2 * ratio - 1)


@dataclass(frozen=True)
class PowerDecay(_ActsOnOptimizer):
    """`start`, times `decay_rate` after every `decay_steps`."""

    start: float
    decay_steps: int
    decay_rate: float
    left: float = 0.0
    right: float = math.inf

    def __call__(self, cur: float) -> float:
        return float(self.start * self.decay_rate ** (max(0.0, cur - self.left) // self.decay_steps))


@dataclass(frozen=True)
class ScheduleList(_ActsOnOptimizer):
    """One schedule after another: each holds from its `left` until the next one's."""

    schedules: tuple[Any, ...]

    def __init__(self, schedules: Iterable[Any]) -> None:
        ordered = tuple(sorted(schedules, key=lambda schedule: schedule.left))
        if not ordered:
            raise UsageError("schedule-empty", "A ScheduleList was given no schedules.", "Give at least one.")
        object.__setattr__(self, "schedules", ordered)

    @property
    def left(self) -> float:
        return float(self.schedules[0].left)

    @property
    def right(self) -> float:
        return float(self.schedules[-1].right)

    def __call__(self, cur: float) -> float:
        starts = [schedule.left for schedule in self.schedules]
        return float(self.schedules[max(0, bisect.bisect_right(starts, cur) - 1)](cur))


def _phase(cur: float, left: float, right: float) -> float:
    return ((cur - left) % (right - left)) / (right - left)


SCHEDULES = SimpleNamespace(
    Cos=CosSchedule,
    Linear=LinearSchedule,
    Log=LogSchedule,
    Exp=ExpSchedule,
    Power=PowerDecay,
    Const=ConstSchedule,
    PeriodCos=PeriodCosSchedule,
    HalfPeriodCos=HalfPeriodCosSchedule,
    PeriodHalfCos=HalfPeriodCosSchedule,  # thexp's name
    PeriodLinear=PeriodLinearSchedule,
    PeriodTriangle=PeriodTriangleSchedule,
    List=ScheduleList,
)
