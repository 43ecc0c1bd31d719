"""Our timer against torch.utils.benchmark.Timer.blocked_autorange on 50 operators, side by side in one run.

Both get the same callables, in turns, in several rounds. Asked of each: the median, and the time until its 95 %
interval (the same formula for both, on each one's raw times) is within 2 %. torch's timer is used as it is meant to be:
blocks of at least 0.2 s in sum, and more of them, merged, until the interval is narrow. A median over the rounds stands
for each; agreement is judged against the noise seen when each timer measures the same thing again.

    python benchmarks/bench_quality.py [--rounds 5] [--clock wall|cpu] [--only NAME,...] [--json FILE]

On a machine with other work on it `--clock cpu` gives both the thread's own time, which does not count the time that
others had the processor. The load is shown at the beginning and at the end: a run under load proves little.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.benchmark import Timer

from luxmeter import stats
from luxmeter.operators.timer import measure

TARGET = 0.02
BUDGET_S = 2.0


def operators() -> dict[str, Callable[[], object]]:
    """Fifty operators from 0.5 us to a few ms."""
    torch.manual_seed(0)
    small, row, mid, big = torch.rand(8), torch.rand(4096), torch.rand(256, 256), torch.rand(1024, 1024)
    image, kernel, point = torch.rand(4, 16, 32, 32), torch.rand(32, 16, 3, 3), torch.rand(32, 16, 1, 1)
    depth = torch.rand(16, 1, 3, 3)
    batch, ids, table = torch.rand(16, 64, 128), torch.randint(0, 5000, (16, 64)), torch.rand(5000, 128)
    labels, logits = torch.randint(0, 100, (256,)), torch.rand(256, 100)
    mask = mid > 0.5
    weight, bias = torch.rand(128), torch.rand(128)
    mean, var = torch.rand(16), torch.rand(16) + 0.5
    query = torch.rand(2, 4, 64, 32)
    spd = mid[:64, :64] @ mid[:64, :64].T + 64 * torch.eye(64)
    return {
        "add small": lambda: small + small,
        "mul small": lambda: small * 2.0,
        "view": lambda: mid.view(-1),
        "transpose": lambda: mid.t(),
        "index int": lambda: mid[3],
        "add row": lambda: row + row,
        "exp row": lambda: torch.exp(row),
        "sigmoid row": lambda: torch.sigmoid(row),
        "tanh row": lambda: torch.tanh(row),
        "sum row": lambda: row.sum(),
        "add big": lambda: big + big,
        "mul big": lambda: big * big,
        "relu big": lambda: F.relu(big),
        "gelu big": lambda: F.gelu(big),
        "exp big": lambda: torch.exp(big),
        "sum big": lambda: big.sum(),
        "sum dim": lambda: big.sum(0),
        "mean dim": lambda: big.mean(1),
        "max dim": lambda: big.max(1),
        "argmax": lambda: big.argmax(1),
        "cumsum": lambda: mid.cumsum(1),
        "sort": lambda: mid.sort(1),
        "topk": lambda: mid.topk(5),
        "softmax": lambda: F.softmax(mid, -1),
        "log_softmax": lambda: F.log_softmax(mid, -1),
        "layer_norm": lambda: F.layer_norm(batch, (128,), weight, bias),
        "batch_norm": lambda: F.batch_norm(image, mean, var),
        "group_norm": lambda: F.group_norm(image, 4),
        "mm 256": lambda: mid @ mid,
        "mm 512": lambda: big[:512, :512] @ big[:512, :512],
        "bmm": lambda: torch.bmm(batch, batch.transpose(1, 2)),
        "linear": lambda: F.linear(batch, table[:256]),
        "addmm": lambda: torch.addmm(mid, mid, mid),
        "conv2d 3x3": lambda: F.conv2d(image, kernel, padding=1),
        "conv2d 1x1": lambda: F.conv2d(image, point),
        "conv2d depthwise": lambda: F.conv2d(image, depth, padding=1, groups=16),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "avg_pool2d": lambda: F.avg_pool2d(image, 2),
        "interpolate": lambda: F.interpolate(image, scale_factor=2.0),
        "embedding": lambda: F.embedding(ids, table),
        "index_select": lambda: table.index_select(0, ids[0]),
        "gather": lambda: logits.gather(1, labels[:, None]),
        "where": lambda: torch.where(mask, mid, 0.0),
        "masked_fill": lambda: mid.masked_fill(mask, 0.0),
        "cross_entropy": lambda: F.cross_entropy(logits, labels),
        "attention": lambda: F.scaled_dot_product_attention(query, query, query),
        "cat": lambda: torch.cat([mid, mid, mid]),
        "stack": lambda: torch.stack([row, row]),
        "permute copy": lambda: batch.permute(2, 0, 1).contiguous(),
        "cholesky": lambda: torch.linalg.cholesky(spd),
    }


CLOCKS: dict[str, Callable[[], int]] = {"wall": time.perf_counter_ns, "cpu": time.thread_time_ns}
Timing = Callable[[Callable[[], object], Callable[[], int]], tuple[float, float, float]]


def by_ours(fn: Callable[[], object], clock: Callable[[], int]) -> tuple[float, float, float]:
    """(median, relative half width of its interval, seconds it took)."""
    start = clock()
    found = measure(fn, target_ci=TARGET, budget_s=BUDGET_S, clock=clock)
    return found.median_s, found.interval.relative_half_width, (clock() - start) / 1e9


def by_torch(fn: Callable[[], object], clock: Callable[[], int]) -> tuple[float, float, float]:
    """The same for blocked_autorange, repeated and merged until the interval is as narrow."""
    start = clock()
    times: list[float] = []
    timer = Timer("fn()", globals={"fn": fn}, timer=lambda: clock() / 1e9)
    while True:
        times += timer.blocked_autorange().times
        interval = stats.series_interval(times)
        narrow = interval.coverage >= 0.95 and interval.relative_half_width <= TARGET
        if narrow or (clock() - start) / 1e9 > BUDGET_S:
            return interval.estimate, interval.relative_half_width, (clock() - start) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--only", help="names of operators, with commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = {k: fn for k, fn in operators().items() if not options.only or k in options.only.split(",")}
    by_ours(lambda: None, CLOCKS[options.clock])  # imports are done before anything counts
    before = os.getloadavg()[0]
    seen: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in wanted}
    timers: tuple[Timing, Timing] = (by_ours, by_torch)
    # All operators in each round: a busy minute meets one round of many operators, not all rounds of one.
    for turn in range(options.rounds):
        for name, fn in wanted.items():
            for who in (0, 1) if turn % 2 else (1, 0):
                seen[name][who].append(timers[who](fn, CLOCKS[options.clock]))
        print(f"round {turn + 1} of {options.rounds} done, load {os.getloadavg()[0]:.1f}", flush=True)
    rows = [_row(name, np.array(ours), np.array(theirs)) for name, (ours, theirs) in seen.items()]
    _report(rows, before, options)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, **_ratios(rows)}, indent=1))


def _report(rows: list[dict[str, Any]], before: float, options: argparse.Namespace) -> None:
    print(
        f"{'operator':<18}{'ours us':>10}{'torch us':>10}{'ratio':>8}{'noise':>8}{'ours s':>8}{'torch s':>9}  agree"
    )
    for r in rows:
        print(
            f"{r['name']:<18}{r['ours_us']:>10.2f}{r['torch_us']:>10.2f}{r['ratio']:>8.3f}{r['noise']:>8.1%}"
            f"{r['ours_s']:>8.3f}{r['torch_s']:>9.3f}  {'yes' if r['agree'] else 'NO'}"
        )
    agree = sum(r["agree"] for r in rows)
    ratios = _ratios(rows)
    ours_reached, torch_reached = (
        float(np.mean([r[k] for r in rows])) for k in ("ours_reached", "torch_reached")
    )
    print(f"\nagreement within noise: {agree} of {len(rows)}; median of the ratios of medians "
          f"{np.median([r['ratio'] for r in rows]):.3f}")  # fmt: skip
    print(
        f"time until ±{TARGET:.0%} ({options.clock} clock): ours / torch = {ratios['time_ratio']:.2f} (median operator), "
        f"{ratios['total_ratio']:.2f} (sum)"
    )
    print(f"reached ±{TARGET:.0%} within {BUDGET_S:g} s: ours {ours_reached:.0%}, torch {torch_reached:.0%}")
    print(f"spread of repeated medians: ours {np.median([r['ours_spread'] for r in rows]):.1%}, "
          f"torch {np.median([r['torch_spread'] for r in rows]):.1%}")  # fmt: skip
    after, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"load {before:.1f} before, {after:.1f} after, on {cores} threads")
    if max(before, after - 1) > 0.5 * cores:
        print(
            "THE MACHINE WAS BUSY: times are those of a contest for the processor. Run again when it is quiet."
        )


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "time_ratio": float(np.median([r["ours_s"] / r["torch_s"] for r in rows])),
        "total_ratio": sum(r["ours_s"] for r in rows) / sum(r["torch_s"] for r in rows),
    }


def _row(name: str, ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    mine, other = float(np.median(ours[:, 0])), float(np.median(theirs[:, 0]))
    spreads = [float((m[:, 0].max() - m[:, 0].min()) / np.median(m[:, 0])) for m in (ours, theirs)]
    widths = float(np.median(ours[:, 1]) + np.median(theirs[:, 1]))
    noise = max(*spreads, widths)
    return {
        "name": name, "ours_us": mine * 1e6, "torch_us": other * 1e6, "ratio": mine / other, "noise": noise,
        "agree": bool(abs(mine / other - 1) <= noise), "ours_s": float(np.median(ours[:, 2])),
        "torch_s": float(np.median(theirs[:, 2])), "ours_spread": spreads[0], "torch_spread": spreads[1],
        "ours_reached": float(np.mean(ours[:, 1] <= TARGET)), "torch_reached": float(np.mean(theirs[:, 1] <= TARGET)),
    }  # fmt: skip


if __name__ == "__main__":
    main()
