"""Intervals, tests and effect sizes against known values, their coverage, and properties."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from luxmeter import stats
from luxmeter.errors import UsageError

times = st.lists(st.floats(min_value=1e-9, max_value=1e3, allow_nan=False), min_size=1, max_size=60)


def test_median_interval_known_ranks() -> None:
    # n = 20 at 95 %: the 6th and the 15th value cover 95.9 % (table of the sign test); the interpolated
    # interval for 95 % lies just inside.
    exact = stats.median_interval(range(1, 21), confidence=0.9586)
    assert (exact.low, exact.high) == pytest.approx((6, 15), abs=0.01)
    interval = stats.median_interval(range(1, 21))
    assert interval.estimate == 10.5
    assert interval.low == pytest.approx(6.235, abs=1e-3) and interval.high == pytest.approx(14.765, abs=1e-3)
    assert interval.coverage == 0.95


def test_too_few_values_say_so() -> None:
    few = stats.median_interval([3.0, 1.0, 2.0])
    assert (few.low, few.high) == (1.0, 3.0)
    assert few.coverage == pytest.approx(1 - 2 * 0.5**3)
    assert stats.median_interval([5.0]).coverage == 0.0
    assert stats.fewest_for_median(0.95) == 6
    assert stats.median_interval(range(6)).coverage == 0.95
    assert stats.median_interval(range(5)).coverage < 0.95


@pytest.mark.parametrize("n", [6, 9, 25, 80])
def test_median_interval_covers(n: int) -> None:
    rng = np.random.default_rng(n)
    hits = 0
    for sample in rng.lognormal(0, 1, (1500, n)):
        interval = stats.median_interval(sample)
        hits += interval.low <= 1.0 <= interval.high
    assert 0.93 < hits / 1500 < 0.975  # interpolation is good to about a percent


def test_bootstrap_agrees_with_order_statistics() -> None:
    sample = np.random.default_rng(0).lognormal(0, 0.2, 200)
    by_order, by_bootstrap = stats.median_interval(sample), stats.bootstrap_interval(sample, seed=1)
    assert by_bootstrap == stats.bootstrap_interval(sample, seed=1)
    assert by_bootstrap.low == pytest.approx(by_order.low, rel=0.02)
    assert by_bootstrap.high == pytest.approx(by_order.high, rel=0.02)
    mean = stats.bootstrap_interval(sample, statistic=np.mean)
    assert mean.low < sample.mean() < mean.high
    assert stats.bootstrap_interval([2.0, 2.0, 2.0]).low == 2.0


def test_rank_tests_known_values() -> None:
    # Two complete separations: 2 / C(10, 5), and 2 / 2**6 for pairs.
    assert stats.rank_test([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert stats.paired_test([1, 2, 3, 4, 5, 6], [2.1, 3.2, 4.3, 5.4, 6.5, 7.6]) == pytest.approx(2 / 64)
    assert stats.rank_test([1, 1], [1, 1]) == 1.0
    assert stats.paired_test([1, 2], [1, 2]) == 1.0


def test_effect_sizes_known_values() -> None:
    assert stats.cliffs_delta([1, 2, 3], [4, 5, 6]) == 1.0
    assert stats.cliffs_delta([1, 2, 3], [1, 2, 3]) == 0.0
    assert stats.cliffs_delta([1, 2], [2, 3]) == pytest.approx(3 / 4)


def test_hodges_lehmann_known_values() -> None:
    # Hollander and Wolfe, example 4.5 (water in the placenta at term and earlier): 0.305 and, at 96 %, (-0.15, 0.76).
    at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    earlier = [1.15, 0.88, 0.90, 0.74, 1.21]
    found = stats.hodges_lehmann(earlier, at_term, confidence=0.96)
    assert found.estimate == pytest.approx(0.305)
    assert found.low == pytest.approx(-0.15) and found.high == pytest.approx(0.76)


@pytest.mark.parametrize("sizes", [(4, 5), (12, 9), (60, 45)])
def test_shift_interval_covers(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    hits = 0
    for _ in range(600):
        found = stats.hodges_lehmann(rng.exponential(1, sizes[0]), rng.exponential(1, sizes[1]) + 3)
        hits += found.low <= 3 <= found.high
    assert hits / 600 > 0.93


def test_large_samples_are_thinned_not_refused() -> None:
    rng = np.random.default_rng(0)
    found = stats.hodges_lehmann(rng.normal(10, 1, 100_000), rng.normal(10.1, 1, 100_000))
    assert found.low < 0.1 < found.high
    assert found.high - found.low < 0.05


def test_false_discovery_known_values() -> None:
    # Benjamini and Hochberg's 15 p-values: the four smallest stay below 5 %.
    ps = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    adjusted = stats.false_discovery(ps)
    assert sum(p < 0.05 for p in adjusted) == 4
    assert adjusted[0] == pytest.approx(0.0015)
    assert stats.false_discovery(ps[::-1]) == adjusted[::-1]
    assert stats.false_discovery([]) == []


@example([1.0, 1.0, 1.0, 1.0, 3.4, 3.4])
@given(times)
def test_interval_holds_its_estimate_and_lies_in_the_data(values: list[float]) -> None:
    interval = stats.median_interval(values)
    assert min(values) <= interval.low <= interval.estimate <= interval.high <= max(values)
    summary = stats.summarize(values)
    assert summary.n == len(values) and summary.min <= summary.p5 <= summary.p95


@given(times, times)
def test_turning_the_question_round_turns_the_answer(a: list[float], b: list[float]) -> None:
    assert stats.cliffs_delta(a, b) == -stats.cliffs_delta(b, a)
    there, back = stats.hodges_lehmann(a, b), stats.hodges_lehmann(b, a)
    assert there.estimate == pytest.approx(-back.estimate, abs=1e-9)
    assert there.low == pytest.approx(-back.high, abs=1e-9)
    assert there.low <= there.estimate <= there.high


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=40))
def test_adjusting_never_lowers_a_p_value(ps: list[float]) -> None:
    adjusted = stats.false_discovery(ps)
    assert all(0 <= p <= q + 1e-12 <= 1 + 1e-9 for p, q in zip(ps, adjusted, strict=True))
    assert [x for _, x in sorted(zip(ps, adjusted, strict=True))] == sorted(adjusted)


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 12))
def test_rank_sums_count_all_orders(n: int, m: int) -> None:
    counts = stats._rank_sums(n, m)
    assert counts.sum() == math.comb(n + m, n)
    assert (counts == counts[::-1]).all()


@pytest.mark.parametrize(
    ("call", "slug"),
    [
        (lambda: stats.median_interval([]), "no-values"),
        (lambda: stats.rank_test([1.0], [float("nan")]), "not-finite"),
        (lambda: stats.paired_shift([1.0], [1.0, 2.0]), "not-paired"),
        (lambda: stats.median_interval([1.0, 2.0], confidence=95), "bad-confidence"),
    ],
)
def test_bad_input(call, slug: str) -> None:
    with pytest.raises(UsageError, match=slug):
        call()


def test_signs_are_reckoned_exactly() -> None:
    rng = np.random.default_rng(4)
    for n in (1, 2, 5, 9):
        x = rng.standard_t(2, n) + 0.5
        size = np.abs(x)
        u = np.minimum(size / (4 * np.median(size)), 1)
        counts = np.rint(u * (1 - u**2) ** 2 * 100)
        every = [abs(float((counts * signs).sum())) for signs in itertools.product((-1, 1), repeat=n)]
        wanted = np.mean(np.array(every) >= abs(float((counts * np.sign(x)).sum())))
        assert stats.sign_test(x) == pytest.approx(wanted)
    assert stats.sign_test([0.0, 0.0, 0.0]) == 1.0
    fewest = stats.fewest_for_signs(1e-4)
    assert stats.sign_test([0.1] * fewest) <= 1e-4 < stats.sign_test([0.1] * (fewest - 1))


def test_one_wild_value_hides_nothing() -> None:
    x = [0.05 + 0.001 * i for i in range(-8, 9)]
    assert stats.sign_test([*x, -9.0]) == stats.sign_test(x) < 1e-4
    mean, variance, freedom = stats.steady_mean([*x, -9.0])
    assert mean == pytest.approx(0.05, abs=1e-3) and variance < 0.002**2 and 11 < freedom < 13
    assert stats.steady_mean([1.0, 3.0]) == (2.0, pytest.approx(1.0), 1.0)  # too few to call one wild
    mean, parts = stats.steady_parts(x)
    assert mean == pytest.approx(0.05) and float((parts**2).sum()) * 17 / 16 == pytest.approx(
        stats.steady_mean(x)[1]
    )


def test_a_steady_mean_is_as_far_off_as_it_says() -> None:
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        wild = np.where(rng.random(16) < 0.1, 20.0, 1.0)
        mean, variance, freedom = stats.steady_mean(rng.normal(size=16) * wild)
        inside += abs(mean) < float(stdtrit(freedom, 0.95)) * variance**0.5
    assert 0.85 < inside / 400 < 0.95
