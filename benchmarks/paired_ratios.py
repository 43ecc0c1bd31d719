"""Contenders that take turns with a bare loop in one process: the turns, and the table with the interval of each one's ratio to it."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Callable
from statistics import median

Paired = tuple[list[float], list[float]]  # seconds of a bare loop and of a contender, turn by turn
FOR_EVER = 1_000_000_000  # epochs: a loop goes on until its process ends
TOLD = 3  # the file that results go to: standard output is the contenders'


class Turns:
    """What a loop calls: `begin` before its first batch, itself after each unit of its work (a batch, an epoch).

    In there it waits for its next turn. A turn is `length` units long; the time of `pieces` turns is one measurement, of `count`.
    """

    def __init__(self, length: int, count: int, *, pieces: int = 1) -> None:
        self.other: Turns | None = None  # whose turn comes next
        self.first: Turns | None = None  # who has the first one, if another
        self.ready = threading.Event()  # at its first batch
        self.taken: list[float] = []  # seconds; the first one warms up
        self._length, self._count, self._pieces = length, count, pieces
        self._units, self._turns, self._spent, self._start = 0, 0, 0.0, 0.0
        self._may = threading.Semaphore(0)

    def begin(self) -> None:
        if os.environ.get("TELL_FIRST_STEP"):
            tell(f"first step {time.time()}")
        if self.first is not None:
            self.first._may.release()
        self.ready.set()
        self._wait()

    def __call__(self, settle: Callable[[], object] = lambda: None) -> None:
        """A unit is done; `settle`: wait until what it left to others is on disk (asked at the end of a measurement)."""
        self._units += 1
        if self._units < self._length:
            return
        self._turns += 1
        if is_whole := self._turns == self._pieces:
            settle()
        self._spent += time.perf_counter() - self._start
        assert self.other is not None
        if is_whole:
            self.taken.append(self._spent)
            self._turns, self._spent = 0, 0.0
            if min(len(self.taken), len(self.other.taken)) > self._count:
                tell(json.dumps([self.other.taken[1:], self.taken[1:]]))
        self.other._may.release()
        self._wait()

    def _wait(self) -> None:
        self._may.acquire()
        if not self._turns:
            gc.collect()
        self._units, self._start = 0, time.perf_counter()


def take_output() -> None:
    """What is printed goes nowhere from here on: a terminal's speed is no matter of the contenders'. Results go to `tell`."""
    os.dup2(1, TOLD)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def tell(line: str) -> None:
    """To who started this process, which ends with it."""
    os.write(TOLD, f"{line}\n".encode())
    os._exit(0)


def report(title: str, times: dict[str, list[Paired]], *, steps: int, goal: float) -> bool:
    """Print times[name][round], and as JSON; whether luxmeter's interval lies below the goal (true where it took no part).

    A round counts by the median ratio of its turns.
    """
    from luxmeter.stats import median_interval

    print(f"{title}: medians, and the interval of the paired ratio")
    rows, width = {}, max(map(len, times))
    for name, taken in times.items():
        rounds = [median(o / b for b, o in zip(base, own, strict=True)) for base, own in taken]
        ratio = median_interval(rounds)
        step_us = median(turn for _, own in taken for turn in own) / steps * 1e6
        rows[name] = {
            "step_us": step_us,
            "ratio": ratio.estimate,
            "low": ratio.low,
            "high": ratio.high,
            "rounds": rounds,
        }
        said = f"{ratio.estimate:.3f}x of bare (95 %: {ratio.low:.3f} to {ratio.high:.3f})"
        print(f"  {name:{width}} {step_us:8.1f} us a step   {said}")
    is_met = "luxmeter" not in rows or rows["luxmeter"]["high"] <= goal
    if "luxmeter" in rows:
        print(f"upper end of luxmeter's interval: {rows['luxmeter']['high']:.3f} (goal: at most {goal})")
    print(json.dumps({"rows": rows, "goal": goal, "met": is_met}))
    return is_met
