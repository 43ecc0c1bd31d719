"""What the recorder itself costs a call, measured on this machine in this process."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from luxmeter.calls.records import EVENT_DTYPE

_REPEATS = 20  # short rounds, the best of many: other work of the machine falls into few of them


@dataclass(frozen=True)
class CallCost:
    """What one recorded call of two tensors costs more than a bare one. `inside_ns` of it lies within its own time."""

    added_ns: float
    inside_ns: float


@dataclass(frozen=True)
class CostReport:
    """What the trace itself cost, as far as it can tell."""

    calls: int  # recorded
    passed: int  # seen and passed on without being recorded (inside other calls)
    per_call_ns: float
    described_ns: int  # spent on signatures at first sight
    elapsed_ns: int

    @property
    def total_ns(self) -> float:
        """All of it."""
        return self.calls * self.per_call_ns + self.described_ns

    @property
    def share(self) -> float:
        """Of the time that was traced."""
        return self.total_ns / self.elapsed_ns if self.elapsed_ns else 0.0


_known: dict[tuple[str, bool, bool, bool], CallCost] = {}


def measure(
    core: ModuleType, *, hooks: dict[str, Any], signatures: bool, totals: bool, strides: bool
) -> CallCost:
    """Measured once a process for each way of recording: a few milliseconds."""
    key = (core.__name__, signatures, totals, strides)
    if key not in _known:
        _known[key] = _measure(core, hooks=hooks, signatures=signatures, totals=totals, strides=strides)
    return _known[key]


def _measure(core: ModuleType, *, hooks: dict[str, Any], **modes: bool) -> CallCost:
    import numpy as np

    recorder = core.Recorder(**hooks, **modes)
    function = operator.is_  # as little work as a call of two arguments can do
    wrapped = recorder.wrap(function, recorder.add_callable("calibration"))
    torch: Any = sys.modules.get("torch")
    argument = torch.empty(1) if torch is not None else 0
    rounds = 20 if core.__name__.endswith("_pycore") else 100
    recorder.start()
    _loop(wrapped, argument, rounds)
    recorder.drain()
    pairs = [(_loop(function, argument, rounds), _loop(wrapped, argument, rounds)) for _ in range(_REPEATS)]
    recorder.stop()
    bare = min(pair[0] for pair in pairs)
    added = max(0.0, min(pair[1] for pair in pairs) - bare)
    durations = np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)["duration_ns"]
    inside = float(np.median(durations)) if len(durations) else 0.0
    return CallCost(added, min(inside, added))


def _loop(function: Any, argument: Any, rounds: int) -> float:
    start = perf_counter_ns()
    for _ in range(rounds):
        function(argument, argument)
    return (perf_counter_ns() - start) / rounds
