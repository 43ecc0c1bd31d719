"""What timing every call costs a small MindSpore training loop (PyNative), beside apitimewrapper.

    .venv-mindspore/bin/python benchmarks/mindspore_overhead.py

Processor time of the program's own thread, which is the one that records: on a busy machine it says more than the clock,
and MindSpore's other threads wait by spinning. Untraced and traced steps take
turns in one process, medians of rounds. apitimewrapper cannot be taken out again: it runs in a process of its own,
its steps against the untraced ones of that process from before it was put in.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import thread_time


def make_step(batch: int = 64) -> Callable[[], None]:
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

    random = np.random.default_rng(0)
    x = Tensor(random.standard_normal((batch, 64)).astype(np.float32))
    y = Tensor(random.integers(0, 10, batch).astype(np.int32))
    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = nn.Adam(net.trainable_params(), 1e-3)

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return loss(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    def step() -> None:
        value, gradients = gradient(x, y)
        optimizer(gradients)
        value.asnumpy()

    return step


def seconds(step: Callable[[], None], steps: int) -> float:
    """Processor time of this thread for some steps."""
    start = thread_time()
    for _ in range(steps):
        step()
    return thread_time() - start


def ours(rounds: int, steps: int, **settings: object) -> tuple[float, float]:
    """Median ratio, and microseconds of one untraced step."""
    import luxmeter as lux

    step = make_step()
    seconds(step, 5)
    with lux.trace(**settings):  # what only a first start has to do
        seconds(step, 5)
    pairs = []
    for i in range(rounds):
        if i % 2:
            bare = seconds(step, steps)
        with lux.trace(**settings):
            traced = seconds(step, steps)
        if not i % 2:
            bare = seconds(step, steps)
        pairs.append((bare, traced))
    ratio = statistics.median(traced / bare for bare, traced in pairs)
    return ratio, statistics.median(bare for bare, _ in pairs) / steps * 1e6


def peer(rounds: int, steps: int) -> tuple[float, float]:
    """The same of apitimewrapper, which prints and logs each call."""
    step = make_step()
    seconds(step, 5)
    bare = [seconds(step, steps) for _ in range(rounds)]
    from apitimewrapper import start_hook_net

    with contextlib.redirect_stdout(io.StringIO()):
        start_hook_net(False, parall_execute=True)
        step = make_step()
        seconds(step, 2)
        traced = [seconds(step, steps) for _ in range(rounds)]
    middle = statistics.median(bare)
    return statistics.median(traced) / middle, middle / steps * 1e6


WAYS: dict[str, Callable[[int, int], tuple[float, float]]] = {
    "luxmeter": ours,
    "luxmeter, without signatures": lambda rounds, steps: ours(rounds, steps, signatures=False),
    "luxmeter, also inside": lambda rounds, steps: ours(rounds, steps, inside=True),
    "apitimewrapper 0.0.7": peer,
}


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        sys.stderr.write(json.dumps(WAYS[options.way](options.rounds, options.steps)) + "\n")
        return
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        print("skipped: MindSpore is not installed here (make mindspore, then .venv-mindspore/bin/python)")
        return
    print(f"{'a step of training, PyNative':32} {'ratio':>7} {'bare step':>12}")
    for name in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(Path(__file__).resolve()), "--way", name]
            command += ["--rounds", str(options.rounds), "--steps", str(options.steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        try:
            ratio, bare = json.loads(last)
        except ValueError:
            print(f"{name:32} {'-':>7}  failed: {last[:90]}")
            continue
        print(f"{name:32} {ratio:6.3f}x {bare:9.0f} us", flush=True)


if __name__ == "__main__":
    main()
