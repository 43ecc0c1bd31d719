"""What lux.train.NaNGuard costs a training step: without it, with it, with gradients=True, with exact=True.

    python benchmarks/nan_guard.py [--width 256] [--rounds 15] [--steps 100]

The same MLP with AdamW is trained in each of the ways, a stretch of steps of each in turn, on one thread, by its CPU time. A stretch counts by
the median of its steps. Two trainings without the guard stand side by side: what they differ by is the noise. Beside the
times stand the bytes of weights and optimizer, which exact=True holds a second time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from time import thread_time
from typing import Any

import torch
from torch import nn

import luxmeter as lux
from luxmeter.nested import tensors_of
from luxmeter.stats import median_interval
from luxmeter.train import NaNGuard

WAYS: dict[str, dict[str, Any] | None] = {
    "without": None,
    "without, again": None,
    "NaNGuard()": {},
    "NaNGuard(gradients=True)": {"gradients": True},
    "NaNGuard(exact=True)": {"exact": True},
}
BATCH = 32


class Stopwatch(lux.Callback):
    """The CPU time of each step, callbacks included."""

    priority = 1000

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self._last = 0.0

    def before_epoch(self, trainer: lux.Trainer) -> None:
        self._last = thread_time()

    def after_batch(self, trainer: lux.Trainer, result: Any) -> None:
        now = thread_time()
        self.times_s.append(now - self._last)
        self._last = now


class Measured(lux.Trainer):
    """An MLP on made-up data; the loss alone is returned."""

    guard: dict[str, Any] | None = None

    def initial_callback(self) -> None:
        self.watch = Stopwatch().hook(self)
        if self.guard is not None:
            NaNGuard(**self.guard).hook(self)

    def initial_trainer(self, params: Any) -> None:
        torch.manual_seed(0)
        width = params.width
        layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), *layers, nn.Linear(width, 10))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        batches = [(torch.randn(BATCH, 64), torch.randint(0, 10, (BATCH,))) for _ in range(16)]
        self.regist_databundler(train=Repeated(batches))

    def train_batch(self, eidx: int, idx: int, global_step: int, batch_data: Any, *_: Any) -> Any:
        xs, ys = batch_data
        return nn.functional.cross_entropy(self.model(xs), ys)


class Repeated:
    """The same batches, over and over."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        while True:
            yield from self.batches


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256, help="of the MLP's layers")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=100, help="of a stretch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LUXMETER_HOME"] = folder
        found = {name: [] for name in WAYS}
        trainers = {
            name: type("Measured", (Measured,), {"guard": guard})(
                {"width": options.width}, quiet=True, checkpoint=False
            )
            for name, guard in WAYS.items()
        }
        for number in range(options.rounds + 1):
            for name, trainer in trainers.items():
                trainer.train(steps=(number + 1) * options.steps)
                times, trainer.watch.times_s = trainer.watch.times_s, []
                if number:  # the first stretch warms up
                    found[name].append(statistics.median(times))
        state = [trainer.model.state_dict(), trainer.optim.state_dict()]
        for trainer in trainers.values():
            trainer.close()
    size_bytes = sum(tensor.nbytes for tensor in tensors_of(state))
    report(found, size_bytes)


def report(found: dict[str, list[float]], size_bytes: int) -> None:
    """Print the ratios, and a line of JSON."""
    print(f"weights and optimizer: {size_bytes / 2**20:.1f} MiB\n")
    bare = found["without"]
    ratios = {}
    for name, times in found.items():
        ratio = median_interval([a / b for a, b in zip(times, bare, strict=True)])
        ratios[name] = [ratio.low, ratio.high]
        shown = "" if name == "without" else f"   {ratio.low:.3f} to {ratio.high:.3f} of it (95 %)"
        print(f"{name:26} {statistics.median(times) * 1e6:8.0f} us a step{shown}")
    print(json.dumps({"benchmark": "nan_guard", "size_bytes": size_bytes, "ratios": ratios}))


if __name__ == "__main__":
    main()
