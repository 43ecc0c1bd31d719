"""Statistics for measured times: intervals without assumptions, rank tests, effect sizes, many comparisons.

Times are skewed, have outliers and are not normal, so everything here rests on order and ranks. All functions
are pure; where chance is needed (the bootstrap) the seed is an argument.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from luxmeter.errors import UsageError
from luxmeter.late import late

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = late("numpy")

Floats: TypeAlias = "NDArray[np.float64]"
Values: TypeAlias = "Sequence[float] | NDArray[np.floating] | NDArray[np.integer]"

# Pairwise differences are n * m numbers; past this many values a side they are thinned to evenly spaced quantiles.
_MOST_PAIRED = 250
_FEWEST_STEADY = 6  # values, from which on some are told to be far from the rest
_STEPS = 100  # of how much a value counts in a test of signs
_EXACT_RANKS = 40  # up to here the null distribution of U is counted, above it is normal to four digits


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; `coverage` is what the method really reaches (few values: less)."""

    estimate: float
    low: float
    high: float
    coverage: float

    @property
    def relative_half_width(self) -> float:
        """The wider half of the interval as a share of the estimate."""
        if self.estimate == 0:
            return 0.0 if self.low == self.high else math.inf
        return max(self.high - self.estimate, self.estimate - self.low) / abs(self.estimate)


@dataclass(frozen=True)
class Summary:
    """What is shown of many raw values."""

    n: int
    median: float
    ci_low: float
    ci_high: float
    p5: float
    p95: float
    mean: float
    min: float


def median_interval(values: Values, *, confidence: float = 0.95) -> Interval:
    """The median and its distribution-free interval from order statistics.

    Between the two nearest exact coverages it interpolates (Hettmansperger and Sheather, 1986). Fewer values than
    the confidence needs (6 for 95 %) give the whole range and say so by a smaller `coverage`.
    """
    x = np.sort(floats(values))
    n = len(x)
    rank, share, coverage = _median_ranks(n, confidence)
    low, high = x[rank], x[n - 1 - rank]
    if share > 0:
        # Clipped: of two equal values the sum may be a last bit more.
        low = np.clip(share * x[rank + 1] + (1 - share) * low, low, x[rank + 1])
        high = np.clip(share * x[n - 2 - rank] + (1 - share) * high, x[n - 2 - rank], high)
    return Interval(float(np.median(x)), float(low), float(high), coverage)


def series_interval(values: Values, *, confidence: float = 0.95, batches: int = 12) -> Interval:
    """The median of values taken one after another, with an interval that minds their resemblance to neighbours.

    The wider of two: order statistics of all values (right if they are independent), and order statistics of the
    medians of consecutive stretches (batch means, with medians: right if the stretches are).
    """
    x = floats(values)
    plain = median_interval(x, confidence=confidence)
    if len(x) < 4 * batches:
        return plain
    medians = np.array([np.median(part) for part in np.array_split(x, batches)])
    spread = median_interval(medians, confidence=confidence)
    low = min(plain.low, spread.low - spread.estimate + plain.estimate)
    high = max(plain.high, spread.high - spread.estimate + plain.estimate)
    return Interval(plain.estimate, low, high, plain.coverage)


