"""Statistics for a handful of repeats: means with t intervals, Welch's test, effect size, seeds still needed.

With two or three seeds a bootstrap cannot work (it never leaves the values it has; its "95 %" interval of three
values covers about 75 %), and a rank test cannot reach 5 % below four a side. The t distribution is made for few
values of one bell-shaped quantity, which the final metric of a training with many random steps is near to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from luxmeter.errors import UsageError
from luxmeter.late import late
from luxmeter.stats import Values, bootstrap_interval, false_discovery, floats

if TYPE_CHECKING:
    import numpy as np
else:
    np = late("numpy")

Call: TypeAlias = Literal["higher", "lower", "unclear"]
Correction: TypeAlias = Literal["holm", "fdr", "none"]

FEWEST_FOR_BOOTSTRAP = 8
MOST_SEEDS = 10_000  # a difference that needs more is none in practice


@dataclass(frozen=True)
class Estimate:
    """The mean of `n` repeats with its interval; `low` and `high` are None for one value, which tells no spread."""

    n: int
    mean: float
    low: float | None
    high: float | None
    std: float | None
    confidence: float
    method: str  # "t" or "bootstrap"

    @property
    def half_width(self) -> float | None:
        """Half of the interval: the number behind ±."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference:
    """B against A. `call` is higher or lower only if `p_corrected` is below `alpha`; `why` says it in words.

    `effect` is Hedges' g: the difference in standard deviations, corrected for few values. `seeds_each` repeats a
    side would show this difference with the wished power, `more_seeds` is what lacks; None if no number in reason.
    """

    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    effect: float | None
    p_value: float | None
    p_corrected: float | None
    test: str  # "welch", "paired t", "permutation bound" (nothing varies), or "" where no test is possible
    alpha: float
    call: Call
    seeds_each: int | None
    more_seeds: int | None
    why: str


def estimate(values: Values, *, confidence: float = 0.95, method: str = "t") -> Estimate:
    """The mean and its interval: by the t distribution (right for two values and up), or by bootstrap for 8 and more."""
    x = floats(values)
    _share(confidence, "confidence")
    n, mean = len(x), float(x.mean())
    if method not in ("t", "bootstrap"):
        raise UsageError("interval-method", f"There is no interval called {method!r}.", "Use t or bootstrap.")
    if method == "bootstrap":
        if n < FEWEST_FOR_BOOTSTRAP:
            raise UsageError(
                "bootstrap-too-few",
                f"A bootstrap of {n} values gives too narrow an interval.",
                f'Use method="t", or repeat with at least {FEWEST_FOR_BOOTSTRAP} seeds.',
            )
        found = bootstrap_interval(x, statistic=np.mean, confidence=confidence)
        return Estimate(n, mean, found.low, found.high, math.sqrt(_variance(x)), confidence, "bootstrap")
    if n == 1:
        return Estimate(1, mean, None, None, None, confidence, "t")
    from scipy.special import stdtrit

    std = math.sqrt(_variance(x))
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * std / math.sqrt(n)
    return Estimate(n, mean, mean - half, mean + half, std, confidence, "t")


def difference(
    a: Values,
    b: Values,
    *,
    paired: bool = False,
    alpha: float = 0.05,
    power: float | None = 0.8,
    matters: float | None = None,
    tests: int = 1,
) -> Difference:
    """B against A by Welch's t test (or a paired one: the same seeds on both sides, in the same order).

    `matters` is the smallest difference worth showing; without it the seeds still needed are those for the
    difference seen, which is itself uncertain when there are few. They are counted for a p-value that will be
    corrected for `tests` tests. `power=None` leaves them out, which is quicker.
    """
    x, y = floats(a), floats(b)
    _share(alpha, "alpha")
    if power is not None:
        _share(power, "power")
    if paired and len(x) != len(y):
        raise UsageError(
            "not-paired",
            f"Pairs need as many values a side; got {len(x)} and {len(y)}.",
            "Pass paired=False.",
        )
    gap = float(y.mean() - x.mean())
    base = Difference(
        len(x), len(y), float(x.mean()), float(y.mean()), gap, None, None, None, None, None, "", alpha, "unclear",
        None, None, "",
    )  # fmt: skip
    enough = len(x) >= 2 if paired else min(len(x), len(y)) >= 2
    if not enough:
        fewest = max(1, 2 - len(x), 2 - len(y))
        return replace(
            base, seeds_each=2, more_seeds=fewest, why="one value tells no spread: repeat with another seed"
        )
    spread, error, degrees = _spread(x, y, paired)
    if error == 0:
        # Nothing varies on either side: a t test has no scale. Chance alone would put equal values on one side and
        # equal ones on the other this often.
        p = 1.0 if gap == 0 else _least_p(len(x), len(y), paired)
        effect = 0.0 if gap == 0 else math.copysign(math.inf, gap)
        found = replace(base, low=gap, high=gap, effect=effect, p_value=p, test="permutation bound")
        need = next(n for n in range(2, 64) if _least_p(n, n, paired) < alpha / tests)
        return judged(replace(found, seeds_each=2 if gap == 0 else need), p)
    from scipy.special import stdtr, stdtrit

    half = float(stdtrit(degrees, 1 - alpha / 2)) * error
    p = float(2 * stdtr(degrees, -abs(gap) / error))
    shown = gap if matters is None else matters
    need_each = (
        None
        if power is None
        else seeds_needed(shown / spread, alpha=alpha / tests, power=power, paired=paired)
    )
    found = replace(
        base, low=gap - half, high=gap + half, effect=gap / spread * _few(len(x), len(y), paired), p_value=p,
        test="paired t" if paired else "welch", seeds_each=need_each,
    )  # fmt: skip
    return judged(found, p)


