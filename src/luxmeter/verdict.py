"""Is B slower than A? An answer that refuses to call noise a difference.

Used wherever two things are compared: traces, benchmarks, training runs with several seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from luxmeter.errors import UsageError
from luxmeter.stats import (
    Floats,
    Interval,
    Values,
    cliffs_delta,
    false_discovery,
    fewest_for_median,
    fewest_for_signs,
    floats,
    hodges_lehmann,
    median_interval,
    paired_shift,
    paired_test,
    rank_test,
    series_interval,
    shared_variances,
    sign_test,
    steady_mean,
)

Call: TypeAlias = Literal["higher", "lower", "same", "unclear"]
FEWEST_LOOKS = 8  # at one thing twice, from which on their spread is known well enough to be reckoned with
_EXCLUDED = 3.3  # standard errors: a change that is so far off is one of a thousand
_HALVINGS = 10
_FEW_SESSIONS = 3  # that two results are: how far all moves together is hardly known


@dataclass(frozen=True)
class Comparison:
    """B against A. `call` says whether B is higher or lower, the same for all purposes, or unclear; `why` in words.

    `shift` is B minus A (Hodges-Lehmann), `relative` the same as a share of A's median, `threshold` the relative
    difference below which nothing is called a difference (the noise floor, or the smallest that matters).
    """

    call: Call
    why: str
    n_a: int
    n_b: int
    median_a: float
    median_b: float
    shift: Interval
    relative: Interval
    p_value: float
    cliffs_delta: float
    threshold: float
    more_samples: int


@dataclass(frozen=True)
class Regression:
    """Something that got worse beyond chance and noise: `change` as a share (None: it does not work any more), `why` in words."""

    name: str
    kind: str
    change: float | None
    why: str


@dataclass(frozen=True)
class Wander:
    """What looking again showed: how far the median of one thing moves from one look to the next, beyond what its times tell.

    `each` is the relative spread (a standard deviation) of one look at one thing, `together` that of all things at once, which a
    busy minute moves alike; `looks` is from how many pairs they are known, `freedom` how heavy their tails are (of Student's t).
    """

    each: float = 0.0
    together: float = 0.0
    looks: int = 0
    freedom: float = 30.0

    def drawn(self, things: int, draws: int, rng: np.random.Generator) -> Floats:
        """Differences between two looks that may be had of so many things: one row a thing."""
        alone = rng.standard_t(self.freedom, (things, draws)) * self.each * math.sqrt(2)
        shared = rng.standard_t(_FEW_SESSIONS, draws) * self.together * math.sqrt(2)
        return np.asarray(alone + shared[None, :], dtype=np.float64)


def wander(sessions: Sequence[Sequence[tuple[Values, Values]]]) -> Wander | None:
    """From pairs of looks at the same thing each, those of one session together; None if they are too few to tell how they spread.

    The spread is what makes the gaps, each over all that is known to move it, as large as chance (Paule and Mandel, 1982): a
    thing whose own times tell little says little here.
    """
    few = fewest_for_median()  # below which a median's error is not known
    pairs = [
        [(floats(a), floats(b)) for a, b in session if min(len(a), len(b)) >= few] for session in sessions
    ]
    if sum(map(len, pairs)) < FEWEST_LOOKS:
        return None
    moved = [
        np.array([math.log(np.median(b) / np.median(a)) for a, b in session]) for session in pairs if session
    ]
    known = np.array([_log_error(a) ** 2 + _log_error(b) ** 2 for session in pairs for a, b in session])
    gaps = np.concatenate(moved)
    variance = _common_variance(gaps, known)
    scaled = gaps / np.sqrt(np.maximum(variance + known, 1e-18))
    heavy = float(np.mean((scaled - scaled.mean()) ** 4) / max(1e-18, float(scaled.var()) ** 2)) - 3
    # The excess of a sample's fourth moment tells the tails' weight: 6 / (freedom - 4) of Student's t.
    freedom = min(4 + 6 / max(heavy, 0.3), len(gaps) - 1)
    shared = [max(0.0, float(np.median(m)) ** 2 - 1.57 * float(m.var()) / len(m)) for m in moved]
    return Wander(math.sqrt(variance / 2), math.sqrt(float(np.mean(shared)) / 2), len(gaps), freedom)


def _common_variance(gaps: Floats, known: Floats) -> float:
    """v with sum(gaps**2 / (v + known)) = their number; 0 if what is known explains them."""

    def excess(v: float) -> float:
        return float(np.sum(gaps**2 / np.maximum(v + known, 1e-18))) - len(gaps)

    low, high = 0.0, float(np.max(gaps**2)) + 1e-12
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def noise_floor(repeats: Sequence[Values]) -> float:
    """From A/A measurements (the same thing measured several times): the relative difference that means nothing.

    The differences between two runs' medians that 95 % of such pairs stay under; with few runs the largest seen.
    """
    if len(repeats) < 2:
        raise UsageError(
            "too-few-repeats",
            f"A noise floor needs two or more measurements; got {len(repeats)}.",
            "Measure again.",
        )
    medians = np.array([np.median(floats(r)) for r in repeats])
    first, second = np.triu_indices(len(medians), k=1)
    gaps = np.abs(medians[first] - medians[second]) / np.minimum(
        np.abs(medians[first]), np.abs(medians[second])
    )
    return float(np.quantile(gaps, 0.95, method="higher"))


def drift(values: Values, *, blocks: int = 8) -> float:
    """The noise floor seen inside one series: how much its medians wander from block to block beyond chance.

    Neighbouring times resemble each other (frequency, cache, other programs), which a test of independent values
    does not know; what the blocks show above their sampling error is taken as one draw a run.
    """
    x = floats(values)
    blocks = min(blocks, len(x) // 5)
    if blocks < 2 or np.median(x) == 0:
        return 0.0
    parts = np.array_split(x, blocks)
    medians = np.array([np.median(part) for part in parts])
    errors = [(i.high - i.low) / 2 / 1.96 for i in (median_interval(part) for part in parts)]
    excess = max(0.0, float(medians.var(ddof=1)) - float(np.mean(np.square(errors))))
    return float(1.96 * math.sqrt(2 * excess) / abs(np.median(x)))


def compare(
    a: Values,
    b: Values,
    *,
    noise: float | None = None,
    smallest: float = 0.01,
    alpha: float = 0.01,
    confidence: float = 0.95,
    paired: bool = False,
    wander: Wander | None = None,
) -> Comparison:
    """Is B different from A, beyond chance (`alpha`) and beyond noise?

    `noise` is a measured floor (`noise_floor`); without one the series' own `drift` is used. `wander`, what looking again
    showed, is part of chance. `smallest` is the smallest relative difference that matters. "same" is claimed only if the whole
    interval lies inside that band.
    """
    x, y = floats(a), floats(b)
    shift = (
        paired_shift(x, y, confidence=confidence) if paired else hodges_lehmann(x, y, confidence=confidence)
    )
    p = paired_test(x, y) if paired else rank_test(x, y)
    if wander is not None:
        gap, spread = _gap_of_looks(x, y, wander)
        p = max(p, _chance_of_looks(gap, spread, wander.freedom))
        half = 1.96 * spread * float(np.median(y))  # at least as wide as looks are apart
        low, high = min(shift.low, shift.estimate - half), max(shift.high, shift.estimate + half)
        shift = replace(shift, low=low, high=high)
    scale = abs(float(np.median(x)))
    relative = _scaled(shift, scale)
    floor = max(drift(x), drift(y)) if noise is None else noise
    found = Comparison(
        call="unclear", why="", n_a=len(x), n_b=len(y), median_a=float(np.median(x)), median_b=float(np.median(y)),
        shift=shift, relative=relative, p_value=p, cliffs_delta=cliffs_delta(x, y),
        threshold=max(floor, smallest), more_samples=0,
    )  # fmt: skip
    return _judged(found, alpha=alpha, paired=paired)


def compare_many(
    pairs: Mapping[str, tuple[Values, Values]],
    *,
    noise: float | None = None,
    smallest: float = 0.01,
    share_of_errors: float = 0.01,
    confidence: float = 0.95,
    paired: bool = False,
    wander: Wander | None = None,
) -> dict[str, Comparison]:
    """`compare` for each name, with p-values corrected for their number (Benjamini-Hochberg)."""
    found = {
        name: compare(
            a, b, noise=noise, smallest=smallest, confidence=confidence, paired=paired, wander=wander
        )
        for name, (a, b) in pairs.items()
    }
    adjusted = false_discovery([c.p_value for c in found.values()])
    return {
        name: _judged(replace(c, p_value=p), alpha=share_of_errors, paired=paired)
        for (name, c), p in zip(found.items(), adjusted, strict=True)
    }


def compare_in_turns(
    things: Mapping[str, Sequence[tuple[Values, Values]]],
    *,
    smallest: float = 0.01,
    share_of_errors: float = 0.01,
    confidence: float = 0.95,
    find: float = 0.0,
) -> dict[str, Comparison]:
    """B against A of each thing, measured in turns: of each round, A's and B's times of the same turns.

    Turns of one round share their processes and are not independent; rounds are. So each round gives one ratio, and how far these differ
    from round to round is chance. Two tests are made of them, and the smaller p-value counts double: `sign_test`, which takes some rounds
    (`rounds_to_tell`) and then needs no noise to have a shape; and Student's t, which with fewer rounds finds what is large, and in which
    one thing's variance learns from the others' (`shared_variances`). What was left out (`still_open`) has not changed by `find`, and no
    smaller change of it is called. p-values are corrected for the number of things (Benjamini-Hochberg).
    """
    from scipy.special import stdtr, stdtrit

    if not things:
        return {}
    ratios = {name: log_ratios(rounds) for name, rounds in things.items()}
    rounds = max(map(len, ratios.values()))
    middles, errors, freedoms = _steady(list(ratios.values()))
    plain_variances, plain_freedoms = _plain(list(ratios.values()))
    found = {}
    for place, (name, logs) in enumerate(ratios.items()):
        middle, error, freedom = float(middles[place]), float(errors[place]), float(freedoms[place])
        half = float(stdtrit(freedom, (1 + confidence) / 2)) * error if freedom else math.inf
        p = sign_test(logs)
        if plain_freedoms[place]:
            off = abs(float(logs.mean())) / math.sqrt(float(plain_variances[place]) / len(logs))
            p = min(p, float(2 * stdtr(plain_freedoms[place], -off)))
        low, high = math.expm1(middle - half), math.expm1(middle + half) if half < 700 else math.inf
        relative = Interval(math.expm1(middle), low, high, confidence)
        x, y = (np.concatenate([floats(side[i]) for side in things[name]]) for i in (0, 1))
        a, b = float(np.median(x)), float(np.median(y))
        shift = Interval(relative.estimate * a, low * a, high * a, confidence)
        found[name] = Comparison(
            call="unclear", why="", n_a=len(logs), n_b=len(logs), median_a=a, median_b=b, shift=shift, relative=relative,
            p_value=min(1.0, 2 * p), cliffs_delta=float(np.sign(y - x).mean()), more_samples=0,
            threshold=max(smallest, find) if len(logs) < rounds else smallest,
        )  # fmt: skip
    adjusted = false_discovery([c.p_value for c in found.values()])
    return {
        name: _judged(replace(c, p_value=p), alpha=share_of_errors, paired=True, least_p=0.0)
        for (name, c), p in zip(found.items(), adjusted, strict=True)
    }


def rounds_to_tell(things: int, *, share_of_errors: float = 0.05) -> int:
    """The fewest rounds in which one change among so many things can be called, if all rounds agree, whatever the noise is like."""
    return fewest_for_signs(share_of_errors / (2 * max(1, things)))


def still_open(ratios: Sequence[Floats], change: float) -> list[bool]:
    """Of things measured in turns: might each still have changed by so much? Another round of one that has not tells nothing new.

    What is left out thus is not called a change, and what is not left out is judged by all its rounds, whose number nobody chose by
    what they gave. So nothing more is called falsely than if all had been measured to the end.
    """
    middles, errors, freedoms = _steady(ratios)
    limit = math.log1p(change)
    return [
        not freedom or abs(middle) + _EXCLUDED * error > limit
        for middle, error, freedom in zip(middles, errors, freedoms, strict=True)
    ]


def _steady(ratios: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Of each: a mean that a few wild rounds do not move, its standard error, and that one's degrees of freedom (0: not known)."""
    known = [steady_mean(r) for r in ratios]
    counts = np.array([len(r) for r in ratios], dtype=np.float64)
    means, own, freedoms = (np.array(column, dtype=np.float64) for column in zip(*known, strict=True))
    variances, shared = shared_variances(own * counts, freedoms)
    return means, np.where(shared > 0, np.sqrt(variances / counts), np.inf), shared


def _plain(ratios: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Of each: the variance of its rounds, wild ones included, and its degrees of freedom."""
    own = [float(r.var(ddof=1)) if len(r) > 1 else 0.0 for r in ratios]
    return shared_variances(own, [len(r) - 1 for r in ratios])


def found_in_turns(
    ratios: Sequence[Floats], find: float, *, smallest: float, share_of_errors: float, power: float = 0.95
) -> list[float]:
    """Of things measured in turns: the change of each that would be called in `power` of all cases, were it the only one; inf: none.

    One that was left out (`still_open`) would have had all rounds, had it changed by `find`.
    """
    from scipy.special import ndtri

    if not ratios:
        return []
    middles, errors, freedoms = _steady(ratios)
    plain, plain_freedoms = _plain(ratios)
    alpha = share_of_errors / (2 * len(ratios))
    rounds = max(map(len, ratios))
    found = []
    for i, r in enumerate(ratios):
        if not freedoms[i]:
            found.append(math.inf)
            continue
        left_out = len(r) < rounds
        n = rounds if left_out and find else len(r)
        error = float(errors[i]) * math.sqrt(len(r) / n)
        by_signs = _found_by_signs(np.resize(r - middles[i], n), alpha) + float(ndtri(power)) * error
        by_t = _found(math.sqrt(plain[i] / n), float(plain_freedoms[i]), alpha, smallest, power)
        least = math.expm1(math.log1p(smallest) + float(ndtri(power)) * error)
        known = max(least, min(by_t, math.expm1(min(700.0, by_signs))))
        found.append(max(known, find) if left_out else known)
    return found


def _found_by_signs(noise: Floats, alpha: float) -> float:
    """How far such rounds must be moved until they are called."""
    if sign_test(np.full(len(noise), 1.0)) >= alpha:
        return math.inf
    low, high = 0.0, float(np.abs(noise).max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if sign_test(noise + middle) < alpha else (middle, high)
    return high


def found_by_looks(
    pairs: Sequence[tuple[Values, Values]],
    wander: Wander,
    *,
    smallest: float,
    share_of_errors: float,
    power: float = 0.95,
) -> list[float]:
    """The same of things measured one after the other, from what looking again showed."""
    alpha = share_of_errors / max(1, len(pairs))
    return [
        _found(_gap_of_looks(floats(a), floats(b), wander)[1], wander.freedom, alpha, smallest, power)
        for a, b in pairs
    ]


def _found(error: float, freedom: float, alpha: float, smallest: float, power: float) -> float:
    """The change whose estimate, off by `error`, is beyond chance and beyond what is the smallest, in `power` of all cases."""
    from scipy.special import ndtri, stdtrit

    if not freedom or not math.isfinite(error):
        return math.inf
    chance = float(ndtri(1 - alpha / 2) if math.isinf(freedom) else stdtrit(freedom, 1 - alpha / 2))
    limit = max(chance * error, math.log1p(smallest)) + float(ndtri(power)) * error
    return math.expm1(min(700.0, limit))


def log_ratios(rounds: Sequence[tuple[Values, Values]]) -> Floats:
    """Of each round, the logarithm of B's time over A's: the median over its turns."""
    return np.array([np.median(np.log(floats(b) / floats(a))) for a, b in rounds], dtype=np.float64)


def _chance_of_looks(gap: float, spread: float, freedom: float) -> float:
    """How likely two looks at one thing are so far apart: Student's t, with tails as heavy as theirs."""
    from scipy.special import stdtr

    if gap == 0:
        return 1.0
    return float(2 * stdtr(freedom, -abs(gap) / spread)) if spread else 0.0


def _gap_of_looks(x: Floats, y: Floats, wander: Wander) -> tuple[float, float]:
    gap = math.log(np.median(y) / np.median(x))
    return gap, math.sqrt(2 * wander.each**2 + _log_error(x) ** 2 + _log_error(y) ** 2)


def _log_error(x: Floats) -> float:
    """The spread of the logarithm of a series' median, neighbouring times not taken for independent."""
    interval = series_interval(x)
    return (interval.high - interval.low) / (2 * 1.96 * interval.estimate) if interval.estimate > 0 else 0.0


def _judged(c: Comparison, *, alpha: float, paired: bool, least_p: float | None = None) -> Comparison:
    """With its call; `least_p` is the smallest p-value that so many values can have, where that is not a rank test's."""
    r, limit = c.relative, c.threshold
    reachable = 2 ** (1 - c.n_a) if paired else 2 / math.comb(c.n_a + c.n_b, c.n_a)
    reachable = reachable if least_p is None else least_p
    if c.p_value < alpha and abs(r.estimate) > limit and not (r.low <= 0 <= r.high):
        call: Call = "higher" if r.estimate > 0 else "lower"
        return replace(c, call=call, why=f"{r.estimate:+.1%}, p {c.p_value:.2g}", more_samples=0)
    if reachable >= alpha:
        need = next(n for n in range(2, 64) if (2 ** (1 - n) if paired else 2 / math.comb(2 * n, n)) < alpha)
        more = max(1, need - min(c.n_a, c.n_b))
        why = f"{c.n_a} and {c.n_b} values cannot reach p < {alpha:g}; {need} of each can"
        return replace(c, call="unclear", why=why, more_samples=more)
    if -limit <= r.low and r.high <= limit:
        return replace(c, call="same", why=f"within {limit:.1%} either way", more_samples=0)
    if c.p_value < alpha and abs(r.estimate) <= limit:
        why = f"{r.estimate:+.1%} is not above the noise of {limit:.1%}"
        return replace(c, call="unclear", why=why, more_samples=_more_for(c, limit))
    why = f"{r.estimate:+.1%} may be chance (p {c.p_value:.2g})"
    return replace(c, call="unclear", why=why, more_samples=_more_for(c, limit))


def _more_for(c: Comparison, limit: float) -> int:
    """More values a side until the interval is narrow enough to lie inside or outside the band."""
    half = (c.relative.high - c.relative.low) / 2
    room = abs(abs(c.relative.estimate) - limit) or limit
    n = min(c.n_a, c.n_b)
    if not math.isfinite(half) or room == 0:
        return n
    return max(1, min(math.ceil(n * (half / room) ** 2) - n, 1_000_000))


def _scaled(shift: Interval, scale: float) -> Interval:
    if scale == 0:
        away = [math.copysign(math.inf, v) if v else 0.0 for v in (shift.estimate, shift.low, shift.high)]
        return Interval(away[0], away[1], away[2], shift.coverage)
    return Interval(shift.estimate / scale, shift.low / scale, shift.high / scale, shift.coverage)
