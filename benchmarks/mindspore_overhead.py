"""What timing every call costs a small MindSpore training loop (PyNative), beside apitimewrapper. Four minutes.

    .venv-mindspore/bin/python benchmarks/mindspore_overhead.py            # the table
    .venv-mindspore/bin/python benchmarks/mindspore_overhead.py --check    # exit 1 when the goal is surely missed, or nothing was measured

Three programs take turns in one process, in a shuffled order, a few steps each: bare, bare once more, and traced. (Bare: the
stand-ins of the trace are taken out, and put back after it; neither that nor the first step after it is timed.) The best
step of a few rounds of each are set against each other, and the median of these ratios counts. Bare against bare, `null`,
is what the method itself can tell apart: `can tell` is the finest difference, from its interval and that of the ratio. What
is smaller is called so, and where the goal lies within it, the verdict is that it cannot be told.

Two regimes. `blocking`: MindSpore waits for each kernel, with one thread of each kind, so that the processor time of the
calling thread is nearly all of the step. `as is`: MindSpore's threads run ahead, and wait by spinning; by the clock. On a
busy machine neither tells much: MindSpore's threads then wait for a processor, and others spin for them.

Beside it the sum on paper, which needs no quiet machine: the calls that a step records, and those that it passes on, times
what the recorder adds to a function that does nothing with two tensors of MindSpore.
apitimewrapper cannot be taken out again: its steps are set against those of the same process before it was put in.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GOAL = 1.05
STEPS = 4  # of a block
WINDOW = 5  # rounds that are looked at together
LEAST = 6  # windows: fewer say nothing about how far they are apart
DEFAULT = "luxmeter"
WAYS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "luxmeter, without signatures": {"signatures": False},
    "luxmeter, also inside": {"inside": True},
    "luxmeter, waiting for each call": {"sync": True},
}
MARK = "RESULT "
PEER = "apitimewrapper 0.0.7, no optimizer"
# Shares of --seconds.
REGIMES: dict[str, dict[str, float]] = {
    "blocking": {DEFAULT: 3.0, "luxmeter, without signatures": 0.6, "luxmeter, also inside": 1.0,
                 "luxmeter, waiting for each call": 0.6, PEER: 0.3},
    "as is": {DEFAULT: 1.0, "luxmeter, also inside": 0.6},
}  # fmt: skip


def make_step(*, optimizer: bool = True, batch: int = 64) -> Callable[[], None]:
    """One step of training: two layers, a loss, gradients, Adam; waits for the result."""
    import numpy as np

    import mindspore as ms
    from mindspore import Tensor, nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Dense(64, 128)
            self.last = nn.Dense(128, 10)

        def construct(self, x: Tensor) -> Tensor:
            return self.last(ops.relu(self.first(x)))

    numbers = np.random.default_rng(0)
    x = Tensor(numbers.standard_normal((batch, 64)).astype(np.float32))
    y = Tensor(numbers.integers(0, 10, batch).astype(np.int32))
    net, loss = Net(), nn.CrossEntropyLoss()
    weights = net.trainable_params()
    update = nn.Adam(weights, 1e-3) if optimizer else None

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return loss(net(x), y)

    gradient = ms.value_and_grad(forward, None, weights)

    def step() -> None:
        value, gradients = gradient(x, y)
        if update is not None:
            update(gradients)
        value.asnumpy()

    for _ in range(5):
        step()
    return step


def best_of(step: Callable[[], None], clock: Callable[[], int], steps: int = STEPS) -> int:
    """Nanoseconds of the best of some steps, after one that is not timed."""
    step()
    best = sys.maxsize
    for _ in range(steps):
        start = clock()
        step()
        best = min(best, clock() - start)
    return best


def rounds(seconds: float) -> Iterator[int]:
    """Numbers of rounds until the time is over, whole windows, enough of them."""
    end, number = time.monotonic() + seconds, 0
    while number < LEAST * WINDOW or number % WINDOW or time.monotonic() < end:
        yield number
        number += 1


def ours(
    step: Callable[[], None], clock: Callable[[], int], seconds: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """Blocks of bare, bare and traced steps in turn; what a step records, and what that should cost."""
    import luxmeter as lux
    import mindspore as ms

    order = random.Random(0)
    times: dict[str, list[int]] = {"bare": [], "null": [], "traced": []}
    with lux.trace(core="c", **settings) as t:
        step()
        before = t._recorder.stats()
        step()
        after = t._recorder.stats()
        calls, passed = after["events"] - before["events"], after["passed"] - before["passed"]
        with t._patcher.suspended():
            step()
            assert t._recorder.stats()["events"] == after["events"], "bare is not bare"
            assert not t._patcher.is_stand_in(ms.ops.relu), "bare is not bare"
        assert calls and t._patcher.is_stand_in(ms.ops.relu), "traced is not traced"
        for _ in rounds(seconds):
            for name in order.sample(list(times), len(times)):
                with contextlib.nullcontext() if name == "traced" else t._patcher.suspended():
                    times[name].append(best_of(step, clock))
        paper_ns = on_paper(t, calls, passed)
    return {**times, "calls": calls, "paper_ns": paper_ns}


def on_paper(t: Any, calls: int, passed: int) -> float:
    """Nanoseconds that the recorder should add to a step: each call with two tensors in it, as most have."""
    import mindspore as ms

    def nothing(*args: object) -> None:
        pass

    def cost(function: Callable[..., None]) -> float:
        best = float("inf")
        for _ in range(40):
            start = time.thread_time_ns()
            for _ in range(500):
                function(x, x)
            best = min(best, (time.thread_time_ns() - start) / 500)
        return best

    x = ms.ops.ones((8, 8))
    wrapped = t._recorder.wrap(nothing, t._patcher.id_for("nothing"))
    bare = cost(nothing)
    recorded = cost(wrapped) - bare
    t._recorder.pause()
    return float(calls * recorded + passed * max(0.0, cost(wrapped) - bare))


def peer(clock: Callable[[], int], seconds: float) -> dict[str, Any]:
    """The same of apitimewrapper, which prints and logs each call and cannot be taken out again.

    Of MindSpore 2.10 it misses a class, which is given to it here; and its stand-ins get into the graph of an optimizer,
    which then fails: this step has none.
    """
    import mindspore as ms

    step = make_step(optimizer=False)
    pairs = [(best_of(step, clock), best_of(step, clock)) for _ in rounds(seconds / 2)]
    times = {"bare": [first for first, _ in pairs], "null": [second for _, second in pairs]}
    ms.common._stub_tensor = SimpleNamespace(StubTensor=type("StubTensor", (), {}))
    from apitimewrapper import start_hook_net

    with contextlib.redirect_stdout(io.StringIO()):
        start_hook_net(False, parall_execute=True)
        step = make_step(optimizer=False)
        return {**times, "traced": [best_of(step, clock) for _ in pairs]}


def ratios(above: list[int], below: list[int]) -> list[float]:
    """Of the best blocks of some successive rounds: what else the machine does only ever adds, and changes with time."""
    windows = [slice(i, i + WINDOW) for i in range(0, max(len(above) - WINDOW, 0) + 1, WINDOW)]
    return [min(above[window]) / min(below[window]) for window in windows]


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median lies in 95 of 100 resamplings."""
    draw = random.Random(1)
    found = [statistics.median(draw.choices(values, k=len(values))) for _ in range(1000)]
    cuts = statistics.quantiles(found, n=40)
    return cuts[0], cuts[-1]


