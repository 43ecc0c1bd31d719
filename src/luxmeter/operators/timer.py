"""Calibrated, warmed-up measuring of a callable -> raw times.

    measure(lambda: torch.mm(a, b)).interval

Warm-up lasts until calls no longer get faster. Calls are timed in blocks long enough that the clock's own error is
below 1 %, and measuring goes on until the median's confidence interval is narrow enough or the budget is used up;
then the result says that it is doubtful, and why. Raw times are kept.
"""

from __future__ import annotations

import functools
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from luxmeter import stats
from luxmeter.errors import UsageError

CLOCK_SHARE = 0.01  # the clock's error may be this share of a block at most
_SHORTEST_BLOCK_NS = 50_000  # below this, single interrupts and cache misses make up whole blocks
_STEADY_GAIN = 0.02  # warm-up ends when a stretch is not this much faster than the one before
_LONGEST_BLOCK_NS = 200e6  # of calls that share one wait for a device
_WARMUP_SHARE = 0.3  # of the budget at most
_BATCHES = 12  # stretches whose medians show what neighbouring times have in common


@dataclass(frozen=True)
class Measurement:
    """The raw times of one callable and how they were got. Times are seconds a call, one for each block."""

    times_s: tuple[float, ...]
    calls_per_block: int
    first_s: float
    warmup_calls: int
    warmup_s: float
    total_s: float
    clock_error: float
    target_ci: float
    confidence: float
    status: Literal["ok", "doubtful"]
    why: str = ""

    @functools.cached_property
    def interval(self) -> stats.Interval:
        """The median with its confidence interval, neighbouring times not taken for independent."""
        return stats.series_interval(self.times_s, confidence=self.confidence, batches=_BATCHES)

    @functools.cached_property
    def summary(self) -> stats.Summary:
        """Count, median and interval, percentiles, mean and minimum, in seconds."""
        found = stats.summarize(self.times_s, confidence=self.confidence)
        return replace(found, ci_low=self.interval.low, ci_high=self.interval.high)

    @property
    def median_s(self) -> float:
        """The median time of a call."""
        return self.interval.estimate


@dataclass
class _Job:
    """One callable while it is being measured."""

    fn: Callable[[], Any]
    sync: Callable[[], Any] | None
    reset: Callable[[], Any] | None
    clock: Callable[[], int]
    block: int = 1
    first_ns: int = 0
    warmup_ns: int = 0
    warmup_calls: int = 0
    spent_ns: int = 0
    sums_ns: list[int] = field(default_factory=list)
    next_look: int = 0
    done: bool = False

    def run(self, count: int) -> int:
        """Nanoseconds for `count` calls."""
        fn, clock, sync = self.fn, self.clock, self.sync
        if self.reset is not None:
            self.reset()
        if sync is not None:
            sync()
        turns = itertools.repeat(None, count)
        start = clock()
        for _ in turns:
            fn()
        if sync is not None:
            sync()
        taken = clock() - start
        self.spent_ns += taken
        return taken


