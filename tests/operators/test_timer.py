"""The timer on a clock that the test moves: block sizes, warm-up, goals and budgets are exact."""

from __future__ import annotations

import gc
import random
import time

import pytest

from luxmeter import verdict
from luxmeter.errors import UsageError
from luxmeter.operators.timer import clock_error_ns, measure, measure_interleaved


class Clock:
    """Time that passes only when a callable says so, and 50 ns for each look at it."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 50
        return self.now

    def task(self, cost_ns):
        """A callable that takes so long; `cost_ns` is a number or gives one for each call."""

        def run() -> None:
            self.now += int(cost_ns() if callable(cost_ns) else cost_ns)

        return run


def test_a_steady_task_is_measured_fast_and_right() -> None:
    clock = Clock()
    found = measure(clock.task(2000), clock=clock)
    assert found.status == "ok" and found.why == ""
    assert found.median_s == pytest.approx(2e-6, rel=0.01)
    assert found.clock_error <= 0.01
    assert found.calls_per_block == 25  # 50 us of 2 us calls
    assert found.total_s < 0.05


@pytest.mark.parametrize("cost_ns", [1, 40, 700, 30_000, 10_000_000])
def test_block_size_keeps_the_clock_error_below_a_percent(cost_ns: int) -> None:
    clock = Clock()
    found = measure(clock.task(cost_ns), clock=clock, budget_s=0.2)
    assert clock_error_ns(clock) == 50
    assert found.clock_error < 0.01
    assert found.median_s == pytest.approx(cost_ns * 1e-9, rel=0.01)


def test_warm_up_lasts_until_steady() -> None:
    clock = Clock()
    colder = iter([9, 8, 7, 6, 5, 4, 3.5, 3, 2.5, 2, 1.8, 1.6, 1.4, 1.2])
    found = measure(clock.task(lambda: next(colder, 1) * 1e6), clock=clock, budget_s=2.0)
    assert found.first_s == pytest.approx(9e-3, rel=0.01)
    assert found.warmup_calls > 14
    assert max(found.times_s) == pytest.approx(1e-3, rel=0.01)


def test_a_noisy_task_goes_on_until_narrow_enough() -> None:
    clock, chance = Clock(), random.Random(0)
    noisy = clock.task(lambda: chance.lognormvariate(0, 0.3) * 1e6)
    wide = measure(noisy, clock=clock, target_ci=0.1, budget_s=10, shortest_s=0)
    narrow = measure(noisy, clock=clock, target_ci=0.02, budget_s=10, shortest_s=0)
    assert wide.status == narrow.status == "ok"
    assert narrow.interval.relative_half_width <= 0.02
    assert len(narrow.times_s) > 4 * len(wide.times_s)
    assert narrow.interval.low <= 1e-3 <= narrow.interval.high


def test_a_used_up_budget_is_said() -> None:
    clock, chance = Clock(), random.Random(1)
    found = measure(clock.task(lambda: chance.lognormvariate(0, 1) * 1e6), clock=clock, budget_s=0.1)
    assert found.status == "doubtful"
    assert "more times needed" in found.why
    assert found.total_s < 0.2
    few = measure(clock.task(40_000_000), clock=clock, budget_s=0.1)
    assert few.status == "doubtful" and "too few" in few.why


def test_times_beyond_the_most_are_joined_and_the_budget_is_used() -> None:
    clock, chance = Clock(), random.Random(3)
    found = measure(
        clock.task(lambda: chance.lognormvariate(0, 1) * 1e6),
        clock=clock,
        budget_s=5,
        target_ci=1e-9,
        most_samples=100,
    )
    assert 50 <= len(found.times_s) <= 100 and found.calls_per_block > 8
    assert found.calls_per_block * len(found.times_s) > 0.6 * 5e9 / 1.65e6  # the mean of a call is 1.65 ms
    assert found.status == "doubtful" and 5 <= found.total_s < 5.5


def test_one_call_whatever_the_budget() -> None:
    clock = Clock()
    found = measure(clock.task(5_000_000_000), clock=clock, budget_s=0.1)
    assert found.times_s == pytest.approx((5.0,))
    assert found.status == "doubtful" and "first call" in found.why
    assert measure(clock.task(1000), clock=clock, budget_s=0).status == "doubtful"


def test_wandering_times_are_not_taken_for_independent() -> None:
    """Two speeds in long stretches: 600 values, but only a few stretches' worth of knowledge."""
    clock = Clock()
    calls = 0

    def cost() -> int:
        nonlocal calls
        calls += 1
        return 1_000_000 if (calls // 60) % 2 else 1_300_000

    found = measure(clock.task(cost), clock=clock, target_ci=0.05, budget_s=0.6, shortest_s=0.5)
    assert found.status == "doubtful"
    assert found.interval.relative_half_width > 0.05


def test_reset_is_not_timed_and_sync_is() -> None:
    clock = Clock()
    resets = 0

    def reset() -> None:
        nonlocal resets
        resets += 1
        clock.now += 10_000_000

    found = measure(clock.task(1_000_000), clock=clock, reset=reset, sync=clock.task(500_000))
    assert found.median_s == pytest.approx(1.5e-3, rel=0.01)
    assert resets >= len(found.times_s)


def test_interleaved_pairs_share_what_the_machine_does() -> None:
    clock, chance = Clock(), random.Random(2)
    weather = [1.0]

    def cost(base: float):
        def now() -> float:
            weather[0] = min(2.0, max(0.5, weather[0] * chance.lognormvariate(0, 0.02)))
            return base * weather[0] * chance.lognormvariate(0, 0.005)

        return now

    fns = {"a": clock.task(cost(1e6)), "b": clock.task(cost(1.04e6)), "a2": clock.task(cost(1e6))}
    found = measure_interleaved(fns, clock=clock, target_ci=0.01, budget_s=0.3)
    n = min(len(m.times_s) for m in found.values())
    a, b, a2 = (found[name].times_s[:n] for name in ("a", "b", "a2"))
    assert verdict.compare(a, b, paired=True, noise=0.0).call == "higher"
    assert verdict.compare(a, a2, paired=True, noise=0.0).call != "higher"


def test_the_collector_is_put_back() -> None:
    assert gc.isenabled()
    seen = []
    measure(lambda: seen.append(gc.isenabled()), budget_s=0.001)
    assert not any(seen) and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0)
    assert gc.isenabled()


def test_the_real_clock() -> None:
    found = measure(lambda: time.sleep(0.001), target_ci=0.5, budget_s=0.5)
    assert found.median_s >= 0.001
    assert found.summary.min >= 0.001 and found.summary.n == len(found.times_s)


@pytest.mark.parametrize("goal", [{"target_ci": 0}, {"budget_s": -1}])
def test_bad_goals(goal: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="bad-measuring-goal"):
        measure(lambda: None, **goal)
