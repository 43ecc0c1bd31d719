"""What is known of a name over many updates: frozen records, folded from values and merged (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Spans:
    """How far back the recent averages look."""

    window: int = 20
    decay: float = 0.98


@dataclass(frozen=True)
class Average:
    """Count, sums and extremes of a value; `recent` holds the last values with their weights."""

    count: int = 0
    weight: float = 0.0
    sum: float = 0.0
    min: float = math.nan
    max: float = math.nan
    last: float = math.nan
    ema_sum: float = 0.0
    ema_weight: float = 0.0
    recent: tuple[tuple[float, float], ...] = ()

    @property
    def mean(self) -> float:
        """The sum of value times weight, over the sum of weights."""
        return self.sum / self.weight if self.weight else math.nan

    @property
    def avg(self) -> float:
        """The mean, by its other usual name."""
        return self.mean

    @property
    def ema(self) -> float:
        """The exponential average, without the pull of its start (as Adam corrects its moments)."""
        return self.ema_sum / self.ema_weight if self.ema_weight else math.nan

    @property
    def windowed(self) -> float:
        """The weighted average of the last few values."""
        weight = math.fsum(w for _, w in self.recent)
        return math.fsum(v * w for v, w in self.recent) / weight if weight else math.nan

    def __float__(self) -> float:
        return self.mean

    def __format__(self, spec: str) -> str:
        return format(self.mean, spec) if spec else str(self)


def fold(before: Sequence[Average], rows: Any, weights: Any, spans: Spans) -> list[Average]:
    """Averages with more values: a row for each update, in order; a column for each average."""
    x, w = np.asarray(rows, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    n = len(x)
    if not n:
        return list(before)
    with np.errstate(all="ignore"):
        shares = _fade(n, spans.decay) * w
        kept, weight, share = spans.decay**n, float(w.sum()), float(shares.sum())
        sums, ema_sums = (np.stack((w, shares)) @ x).tolist()
        columns = np.ascontiguousarray(x.T)
        low, high = np.fmin.reduce(columns, 1).tolist(), np.fmax.reduce(columns, 1).tolist()
    last_weights = w[-spans.window :].tolist()
    recent = x[-spans.window :].T.tolist()
    last = x[-1].tolist()
    return [
        Average(
            count=old.count + n,
            weight=old.weight + weight,
            sum=old.sum + sums[i],
            min=_extreme(min, old.min, low[i]),
            max=_extreme(max, old.max, high[i]),
            last=last[i],
            ema_sum=old.ema_sum * kept + ema_sums[i],
            ema_weight=old.ema_weight * kept + share,
            recent=(*old.recent, *zip(recent[i], last_weights, strict=True))[-spans.window :],
        )
        for i, old in enumerate(before)
    ]


@lru_cache(maxsize=16)
def _fade(n: int, decay: float) -> Any:
    """How much each of n values still counts, the newest last."""
    return (1 - decay) * decay ** np.arange(n - 1, -1, -1.0)


def _extreme(which: Callable[[float, float], float], a: float, b: float) -> float:
    """The smaller or larger one; a NaN is no number and loses."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return which(a, b)


def merge(a: Average, b: Average) -> Average:
    """Both together: counts, sums and extremes exactly; recent averages weighted; `last` is b's."""
    if not a.count or not b.count:
        return b if b.count else a
    return Average(
        count=a.count + b.count,
        weight=a.weight + b.weight,
        sum=a.sum + b.sum,
        min=_extreme(min, a.min, b.min),
        max=_extreme(max, a.max, b.max),
        last=b.last,
        ema_sum=a.ema_sum + b.ema_sum,
        ema_weight=a.ema_weight + b.ema_weight,
        recent=a.recent + b.recent,
    )


def to_record(average: Average) -> dict[str, Any]:
    """The average as plain values, for a checkpoint or another rank."""
    return {**vars(average), "recent": [list(pair) for pair in average.recent]}


def from_record(record: dict[str, Any]) -> Average:
    """What `to_record` gave."""
    return Average(**{**record, "recent": tuple((float(v), float(w)) for v, w in record["recent"])})
