"""What one AvgMeter.update costs with ten values, against reading each value at every step.

    python benchmarks/meter_update.py [--rounds 200]

All contenders run interleaved in one process on one thread; a round of each includes its share of folding.
The naive one keeps a running sum of value.item(), as hand-written loops do; the other keeps tensors, as
torchmetrics' MeanMetric does. Both know the mean alone; `naive, all` knows what AvgMeter knows. Reading values waits for the device each time.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from luxmeter import AvgMeter, Meter
from luxmeter.experiment.meter.pending import CHUNK

GOAL_US = 5.0


class NaiveSums:
    """sum += value.item(): waits for the device at every value, and knows the mean alone."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.count = 0

    def update(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + (value if type(value) is float else value.item())
        self.count += 1


class NaiveStatistics:
    """The same reading, for all that AvgMeter knows: mean, min, max, last, exponential and windowed average."""

    def __init__(self) -> None:
        self.known: dict[str, list[Any]] = {}

    def update(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            number = value if type(value) is float else value.item()
            known = self.known.get(name)
            if known is None:
                known = self.known[name] = [0.0, 0, number, number, number, 0.0, 0.0, deque(maxlen=20)]
            known[0] += number
            known[1] += 1
            known[2] = min(known[2], number)
            known[3] = max(known[3], number)
            known[4] = number
            known[5] = 0.98 * known[5] + 0.02 * number
            known[6] = 0.98 * known[6] + 0.02
            known[7].append(number)


class TensorMean:
    """As torchmetrics' MeanMetric: sums as tensors, so nothing waits, but every value is an operation."""

    def __init__(self) -> None:
        self.sums: dict[str, torch.Tensor] = {}
        self.weights: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def update(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            tensor = torch.as_tensor(value, dtype=torch.float32)
            if name not in self.sums:
                self.sums[name], self.weights[name] = torch.zeros(()), torch.zeros(())
            self.sums[name] += tensor
            self.weights[name] += 1


def microseconds(update: Callable[[Any], None], meter: Any, count: int) -> float:
    # Time on the processor: on a shared machine the clock on the wall measures the neighbours.
    start = time.thread_time_ns()
    for _ in range(count):
        update(meter)
    return (time.thread_time_ns() - start) / count / 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    meters = {
        "floats": Meter({f"v{i}": 0.1 * i for i in range(10)}),
        "tensors": Meter({f"v{i}": torch.tensor(0.1 * i) for i in range(10)}),
        "tensors with graph": Meter(
            {f"v{i}": torch.tensor(0.1 * i, requires_grad=True) * 1 for i in range(10)}
        ),
        "mixed": Meter(
            {"step": 3, "kind": "train"}
            | {f"f{i}": 0.1 * i for i in range(4)}
            | {f"v{i}": torch.tensor(0.1 * i) for i in range(4)}
        ),
    }
    # The others get a plain dict, and of mixed values only those they can average.
    values = {
        kind: {name: v for name, v in meter.to_dict().items() if isinstance(v, float | torch.Tensor)}
        for kind, meter in meters.items()
    }
    times: dict[tuple[str, str], list[float]] = {}
    ours = {kind: AvgMeter() for kind in meters}
    naive = {kind: NaiveSums() for kind in meters}
    statistics_too = {kind: NaiveStatistics() for kind in meters}
    tensor_mean = {kind: TensorMean() for kind in meters}
    gc.disable()
    for _ in range(rounds):
        for kind, meter in meters.items():
            # A whole chunk, so that exactly one fold is part of it.
            times.setdefault((kind, "luxmeter"), []).append(microseconds(ours[kind].update, meter, CHUNK))
            times.setdefault((kind, "naive item()"), []).append(
                microseconds(naive[kind].update, values[kind], CHUNK)
            )
            times.setdefault((kind, "naive, all"), []).append(
                microseconds(statistics_too[kind].update, values[kind], CHUNK)
            )
            times.setdefault((kind, "tensor means"), []).append(
                microseconds(tensor_mean[kind].update, values[kind], CHUNK // 8)
            )
    print(f"one update with ten values, microseconds ({rounds} rounds, median and best)")
    rows = []
    for (kind, who), seen in times.items():
        base = statistics.median(times[kind, "luxmeter"])
        row = {"values": kind, "who": who, "median_us": statistics.median(seen), "best_us": min(seen)}
        rows.append({**row, "ratio": row["median_us"] / base})
        print(
            f"  {kind:20} {who:14} {row['median_us']:8.2f} {row['best_us']:8.2f}   x{rows[-1]['ratio']:.2f}"
        )
    worst = max(row["best_us"] for row in rows if row["who"] == "luxmeter")
    print(
        f"goal: at most {GOAL_US} us, best of our worst kind {worst:.2f} us: {'met' if worst <= GOAL_US else 'MISSED'}"
    )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