def judged(found: Difference, p_corrected: float | None) -> Difference:
    """The same difference, called by a p-value that minds how many were tested."""
    if found.p_value is None or p_corrected is None:
        return found
    if p_corrected < found.alpha:
        call: Call = "higher" if found.difference > 0 else "lower"
        why = f"{call} by {abs(found.difference):.4g}, p {p_corrected:.2g}"
        return replace(found, p_corrected=p_corrected, call=call, more_seeds=0, why=why)
    more = None if found.seeds_each is None else max(0, found.seeds_each - min(found.n_a, found.n_b))
    chance = f"may be chance (p {p_corrected:.2g})"
    if found.difference == 0:
        why = "the means are equal"
    elif more is None:
        why = f"{chance}; no reasonable number of seeds would show so small a difference"
    elif more == 0:
        why = f"{chance}, though there are seeds enough to see such a difference most times"
    else:
        why = f"{chance}; {more} more seeds a side would probably tell"
    return replace(found, p_corrected=p_corrected, call="unclear", more_seeds=more, why=why)


def seeds_needed(
    effect: float, *, alpha: float = 0.05, power: float = 0.8, paired: bool = False
) -> int | None:
    """Repeats a side that show a difference of `effect` standard deviations with this power; None if too many."""
    from scipy.special import ndtri

    size = abs(effect)
    if size == 0 or math.isnan(size):
        return None
    # The normal distribution's answer is a little too small; from there it is a few steps.
    sides = 1 if paired else 2
    rough = sides * (float(ndtri(1 - alpha / 2) + ndtri(power)) / size) ** 2
    if rough > MOST_SEEDS:
        return None
    n = max(2, math.floor(rough))
    while power_of(size, n, alpha=alpha, paired=paired) < power:
        n += 1
    while n > 2 and power_of(size, n - 1, alpha=alpha, paired=paired) >= power:
        n -= 1
    return n


def power_of(effect: float, n: int, *, alpha: float = 0.05, paired: bool = False) -> float:
    """How often a two-sided t test with `n` values a side finds a true difference of `effect` standard deviations."""
    from scipy.special import nctdtr, stdtrit  # quicker to import than scipy.stats, and the same functions

    degrees = n - 1 if paired else 2 * n - 2
    shift = abs(effect) * math.sqrt(n if paired else n / 2)
    edge = float(stdtrit(degrees, 1 - alpha / 2))
    if shift - edge > 10:
        return 1.0  # beyond where the noncentral distribution is computed without trouble
    return float(1 - nctdtr(degrees, shift, edge) + nctdtr(degrees, shift, -edge))


def corrected(p_values: list[float], how: Correction = "holm") -> list[float]:
    """p-values that mind their number: Holm (chance of any error), Benjamini-Hochberg (share of errors), or as given."""
    if how == "none":
        return list(p_values)
    if how == "fdr":
        return false_discovery(p_values)
    if how != "holm":
        raise UsageError("correction-name", f"There is no correction {how!r}.", "Use holm, fdr or none.")
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def _spread(x: Values, y: Values, paired: bool) -> tuple[float, float, float]:
    """Standard deviation that effects are measured in, standard error of the difference, degrees of freedom."""
    if paired:
        gaps = np.asarray(y, dtype=np.float64) - np.asarray(x, dtype=np.float64)
        std = math.sqrt(_variance(gaps))
        return std, std / math.sqrt(len(gaps)), len(gaps) - 1.0
    va, vb = _variance(x), _variance(y)
    ea, eb = va / len(x), vb / len(y)
    error = math.sqrt(ea + eb)
    if error == 0:
        return 0.0, 0.0, 1.0
    # Shares, not squares of variances: those of small numbers vanish.
    share = ea / (ea + eb)
    degrees = 1 / (share**2 / (len(x) - 1) + (1 - share) ** 2 / (len(y) - 1))
    return math.sqrt((va + vb) / 2), error, degrees


def _least_p(n_a: int, n_b: int, paired: bool) -> float:
    """The smallest p that a permutation test of so many values can reach."""
    return float(2.0 ** (1 - n_a)) if paired else 2 / math.comb(n_a + n_b, n_a)


def _variance(x: Values) -> float:
    values = np.asarray(x, dtype=np.float64)
    # Equal values have none; computed, the rounding of their mean would be taken for a spread.
    return 0.0 if values.min() == values.max() else float(values.var(ddof=1))


def _few(n_a: int, n_b: int, paired: bool) -> float:
    """Hedges' correction: with few values the difference in standard deviations comes out too large."""
    degrees = n_a - 1 if paired else n_a + n_b - 2
    return (
        math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees - 1) / 2)) / math.sqrt(degrees / 2)
        if degrees > 1
        else 1.0
    )


def _share(value: float, what: str) -> None:
    if not 0 < value < 1:
        raise UsageError("not-a-share", f"{what} is {value!r}.", f"{what} is a number between 0 and 1.")
