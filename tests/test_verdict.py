"""The verdict calls real differences and refuses noise."""

from __future__ import annotations

import numpy as np
import pytest

from luxmeter import verdict
from luxmeter.errors import UsageError


def wandering(rng: np.random.Generator, n: int, *, level: float, wander: float, spread: float) -> np.ndarray:
    """Times with a slow wave (frequency, neighbours) under their own scatter, as real machines give them."""
    steps = rng.normal(0, 1, n)
    slow = np.zeros(n)
    for i in range(1, n):
        slow[i] = 0.97 * slow[i - 1] + steps[i] * np.sqrt(1 - 0.97**2)
    return level * (1 + wander * slow) * rng.lognormal(0, spread, n)


def test_a_real_difference_is_called() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(0, 0.05, 60), 1.08 * rng.lognormal(0, 0.05, 60)
    found = verdict.compare(a, b)
    assert found.call == "higher"
    assert found.relative.estimate == pytest.approx(0.08, abs=0.03)
    back = verdict.compare(b, a)
    assert back.call == "lower"


def test_noise_is_refused() -> None:
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(300):
        a, b = rng.lognormal(0, 0.1, 40), rng.lognormal(0, 0.1, 40)
        wrong += verdict.compare(a, b).call in ("higher", "lower")
    assert wrong <= 6  # alpha is 1 %


def test_wandering_series_do_not_fool_it() -> None:
    """A plain rank test takes two stretches of one wandering series for different things; the verdict seldom does."""
    rng = np.random.default_rng(2)
    fooled_test = fooled_verdict = 0
    for _ in range(100):
        a = wandering(rng, 200, level=1.0, wander=0.05, spread=0.02)
        b = wandering(rng, 200, level=1.0, wander=0.05, spread=0.02)
        found = verdict.compare(a, b)
        fooled_test += found.p_value < 0.01
        fooled_verdict += found.call in ("higher", "lower")
    assert fooled_test > 50
    assert fooled_verdict < 10


def test_a_known_noise_floor_counts() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(1, 0.01, 100), rng.normal(1.05, 0.01, 100)
    assert verdict.compare(a, b, noise=0.02).call == "higher"
    refused = verdict.compare(a, b, noise=0.22)
    assert refused.call == "same" and refused.threshold == 0.22
    near = verdict.compare(a, b, noise=refused.relative.estimate + 1e-4)
    assert near.call == "unclear" and "not above the noise" in near.why


def test_same_needs_proof() -> None:
    rng = np.random.default_rng(4)
    close = verdict.compare(rng.normal(1, 0.01, 200), rng.normal(1, 0.01, 200))
    assert close.call == "same"
    wide = verdict.compare(rng.normal(1, 0.2, 12), rng.normal(1, 0.2, 12))
    assert wide.call == "unclear" and wide.more_samples > 12


def test_too_few_values_are_said_so() -> None:
    few = verdict.compare([1.0, 1.1, 1.2], [2.0, 2.1, 2.2])
    assert few.call == "unclear"
    assert "3 and 3 values cannot reach p < 0.01; 5 of each can" in few.why and few.more_samples == 2
    assert verdict.compare([1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.2, 2.3, 2.4]).call == "higher"
    assert verdict.compare([1.0], [2.0], paired=True).call == "unclear"


def test_pairs_see_through_shared_noise() -> None:
    rng = np.random.default_rng(5)
    wave = np.repeat(rng.lognormal(0, 0.3, 40), 1)
    a, b = wave * rng.normal(1, 0.002, 40), 1.03 * wave * rng.normal(1, 0.002, 40)
    assert verdict.compare(a, b, noise=0.01).call == "unclear"
    assert verdict.compare(a, b, noise=0.01, paired=True).call == "higher"


def test_many_comparisons_are_corrected() -> None:
    rng = np.random.default_rng(6)
    pairs = {f"op{i}": (rng.normal(1, 0.1, 20), rng.normal(1, 0.1, 20)) for i in range(400)}
    pairs["slower"] = (rng.normal(1, 0.1, 20), rng.normal(1.5, 0.1, 20))
    single = [verdict.compare(a, b, noise=0.0).call for a, b in pairs.values()]
    many = verdict.compare_many(pairs, noise=0.0)
    assert sum(c in ("higher", "lower") for c in single) > 1
    assert [name for name, c in many.items() if c.call in ("higher", "lower")] == ["slower"]
    assert verdict.compare_many({}) == {}


def test_noise_floor_of_repeats() -> None:
    assert verdict.noise_floor([[1.0, 1.0], [1.22, 1.22]]) == pytest.approx(0.22)
    assert verdict.noise_floor([[1.0]] * 3) == 0.0
    with pytest.raises(UsageError, match="too-few-repeats"):
        verdict.noise_floor([[1.0, 2.0]])


def test_drift_sees_waves_and_not_chance() -> None:
    rng = np.random.default_rng(7)
    assert np.median([verdict.drift(rng.lognormal(0, 0.05, 200)) for _ in range(30)]) < 0.02
    assert verdict.drift(wandering(rng, 400, level=2.0, wander=0.1, spread=0.01)) > 0.1
    assert verdict.drift([1.0, 2.0]) == 0.0


def test_equal_and_zero_values() -> None:
    assert verdict.compare([1.0] * 10, [1.0] * 10).call == "same"
    assert verdict.compare([1.0] * 10, [2.0] * 10).call == "higher"
    assert verdict.compare([0.0] * 10, [0.0] * 10).call == "same"
    assert verdict.compare([0.0] * 10, [1.0] * 10).call == "higher"
    assert verdict.compare([-1.0] * 10, [-2.0] * 10).call == "lower"
