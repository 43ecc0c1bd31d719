"""Our timer against torch.utils.benchmark.Timer.blocked_autorange on 50 operators, side by side in one run.

Both get the same callables, in turns. Asked of each: the median, and the time until its 95 % interval (the same
formula for both, on each one's raw times) is within 2 %. torch's timer is used as it is meant to be: blocks of at
least 0.2 s, and more of them, merged, until the interval is narrow. Agreement is judged against the noise seen
when each timer measures the same thing again.

    python benchmarks/bench_quality.py [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

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


def by_ours(fn: Callable[[], object]) -> tuple[float, float, float]:
    """(median, relative half width of its interval, seconds it took)."""
    start = time.perf_counter()
    found = measure(fn, target_ci=TARGET, budget_s=BUDGET_S)
    return found.median_s, found.interval.relative_half_width, time.perf_counter() - start


def by_torch(fn: Callable[[], object]) -> tuple[float, float, float]:
    """The same for blocked_autorange, repeated and merged until the interval is as narrow."""
    start = time.perf_counter()
    times: list[float] = []
    while True:
        times += Timer("fn()", globals={"fn": fn}).blocked_autorange().times
        interval = stats.series_interval(times)
        narrow = interval.coverage >= 0.95 and interval.relative_half_width <= TARGET
        if narrow or time.perf_counter() - start > BUDGET_S:
            return interval.estimate, interval.relative_half_width, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(
        f"{'operator':<18}{'ours us':>10}{'torch us':>10}{'ratio':>8}{'noise':>8}{'ours s':>8}{'torch s':>9}  agree"
    )
    for name, fn in operators().items():
        ours, theirs = [], []
        for turn in range(options.rounds):
            for who in ((by_ours, ours), (by_torch, theirs))[:: 1 if turn % 2 else -1]:
                who[1].append(who[0](fn))
        rows.append(_row(name, np.array(ours), np.array(theirs)))
        r = rows[-1]
        print(
            f"{name:<18}{r['ours_us']:>10.2f}{r['torch_us']:>10.2f}{r['ratio']:>8.3f}{r['noise']:>8.1%}"
            f"{r['ours_s']:>8.3f}{r['torch_s']:>9.3f}  {'yes' if r['agree'] else 'NO'}",
            flush=True,
        )
    agree = sum(r["agree"] for r in rows)
    time_ratio = float(np.median([r["ours_s"] / r["torch_s"] for r in rows]))
    total_ratio = sum(r["ours_s"] for r in rows) / sum(r["torch_s"] for r in rows)
    ours_reached, torch_reached = (
        float(np.mean([r[k] for r in rows])) for k in ("ours_reached", "torch_reached")
    )
    print(f"\nagreement within noise: {agree} of {len(rows)}; median of the ratios of medians "
          f"{np.median([r['ratio'] for r in rows]):.3f}")  # fmt: skip
    print(
        f"time until ±{TARGET:.0%}: ours / torch = {time_ratio:.2f} (median operator), {total_ratio:.2f} (sum)"
    )
    print(f"reached ±{TARGET:.0%} within {BUDGET_S:g} s: ours {ours_reached:.0%}, torch {torch_reached:.0%}")
    print(f"spread of repeated medians: ours {np.median([r['ours_spread'] for r in rows]):.1%}, "
          f"torch {np.median([r['torch_spread'] for r in rows]):.1%}")  # fmt: skip
    if options.json:
        options.json.write_text(
            json.dumps({"rows": rows, "time_ratio": time_ratio, "total_ratio": total_ratio}, indent=1)
        )


def _row(name: str, ours: np.ndarray, theirs: np.ndarray) -> dict[str, object]:
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