def bootstrap_interval(
    values: Values,
    *,
    statistic: Callable[..., NDArray[np.float64]] | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """A percentile bootstrap interval of any statistic that takes an `axis`, such as np.mean or np.median."""
    from scipy.stats import bootstrap

    x = floats(values)
    statistic = statistic or np.median
    estimate = float(statistic(x, axis=-1))
    if len(x) == 1 or x.min() == x.max():
        return Interval(estimate, estimate, estimate, 0.0 if len(x) == 1 else confidence)
    found = bootstrap(
        (x,),
        statistic,
        n_resamples=resamples,
        method="percentile",
        confidence_level=confidence,
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(estimate, float(found.low), float(found.high), confidence)


def summarize(values: Values, *, confidence: float = 0.95) -> Summary:
    """Count, median with interval, 5th and 95th percentile, mean and minimum."""
    x = floats(values)
    middle = median_interval(x, confidence=confidence)
    p5, p95 = np.percentile(x, [5, 95])
    return Summary(
        len(x),
        middle.estimate,
        middle.low,
        middle.high,
        float(p5),
        float(p95),
        float(x.mean()),
        float(x.min()),
    )


def rank_test(a: Values, b: Values) -> float:
    """Two-sided p-value of the Mann-Whitney U test; exact for small samples without ties."""
    from scipy.stats import mannwhitneyu

    x, y = floats(a), floats(b)
    if x.min() == x.max() == y.min() == y.max():
        return 1.0
    return float(mannwhitneyu(x, y, alternative="two-sided").pvalue)


def paired_test(a: Values, b: Values) -> float:
    """Two-sided p-value of the Wilcoxon signed-rank test on pairs (interleaved measurements)."""
    from scipy.stats import wilcoxon

    differences = _differences(a, b)
    if not differences.any():
        return 1.0
    return float(wilcoxon(differences, alternative="two-sided").pvalue)


def cliffs_delta(a: Values, b: Values) -> float:
    """P(b > a) - P(b < a): 0 when nothing separates them, 1 when every b is above every a."""
    x, y = np.sort(floats(a)), floats(b)
    above = np.searchsorted(x, y, side="left").sum()
    below = (len(x) - np.searchsorted(x, y, side="right")).sum()
    return float((int(above) - int(below)) / (len(x) * len(y)))


def hodges_lehmann(a: Values, b: Values, *, confidence: float = 0.95) -> Interval:
    """The median of all b - a, with the interval got by turning the rank test around (Moses)."""
    x, y = _thinned(floats(a)), _thinned(floats(b))
    gaps = np.sort(np.subtract.outer(y, x), axis=None)
    n, m = len(x), len(y)
    rank, coverage = _shift_rank(n, m, confidence)
    # Thinned samples count as many as were measured: the interval is narrower by the root of what was left out.
    low, high = float(gaps[rank]), float(gaps[n * m - 1 - rank])
    middle = float(np.median(gaps))
    kept = math.sqrt(min(n / len(a), m / len(b)))
    return Interval(middle, middle - (middle - low) * kept, middle + (high - middle) * kept, coverage)


def paired_shift(a: Values, b: Values, *, confidence: float = 0.95) -> Interval:
    """The median of b - a over pairs, with its order-statistics interval."""
    return median_interval(_differences(a, b), confidence=confidence)


def steady_mean(values: Values) -> tuple[float, float, float]:
    """A mean that values far from the rest do not move, its variance, and the variance's degrees of freedom.

    Tukey's biweight about the median, six median deviations wide, with the degrees that Mosteller and Tukey give it (1977); of fewer
    than six values, of which none can be told to be far from the rest, the plain mean.
    """
    mean, parts = steady_parts(values)
    n = len(parts)
    variance = float((parts**2).sum()) * n / (n - 1) if n > 1 else 0.0
    return mean, variance, n - 1.0 if n < _FEWEST_STEADY else 0.7 * (n - 1)


def steady_parts(values: Values) -> tuple[float, Floats]:
    """`steady_mean`, and how far each value moves it."""
    x = floats(values)
    middle = float(np.median(x))
    width = 6 * float(np.median(np.abs(x - middle)))
    if len(x) < _FEWEST_STEADY or width == 0:
        return float(x.mean()), (x - x.mean()) / len(x)
    u = (x - middle) / width
    v = np.minimum(u**2, 1)
    weights = (1 - v) ** 2
    mean = middle + float(((x - middle) * weights).sum() / weights.sum())
    slopes = float(((1 - v) * (1 - 5 * v))[v < 1].sum())
    return mean, (x - middle) * weights / max(1e-12, slopes)


def sign_test(values: Values) -> float:
    """Two-sided p-value of "as likely below zero as above it by as much", exact: what all the signs might have been is reckoned.

    How much a value counts hangs on its size alone, so no shape of the noise is assumed: it grows with the size and falls to nothing at four
    typical sizes (Tukey's biweight), because one wild value shall not hide what all the others say.
    """
    size = np.abs(floats(values))
    width = 4 * float(np.median(size))
    if width == 0:
        return 1.0
    u = np.minimum(size / width, 1)
    counts = np.rint(u * (1 - u**2) ** 2 * _STEPS).astype(int)
    found = abs(int((counts * np.sign(floats(values))).sum()))
    ways = np.ones(1)  # of each sum of those that might be above zero
    for count in counts[counts > 0].tolist():
        more = np.zeros(len(ways) + count)
        more[: len(ways)] += ways / 2
        more[count:] += ways / 2
        ways = more
    total = len(ways) - 1
    sums = np.abs(2 * np.arange(total + 1) - total)
    return min(1.0, float(ways[sums >= found].sum()))


def fewest_for_signs(alpha: float) -> int:
    """The fewest values with which `sign_test` can reach `alpha`: all of one sign."""
    return 1 + math.ceil(-math.log2(_between(alpha)))


def shared_variances(variances: Values, freedoms: Values) -> tuple[Floats, Floats]:
    """Variances of many things from few values each, and their degrees of freedom, when each learns from all the others.

    How far they differ beyond chance tells how much (empirical Bayes: Smyth, 2004); one that is larger than that explains keeps its own.
    """
    from scipy.special import digamma, fdtr, polygamma

    own, d = np.asarray(variances, dtype=np.float64), np.asarray(freedoms, dtype=np.float64)
    some = d > 0
    if not some.any():
        return np.full(len(own), np.nan), np.zeros(len(own))
    least = max(1e-18, 1e-6 * float(np.median(own[some])))
    half = d[some] / 2
    logs = np.log(np.maximum(own[some], least)) - digamma(half) + np.log(half)
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean()) if len(logs) > 1 else math.inf
    most = float(d.sum())  # no more is known of all than all have
    prior = 0.0 if excess == math.inf else most if excess <= 0 else min(most, 2 * _trigamma_inverse(excess))
    if prior == 0:
        return np.maximum(own, least), d
    level = math.exp(float(logs.mean()) + float(digamma(prior / 2)) - math.log(prior / 2))
    shared = (prior * level + d * np.maximum(own, least)) / (prior + d)
    odd = some & (1 - fdtr(np.maximum(d, 1), prior, own / level) < 0.01)
    return np.where(odd, np.maximum(own, shared), shared), np.where(odd, d, prior + d)


def _trigamma_inverse(y: float) -> float:
    """x with trigamma(x) = y, by Newton's method on 1 / trigamma, which is nearly straight."""
    from scipy.special import polygamma

    if y > 1e7:
        return 1 / math.sqrt(y)
    x = 0.5 + 1 / y
    for _ in range(50):
        found = float(polygamma(1, x))
        step = found * (1 - found / y) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-8 * x:
            break
    return x


def false_discovery(p_values: Values) -> list[float]:
    """Benjamini-Hochberg adjusted p-values, in the order given: compare them with the share of errors you accept."""
    from scipy.stats import false_discovery_control

    if len(p_values) == 0:
        return []
    return [float(p) for p in np.atleast_1d(false_discovery_control(np.asarray(p_values, dtype=np.float64)))]


def fewest_for_median(confidence: float = 0.95) -> int:
    """The fewest values with which an interval of the median can reach `confidence`."""
    return math.ceil(1 - math.log2(1 - _between(confidence)))


def floats(values: Values) -> Floats:
    """The values as an array; none at all, or one that is not finite, is an error."""
    x = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(x) == 0:
        raise UsageError("no-values", "Statistics of no values were asked for.", "Measure at least once.")
    if not np.isfinite(x).all():
        odd = x[~np.isfinite(x)][0]
        raise UsageError("not-finite", f"A value to be compared is {odd}.", "Leave out failed measurements.")
    return x


def _differences(a: Values, b: Values) -> Floats:
    x, y = floats(a), floats(b)
    if len(x) != len(y):
        raise UsageError(
            "not-paired",
            f"Pairs need as many values a side; got {len(x)} and {len(y)}.",
            "Pass paired=False.",
        )
    return np.asarray(y - x, dtype=np.float64)


def _thinned(x: Floats) -> Floats:
    if len(x) <= _MOST_PAIRED:
        return x
    return np.asarray(np.quantile(x, (np.arange(_MOST_PAIRED) + 0.5) / _MOST_PAIRED), dtype=np.float64)


def _between(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise UsageError(
            "bad-confidence", f"A confidence of {confidence!r} is none.", "Use one such as 0.95."
        )
    return confidence


@functools.lru_cache(maxsize=4096)
def _median_ranks(n: int, confidence: float) -> tuple[int, float, float]:
    """(rank from each end, share of the next one, coverage reached) for the interval of a median of n values."""
    from scipy.special import bdtr

    alpha = 1 - _between(confidence)
    if n == 1:
        return 0, 0.0, 0.0

    def coverage_at(k: int) -> float:
        return 1 - 2 * float(bdtr(k, n, 0.5))

    if coverage_at(0) < confidence:
        return 0, 0.0, coverage_at(0)
    # The normal guess is off by one at most; walk to the last rank that still covers.
    rank = max(0, int(n / 2 - _z(alpha) * math.sqrt(n) / 2) - 2)
    while rank > 0 and coverage_at(rank) < confidence:
        rank -= 1
    while coverage_at(rank + 1) >= confidence:
        rank += 1
    outer, inner = coverage_at(rank), coverage_at(rank + 1)
    if n - 2 - rank < rank + 1:
        return rank, 0.0, outer
    wish = (outer - confidence) / (outer - inner)
    share = (n - rank - 1) * wish / ((rank + 1) + (n - 2 * (rank + 1)) * wish)
    return rank, share, confidence


@functools.lru_cache(maxsize=1024)
def _shift_rank(n: int, m: int, confidence: float) -> tuple[int, float]:
    """(rank from each end among the n * m sorted differences, coverage reached)."""
    alpha = 1 - _between(confidence)
    if max(n, m) > _EXACT_RANKS:
        rank = n * m / 2 - _z(alpha) * math.sqrt(n * m * (n + m + 1) / 12) - 0.5
        return max(0, math.floor(rank)), confidence
    below = np.cumsum(_rank_sums(n, m)) / math.comb(n + m, n)  # below[k] = P(U <= k)
    # With `rank` differences left out at each end, a tail is missed with P(U <= rank).
    rank = max(0, int(np.searchsorted(below, alpha / 2, side="right")) - 1)
    return rank, 1 - 2 * float(below[rank])


def _rank_sums(n: int, m: int) -> Floats:
    """How many of the orders of n and m values have U = 0, 1, ..., n * m (f(n,m,u) = f(n-1,m,u-m) + f(n,m-1,u))."""
    row = [np.ones(1) for _ in range(m + 1)]
    for i in range(1, n + 1):
        fresh = [np.ones(1)]
        for j in range(1, m + 1):
            counts = np.zeros(i * j + 1)
            counts[j:] += row[j]
            counts[: i * (j - 1) + 1] += fresh[j - 1]
            fresh.append(counts)
        row = fresh
    return row[m]


def _z(alpha: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(1 - alpha / 2))
