"""What the recorder itself costs a call, measured on this machine in this process."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from luxmeter.calls.arguments import unseen
from luxmeter.calls.records import EVENT_DTYPE
from luxmeter.render import counted, span

_REPEATS = 20  # short rounds, the best of many: other work of the machine falls into few of them


@dataclass(frozen=True)
class CallCost:
    """What one recorded call of two tensors costs more than a bare one. `inside_ns` of it lies within its own time.

    `passed_ns`: what one costs that is inside another and passed on.
    """

    added_ns: float
    inside_ns: float
    passed_ns: float = 0.0


@dataclass(frozen=True)
class CostReport:
    """What the trace itself cost, as far as it can tell: for each call, and once."""

    calls: int  # recorded
    passed: int  # seen and passed on without being recorded (inside other calls)
    per_call_ns: float
    per_passed_ns: float
    described: int  # signatures, at their first sight
    described_ns: int  # spent on that; no part of a call's time
    setup_ns: int  # to put the stand-ins in place and to take them out again; no part of elapsed_ns
    elapsed_ns: int  # of all processes together

    @property
    def calls_ns(self) -> float:
        """What grows with the number of calls."""
        return self.calls * self.per_call_ns + self.passed * self.per_passed_ns

    @property
    def once_ns(self) -> int:
        """What does not."""
        return self.setup_ns + self.described_ns

    @property
    def total_ns(self) -> float:
        """All of it."""
        return self.calls_ns + self.once_ns

    @property
    def calls_share(self) -> float:
        """Of the time that was traced, what grows with the number of calls."""
        return self.calls_ns / self.elapsed_ns if self.elapsed_ns else 0.0

    @property
    def share(self) -> float:
        """All of it, of all the time from before start() until after stop()."""
        whole_ns = self.elapsed_ns + self.setup_ns
        return self.total_ns / whole_ns if whole_ns else 0.0

    @property
    def of_calls(self) -> str:
        """In words: what grows with the number of calls."""
        return f"recording cost about {self.calls_share:.1%}, {span(self.per_call_ns)} a call"

    @property
    def of_once(self) -> str:
        """In words: what does not."""
        said = f"recording cost once: {span(self.setup_ns)} to start and stop"
        if not self.described:
            return said
        return f"{said}, {span(self.described_ns)} to describe {counted(self.described, 'signature')}"

    def __str__(self) -> str:
        return f"{self.of_calls}\n{self.of_once}"


_known: dict[tuple[str, bool, bool, bool, bool], CallCost] = {}


def measure(
    core: ModuleType, *, hooks: dict[str, Any], signatures: bool, totals: bool, strides: bool, lines: bool
) -> CallCost:
    """Measured once a process for each way of recording: a few milliseconds."""
    key = (core.__name__, signatures, totals, strides, lines)
    if key not in _known:
        if lines:  # the line that calls is its own, as in a program: no frame is passed over
            hooks = {**hooks, "is_mine": lambda code: True}
        _known[key] = _measure(core, hooks=hooks, signatures=signatures, totals=totals, strides=strides)
    return _known[key]


def _measure(core: ModuleType, *, hooks: dict[str, Any], **modes: bool) -> CallCost:
    import numpy as np

    recorder = core.Recorder(**hooks, **modes)
    function = operator.is_  # as little work as a call of two arguments can do
    call = recorder.add_callable("calibration")
    wrapped = recorder.wrap(function, call)
    outer = recorder.wrap(_loop, recorder.add_callable("calibration of what is inside"))
    argument = _argument()
    rounds = 20 if core.__name__.endswith("_pycore") else 100
    recorder.start()
    _loop(wrapped, argument, rounds)
    recorder.drain()
    times = [[loop(called, argument, rounds) for loop, called in ((_loop, function), (_loop, wrapped), (outer, wrapped))]
             for _ in range(_REPEATS)]  # fmt: skip
    recorder.stop()
    bare, recorded, passed = (min(column) for column in zip(*times, strict=True))
    added = max(0.0, recorded - bare)
    events = np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)
    durations = events["duration_ns"][events["callable"] == call]
    inside = float(np.median(durations)) if len(durations) else 0.0
    return CallCost(added, min(inside, added), max(0.0, passed - bare))


def _argument() -> Any:
    """A tensor where there is torch: one of the samples, or a new one of a thread of its own."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return 0
    made: list[Any] = []
    unseen(lambda: made.append(torch.empty(1, device="cpu", dtype=torch.float32)))
    return made[0]


def _loop(function: Any, argument: Any, rounds: int) -> float:
    start = perf_counter_ns()
    for _ in range(rounds):
        function(argument, argument)
    return (perf_counter_ns() - start) / rounds