def measure(
    fn: Callable[[], Any],
    *,
    target_ci: float = 0.02,
    budget_s: float = 1.0,
    confidence: float = 0.95,
    shortest_s: float = 0.02,
    most_samples: int = 5000,
    sync: Callable[[], Any] | None = None,
    queued: bool = False,
    reset: Callable[[], Any] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Measurement:
    """Measure `fn()` until its median is known to `target_ci` (a share of it, either way) or `budget_s` is used up.

    `sync` waits for a device and is part of the time; `reset` puts inputs back before each block and is not.
    With `queued`, calls return before they are done, and as many share one wait as makes it small.
    At least `shortest_s` is measured, so that a lucky moment is not taken for the machine. `fn` is called at
    least once, whatever the budget. Past `most_samples` times, neighbouring blocks are joined.
    """
    return measure_interleaved(
        {"it": fn}, target_ci=target_ci, budget_s=budget_s, confidence=confidence, shortest_s=shortest_s,
        most_samples=most_samples, sync=sync, queued=queued, resets={} if reset is None else {"it": reset}, clock=clock,
    )["it"]  # fmt: skip


def measure_interleaved(
    fns: Mapping[str, Callable[[], Any]],
    *,
    target_ci: float = 0.02,
    budget_s: float = 1.0,
    confidence: float = 0.95,
    shortest_s: float = 0.02,
    most_samples: int = 5000,
    sync: Callable[[], Any] | None = None,
    queued: bool = False,
    resets: Mapping[str, Callable[[], Any]] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, Measurement]:
    """Measure several callables in turns, block by block, so that what the machine does meets all alike.

    Their n-th times belong together (`verdict.compare(..., paired=True)`). Budget and `shortest_s` are for each.
    """
    if target_ci <= 0 or budget_s < 0:
        raise UsageError(
            "bad-measuring-goal",
            f"Cannot measure to a width of {target_ci!r} within {budget_s!r} s.",
            "Give a target_ci above 0, such as 0.02, and a budget_s of 0 or more.",
        )
    jobs = {name: _Job(fn, sync, (resets or {}).get(name), clock) for name, fn in fns.items()}
    fewest = stats.fewest_for_median(confidence)
    stats.median_interval(
        range(fewest), confidence=confidence
    )  # scipy is imported now, not inside the measurement
    begin = clock()
    with without_collecting():
        for job in jobs.values():
            _warm_up(job, budget_ns=budget_s * 1e9, error_ns=clock_error_ns(clock))
            if queued:
                _widen(job, budget_ns=budget_s * 1e9)
            job.next_look = fewest
        waiting = [job for job in jobs.values() if job.spent_ns < budget_s * 1e9]
        while waiting:
            for job in waiting:
                job.sums_ns.append(job.run(job.block))
                if not job.done and len(job.sums_ns) >= job.next_look:
                    job.done = _narrow(job, target_ci, confidence) and job.spent_ns >= shortest_s * 1e9
                    job.next_look = max(job.next_look + 1, int(job.next_look * 1.25))
            # All go on until all are done, so that pairs stay pairs; a spent budget ends only its own job.
            if all(job.done for job in waiting):
                break
            waiting = [job for job in waiting if job.spent_ns < budget_s * 1e9]
            if any(len(job.sums_ns) >= most_samples for job in waiting):
                for job in jobs.values():
                    _halve(job)
    total_s = (clock() - begin) / 1e9
    return {name: _result(job, target_ci, confidence, total_s) for name, job in jobs.items()}


@functools.lru_cache(maxsize=8)
def clock_error_ns(clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """What reading this clock twice costs, or its resolution if that is coarser."""
    gaps = [-(clock() - clock()) for _ in range(2000)]
    steps = [gap for gap in gaps if gap > 0]
    return float(np.median(steps)) if steps else 1.0


class WarmCallable:
    """A callable that stays warm and is timed a few blocks at a time, in turns with one of another process."""

    def __init__(
        self,
        fn: Callable[[], Any],
        *,
        block_s: float,
        warmup_s: float,
        sync: Callable[[], Any] | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Warm up for at most `warmup_s` (one call at least) and choose how many calls take `block_s`."""
        self._job = _Job(fn, sync, None, clock)
        with without_collecting():
            _warm_up(
                self._job,
                budget_ns=warmup_s * 1e9 / _WARMUP_SHARE,
                error_ns=clock_error_ns(clock),
                shortest_ns=block_s * 1e9,
            )
            self.calls_per_block = self._job.block
            self.call_s = self._job.run(self.calls_per_block) / self.calls_per_block / 1e9

    def turn(self, *, blocks: int, calls: int) -> list[float]:
        """Seconds a call, of each of so many blocks of so many calls; if there are several blocks, after a call that warms caches."""
        with without_collecting():
            if blocks > 1:
                self._job.run(1)
            return [self._job.run(calls) / calls / 1e9 for _ in range(blocks)]


def _warm_up(
    job: _Job, *, budget_ns: float, error_ns: float, shortest_ns: float = _SHORTEST_BLOCK_NS
) -> None:
    """Call until it is steady, then choose the block size."""
    job.first_ns = job.run(1)
    job.warmup_calls = 1
    wanted_ns = max(error_ns / CLOCK_SHARE, shortest_ns)
    limit_ns = budget_ns * _WARMUP_SHARE
    stretch: list[float] = []
    before = float("inf")
    count = 1
    while job.spent_ns < limit_ns:
        taken = job.run(count)
        job.warmup_calls += count
        if taken < wanted_ns and count < 1 << 30:
            # Not yet a block: aim straight at the size, but trust one reading for a factor of ten only.
            count = max(count + 1, min(count * 10, int(count * wanted_ns / max(taken, 1) * 1.1) + 1))
            stretch.clear()
            continue
        stretch.append(taken / count)
        if len(stretch) == 3:
            now = float(np.median(stretch))
            if now > before * (1 - _STEADY_GAIN):
                count = max(1, min(count, -int(-wanted_ns // now)))
                break
            before = now
            stretch.clear()
    job.block = count
    job.warmup_ns = job.spent_ns


def _widen(job: _Job, *, budget_ns: float) -> None:
    """Let more calls share one wait, as they do in a program, until that makes a call no cheaper."""
    limit_ns, most_ns = job.spent_ns + budget_ns * 0.2, min(_LONGEST_BLOCK_NS, budget_ns / 10)
    wider, misses = job.block, 0
    taken = job.run(wider)
    cost = taken / wider
    while misses < 2 and taken < most_ns and job.spent_ns + 4 * taken < limit_ns:
        wider *= 4
        taken = job.run(wider)
        job.warmup_calls += wider
        if taken / wider < cost * 0.95:
            cost, job.block, misses = taken / wider, wider, 0
        else:
            misses += 1
    job.warmup_ns = job.spent_ns


def _halve(job: _Job) -> None:
    """Neighbouring blocks become one: half as many, twice as long, so that any budget can be used to its end."""
    sums = job.sums_ns[: len(job.sums_ns) // 2 * 2]
    job.sums_ns = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    job.block *= 2
    job.next_look = len(job.sums_ns) + 1


def _narrow(job: _Job, target: float, confidence: float) -> bool:
    interval = stats.series_interval(job.sums_ns, confidence=confidence, batches=_BATCHES)
    return interval.coverage >= confidence and interval.relative_half_width <= target


def _result(job: _Job, target: float, confidence: float, total_s: float) -> Measurement:
    why = ""
    sums, block = job.sums_ns, job.block
    if not sums:
        sums, block, why = (
            [job.first_ns],
            1,
            "the budget was used up by the first call, which is the one shown",
        )
    times = tuple(ns / block / 1e9 for ns in sums)
    clock_error = clock_error_ns(job.clock) / max(1.0, float(np.median(sums)))
    interval = stats.series_interval(times, confidence=confidence, batches=_BATCHES)
    if not why and interval.coverage < confidence:
        why = f"{len(times)} times are too few for a confidence of {confidence:.0%}"
    elif not why and interval.relative_half_width > target:
        width = interval.relative_half_width
        more = math.ceil(len(times) * ((width / target) ** 2 - 1)) if math.isfinite(width) else len(times)
        why = f"median known to ±{width:.1%} only, about {more} more times needed"
        if stats.median_interval(times, confidence=confidence).relative_half_width <= target:
            why = f"median known to ±{width:.1%} only: times wander, something else may be running"
    elif not why and clock_error > CLOCK_SHARE:
        why = f"the clock's error is {clock_error:.1%} of a block"
    return Measurement(
        times_s=times, calls_per_block=block, first_s=job.first_ns / 1e9, warmup_calls=job.warmup_calls,
        warmup_s=job.warmup_ns / 1e9, total_s=total_s, clock_error=clock_error, target_ci=target,
        confidence=confidence, status="doubtful" if why else "ok", why=why,
    )  # fmt: skip


@contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection inside: it would be charged to whoever runs then, and few of a run's objects are garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
