"""The same operators on two sides (two interpreters, or one under two settings), measured in turns: what the machine does meets both alike.

One process a side holds a prepared case, and they are timed a millisecond at a time: A B, B A, A B ... A round goes through all cases in
a pair of new processes, because what a process happens to be given (addresses, pages) makes one a little faster than its equal; the next
round has another pair. So rounds are independent of each other, the turns within one are not. With one thread both sides run on the same
processor, round by round another one: on two processors equal work differed by three times as much.

Rounds go on where it is undecided: a case of which the rounds so far exclude that it changed by as much as is looked for (`find`) has no
more, so the budget is spent on the others. None has fewer rounds for having been called.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from luxmeter import environment, stats, verdict
from luxmeter.isolate import Outcome
from luxmeter.operators.jobs import Job
from luxmeter.operators.options import BenchOptions
from luxmeter.operators.results import MEASURED, BenchResult, Row, row_of, unscaled, with_speedup
from luxmeter.progress import track

_TURN_S = 0.001
_BLOCKS = 4  # of a turn, if calls are quick
_BESIDE_TURN_S = 0.0003  # to ask for a turn, and the call that warms up for it
_FEWEST_TURNS, _MOST_TURNS = 4, 12  # of a case in a round; more tell less than another round does
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 64
ROUNDS_BEFORE = 5  # that a case is left out
_LONG_TURN_S = 0.02  # of both sides: only of turns this long are there as few as two
_RECENT = 200  # cases, from which is reckoned what the next one takes
_START_S, _CASE_S = 4.0, 0.05  # what a round takes, until one has been seen: to begin, and for each case
FIND = 0.05
_WARMUP_S = 0.03
_ALIKE = 1.5  # sides whose blocks have numbers of calls within this factor have the same number
_WORK = "luxmeter.operators.work"


class _Workers(Protocol):
    """Of a backend: what `isolate.Pool` is."""

    def start(self) -> None: ...

    def run(self, work: str, args: dict[str, Any], *, timeout_s: float) -> Outcome: ...


class _Pools(Protocol):
    """Of a side: what `engine.Pools` is."""

    def of(self, backend: str) -> _Workers: ...

    def renew(self) -> None: ...

    def versions(self) -> dict[str, Any]: ...


@dataclass
class _Case:
    """One row to be, of one side."""

    job: Job
    found: dict[str, Any] = field(default_factory=dict)
    times_s: list[float] = field(default_factory=list)
    turns_s: list[tuple[float, ...]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.found.get("status", "ok") not in MEASURED

    def row(self, target_ci: float) -> Row:
        found = self.found
        if not self.failed and self.times_s:
            interval = stats.series_interval(self.times_s)
            found = {**found, "times_s": self.times_s, "ci_low_s": interval.low, "ci_high_s": interval.high}
            width = interval.relative_half_width
            if interval.coverage < 0.95 or width > target_ci:
                why = f"median known to ±{width:.1%} only (measured in turns: the ratio of the sides is known better)"
                found |= {
                    "status": "doubtful",
                    "reason": "; ".join(filter(None, [why, found.get("reason", "")])),
                }
        row = row_of(self.job.base, found)
        turns = () if self.failed else tuple(self.turns_s)
        row = replace(row, turns_s=turns)
        return unscaled(row, self.job.unscaled) if self.job.unscaled else row


@dataclass
class Side:
    """One of the two: how it is measured, where, and its cases, in the order of the other's."""

    options: BenchOptions
    pools: _Pools
    jobs: Sequence[Job]
    cases: list[_Case] = field(init=False)

    def __post_init__(self) -> None:
        self.cases = [_Case(job) for job in self.jobs]