def judged(times: dict[str, Any]) -> dict[str, Any]:
    """Ratio, what bare against bare gives, the finest difference that can be told, and what follows for the goal."""
    traced, again = (ratios(times[name], times["bare"]) for name in ("traced", "null"))
    found, null = statistics.median(traced), statistics.median(again)
    (low, high), (null_low, null_high) = interval(traced), interval(again)
    finest = max(null_high - 1, 1 - null_low, (high - low) / 2)
    if found - finest > GOAL:
        verdict = "missed"
    elif found + finest < GOAL:
        verdict = "met" if abs(found - 1) > finest else "met, less than can be told"
    else:
        verdict = "cannot tell: too much noise"
    return {"ratio": found, "null": null, "finest": finest, "verdict": verdict}


@contextmanager
def alone() -> Iterator[Path]:
    """A file in a folder of its own: apitimewrapper writes its log into the current one."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "errors"


def measure(regime: str, ways: list[str], seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """In a process of its own."""
    import mindspore as ms

    if regime == "blocking":
        ms.runtime.launch_blocking()
        ms.runtime.dispatch_threads_num(1)
    clock = time.thread_time_ns if regime == "blocking" else time.perf_counter_ns
    step = None if PEER in ways else make_step()
    for way in ways:
        share = seconds * REGIMES[regime][way]
        times = ours(step, clock, share, WAYS[way]) if step is not None else peer(clock, share)
        bare_ns = min(times["bare"])
        found = {**judged(times), "bare_us": bare_ns / 1e3, "times_ns": times}
        if "calls" in times:
            found |= {"calls": times["calls"], "on_paper": 1 + times["paper_ns"] / bare_ns}
        yield way, found


def apart(regime: str, ways: list[str], seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """`measure` in a process with as few threads as the regime wants; a way that failed is told."""
    command = [sys.executable, str(Path(__file__).resolve()), "--regime", regime, "--ways", *ways]
    env = {**os.environ, "GLOG_v": "4"} | ({"OMP_NUM_THREADS": "1"} if regime == "blocking" else {})
    left = list(ways)
    with alone() as said, said.open("w") as errors:
        with subprocess.Popen(
            [*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, stderr=errors, text=True, env=env, cwd=said.parent
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(MARK):
                    way, found = json.loads(line.removeprefix(MARK))
                    left.remove(way)
                    yield way, found
        lines = [line for line in said.read_text().splitlines() if "Error: " in line]
    for way in left:
        yield way, {"failed": lines[0] if lines else f"exit code {process.returncode}"}


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30, help="for each way; some take a share of it")
    parser.add_argument("--check", action="store_true", help="exit 1 when the goal is surely missed")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--regime", choices=REGIMES, help="this one alone")
    parser.add_argument("--ways", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ways:
        for result in measure(options.regime, options.ways, options.seconds):
            print(MARK + json.dumps(result), flush=True)
        return
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        print("skipped: MindSpore is not installed here (make mindspore, then .venv-mindspore/bin/python)")
        return
    results: dict[str, Any] = {}
    for regime in [options.regime] if options.regime else REGIMES:
        if not options.json:
            print(f"{f'a step of training, {regime}':35} {'ratio':>7} {'can tell':>9} {'null':>7} {'on paper':>9} "
                  f"{'calls':>5} {'bare step':>10}  goal {GOAL}x")  # fmt: skip
        mine = [way for way in REGIMES[regime] if way != PEER]
        theirs = [way for way in REGIMES[regime] if way == PEER]
        for ways in filter(None, (mine, theirs)):
            for way, found in apart(regime, ways, options.seconds):
                results[f"{regime}: {way}"] = found
                if not options.json:
                    print(shown(way, found), flush=True)
    if options.json:
        print(json.dumps(results))
    # The goal is the default's; what more a user asks for may cost more.
    goals = [found for name, found in results.items() if name.endswith(f": {DEFAULT}")]
    if options.check and any("failed" in found or found["verdict"] == "missed" for found in goals):
        sys.exit(1)


def shown(way: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    if "failed" in found:
        return f"{way:35} {'-':>7}  failed: {found['failed'][:90]}"
    paper = f"{found['on_paper']:8.3f}x" if "on_paper" in found else " " * 9
    return (
        f"{way:35} {found['ratio']:6.3f}x {found['finest']:>8.3f}  {found['null']:6.3f}x {paper} "
        f"{found.get('calls', ''):>5} {found['bare_us']:>7.0f} us  {'' if way == PEER else found['verdict']}"
    )


if __name__ == "__main__":
    main()