class TurnsEngine:
    """Measures two sides in turns within the first's budget."""

    def __init__(
        self, sides: tuple[Side, Side], *, find: float = FIND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`find` is the change that is looked for; with 0 no case is left out."""
        self._sides, self._clock, self._find = sides, clock, find
        self._budget_s = sides[0].options.budget_s
        self._deadline = clock() + self._budget_s
        self._todo = [i for i, jobs in enumerate(zip(sides[0].jobs, sides[1].jobs, strict=True))
                      if all(job.beforehand is None for job in jobs)]  # fmt: skip
        wanted = int(self._budget_s / (_START_S + _CASE_S * len(self._todo)))
        self._rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, wanted))
        self._start_s = _START_S
        self._besides: list[float] = []  # seconds of a case beside its turns
        self._stretch: list[float] = []  # by how much turns took longer than their work
        self._round_s: list[float] = []  # what a case took of the last round
        self._number = -1
        self._left_in_round = 0

    def run(self, *, whole: tuple[int, int] | None = None) -> tuple[BenchResult, BenchResult]:
        """A row for each job on each side; after Ctrl-C, for those that were done."""
        machine = environment.collect()
        known: list[dict[str, Any]] = [{}, {}]
        done: set[int] = set(range(len(self._sides[0].jobs))) - set(self._todo)
        for side in self._sides:
            for i in done:
                side.cases[i].found = side.jobs[i].beforehand or {"status": "unsupported", "reason": "not on the other side"}  # fmt: skip
        progress = track(self._plan(), "benchmarking in turns", quiet=self._sides[0].options.quiet)
        try:
            for number, i in progress:
                job = self._sides[0].jobs[i]
                progress.note(self._standing(job.base["op"]))
                self._measure(i, number)
                done.add(i)
            known = [side.pools.versions() for side in self._sides]
        except KeyboardInterrupt:  # the second one: the case at hand is given up, what is done is not
            progress.interrupted = True
        together = uuid.uuid4().hex
        results = []
        for side, told in zip(self._sides, known, strict=True):
            rows = [side.cases[i].row(side.options.target_ci) for i in sorted(done)]
            complete = len(rows) == len(side.jobs)
            results.append(
                BenchResult(
                    tuple(with_speedup(rows)),
                    {**machine, **told},
                    None,
                    complete,
                    whole,
                    together,
                    self._find,
                )
            )
        return results[0], results[1]

    def _plan(self) -> Iterator[tuple[int, int]]:
        """(round, case) as long as there is time: the cases in their order, then in others, so that one's neighbours in memory change."""
        rng = np.random.default_rng(self._sides[0].options.seed)
        for number in range(_MOST_ROUNDS):
            self._todo = self._undecided(number)
            if not self._todo or (number >= _FEWEST_ROUNDS and not self._fits()):
                return
            begin = self._clock()
            self._begin_round(number)
            order = np.array(self._todo, dtype=int)
            for place, i in enumerate(order if number == 0 else rng.permutation(order)):
                self._left_in_round = len(order) - place
                yield number, int(i)
            self._round_s = [(self._clock() - begin - self._start_s) / len(order)]

    def _undecided(self, number: int) -> list[int]:
        """Of the cases that had all rounds so far, those that may have changed by what is looked for."""
        a, b = self._sides
        able = [i for i in self._todo if len(a.cases[i].turns_s) == len(b.cases[i].turns_s) == number]
        if number < ROUNDS_BEFORE or not able or not self._find:
            return able
        ratios = [
            verdict.log_ratios(list(zip(a.cases[i].turns_s, b.cases[i].turns_s, strict=True))) for i in able
        ]
        return [i for i, is_open in zip(able, verdict.still_open(ratios, self._find), strict=True) if is_open]

    def _fits(self) -> bool:
        """Most of another round would be within the budget."""
        wanted_s = self._start_s + sum(self._round_s) * len(self._todo)
        return self._clock() + wanted_s / 2 < self._deadline

    def _standing(self, op: str) -> str:
        left_s = max(0.0, self._deadline - self._clock())
        return f"round {self._number + 1}, {len(self._todo)} of {len(self._sides[0].jobs)} rows undecided, {left_s:.0f} s left: {op}"

    def _in_order(self, number: int) -> tuple[Side, Side]:
        """Who comes first changes from round to round."""
        a, b = self._sides
        return (a, b) if number % 2 == 0 else (b, a)

    def _begin_round(self, number: int) -> None:
        begin = self._clock()
        self._number = number
        for side in self._in_order(number):
            side.pools.renew()
            for backend in {side.jobs[i].args["backend"]: None for i in self._todo}:
                side.pools.of(backend).start()
        self._start_s = self._clock() - begin

    def _measure(self, i: int, number: int) -> None:
        """One case on both sides in turns; on one alone if the other fails at once, so that its row has times."""
        sides = self._in_order(number)
        begin = self._clock()
        held = {id(side): self._ask(side, i, "hold_one", self._holding(side, i, number)) for side in sides}
        for side in sides:
            found = held[id(side)]
            case = side.cases[i]
            if not case.found or case.failed or found.get("status") not in MEASURED:
                case.found = found
        able = [side for side in sides if not side.cases[i].failed]
        beside_s = self._clock() - begin
        if able and (number == 0 or len(able) == 2):
            self._take_turns(i, able, [held[id(side)] for side in able], self._share())
        self._besides.append(beside_s)

    def _holding(self, side: Side, i: int, number: int) -> dict[str, Any]:
        args = side.jobs[i].args
        return {
            **args,
            "block_s": _TURN_S / _BLOCKS,
            "warmup_s": _WARMUP_S,
            "cpu": number,
            "known": number > 0,
        }

    def _take_turns(self, i: int, sides: list[Side], held: list[dict[str, Any]], share_s: float) -> None:
        asked, both_s = _blocks(held)
        begin, stretch = self._clock(), float(np.median(self._stretch[-_RECENT:] or [1.0]))
        count = max(_FEWEST_TURNS, min(_MOST_TURNS, int(share_s / (both_s * stretch)))) // 2 * 2
        if both_s > max(share_s, _LONG_TURN_S):
            count = 2
        times: list[list[list[float]]] = [[] for _ in sides]
        for turn in range(count):
            for k in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
                found = self._ask(sides[k], i, "turn", asked[k])
                if "times_s" not in found:
                    sides[k].cases[i].found = found
                    return
                times[k].append(found["times_s"])
        self._stretch.append(max(1.0, (self._clock() - begin) / (both_s * count)))
        for side, taken in zip(sides, times, strict=True):
            side.cases[i].times_s += [t for blocks in taken for t in blocks]
            # Whatever else runs only ever makes a block longer: the lower quartile is disturbed least.
            side.cases[i].turns_s.append(tuple(float(np.quantile(blocks, 0.25)) for blocks in taken))

    def _ask(self, side: Side, i: int, work: str, args: dict[str, Any]) -> dict[str, Any]:
        pool = side.pools.of(side.jobs[i].args["backend"])
        outcome = pool.run(f"{_WORK}:{work}", args, timeout_s=side.options.patience_s)
        if outcome.status != "ok":
            return {"status": outcome.status, "reason": outcome.reason.strip().partition("\n")[0]}
        return {"times_s": outcome.value} if isinstance(outcome.value, list) else dict(outcome.value)

    def _share(self) -> float:
        """Seconds of turns for a case: what is left of the budget, less what preparing and starting will take, over what is to be done."""
        rounds = max(0, self._rounds - 1 - self._number)
        left = self._left_in_round + rounds * len(self._todo)
        beside = left * float(np.median(self._besides[-_RECENT:] or [_CASE_S]))
        return (self._deadline - self._clock() - beside - rounds * self._start_s) / left


def _blocks(held: Sequence[dict[str, Any]]) -> tuple[list[dict[str, int]], float]:
    """What each side does in a turn, and how long both take together."""
    calls = [int(found["calls"]) for found in held]
    if max(calls) <= _ALIKE * min(calls):
        calls = [max(calls)] * len(calls)  # equal sides do equal work
    asked, both_s = [], 0.0
    for found, n in zip(held, calls, strict=True):
        block_s = max(1e-9, n * float(found["call_s"]))
        blocks = max(1, min(_BLOCKS, round(_TURN_S / block_s)))
        asked.append({"blocks": blocks, "calls": n})
        both_s += blocks * block_s + _BESIDE_TURN_S
    return asked, both_s
