"""How long a forward pass takes, by batch size and by module: measured on request, never without data.

And where that time goes against where the FLOPs go.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from luxmeter.calls import current_device
from luxmeter.errors import UsageError
from luxmeter.model.inputs import CallArguments, batch_of, prepared, resized
from luxmeter.model.records import BatchLatency, Latency, ModelCost, ModuleCost
from luxmeter.model.standin import as_it_was, process_as_it_was, standing_in
from luxmeter.model.watch import CallNode, Watch
from luxmeter.operators import measure

MODULE_RUNS = 15
_MODULE_BUDGET_S = 3.0


def batch_sizes_in(latency: Any) -> tuple[int, ...]:
    """The batch sizes that `latency=` asks for."""
    sizes = tuple(latency) if isinstance(latency, Sequence) and not isinstance(latency, str) else None
    if sizes is None or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
        raise UsageError(
            "bad-batch-size",
            f"latency={latency!r} asks for no batch sizes.",
            "Say True, or give a list of whole numbers from 1 on: [1, 8, 32].",
        )
    return sizes


def measured(
    cost: ModelCost,
    model: nn.Module,
    outer: Callable[..., Any],
    call: CallArguments,
    *,
    batch_sizes: Sequence[int],
    dtype: torch.dtype | None,
    budget_s: float = 1.0,
) -> ModelCost:
    """`cost` with the latency of `outer` (the model as the user calls it) and each module's part of it."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(t.is_meta or type(t).__name__ == "FakeTensor" for t in tensors):
        raise UsageError(
            "latency-without-data",
            f"{cost.name} has parameters without data (on meta): running it would take no time and mean nothing.",
            "Build the model on a real device to measure its latency, or leave latency out.",
        )
    given = batch_of(call)
    calls = {given: call} | {size: resized(call, size) for size in batch_sizes}
    with _ready(model, dtype):
        batches = [_one(outer, one, size or 1, dtype, budget_s) for size, one in calls.items()]
    times = _parts_of(batches[0].median_ns, _module_runs(model, call, dtype))
    device = str(next((t.device for t in tensors), torch.device("cpu")))
    first = batches[0]
    by_size = {b.batch: b for b in batches}
    wanted = [by_size[size] for size in batch_sizes] if batch_sizes else batches
    latency = Latency(first.median_ns, first.p95_ns, tuple(wanted), torch.get_num_threads(), device)
    rows = tuple(_timed(row, times) for row in cost.modules)
    return replace(cost, latency=latency, modules=rows)


@contextmanager
def _ready(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """The model in evaluation, without gradients; put back afterwards, its buffers too."""
    with ExitStack() as stack:
        stack.enter_context(process_as_it_was(eager=False))
        if dtype is not None:
            stack.enter_context(standing_in(model, None, on_meta=False, training=False, dtype=dtype))
        else:
            stack.enter_context(as_it_was(model))
            for module in model.modules():
                module.training = False
        stack.enter_context(torch.no_grad())
        yield


def _one(
    outer: Callable[..., Any], call: CallArguments, batch: int, dtype: torch.dtype | None, budget_s: float
) -> BatchLatency:
    ready = prepared(call, on_meta=False, dtype=dtype)
    if "torch._dynamo" in sys.modules:
        outer(
            *ready.args, **ready.kwargs
        )  # the first call of a compiled model compiles it, for each batch size
    result = measure(lambda: outer(*ready.args, **ready.kwargs), budget_s=budget_s, sync=_sync(ready))
    times_ns = tuple(t * 1e9 for t in result.times_s)
    return BatchLatency(
        batch, times_ns, result.median_s * 1e9, float(np.percentile(times_ns, 95)), result.why
    )


def _sync(ready: CallArguments) -> Callable[[], Any] | None:
    given = (t for t in (*ready.args, *ready.kwargs.values()) if isinstance(t, torch.Tensor))
    return (
        current_device("torch").synchronize
        if any(t.device.type not in ("cpu", "meta") for t in given)
        else None
    )


Times = dict[int, int]  # by module index, nanoseconds


def _parts_of(latency_ns: float, runs: Sequence[tuple[Times, Times]]) -> dict[int, tuple[int, int]]:
    """By module index: its part of the latency, with all it contains and in itself alone.

    The same runs count for all modules, those in the middle by their whole time, so that the parts add up; medians of
    each module would not, and a run with clocks in it takes longer than one without.
    """
    ranked = sorted(runs, key=lambda run: sum(run[1].values()))
    middle = ranked[len(ranked) // 4 : len(ranked) - len(ranked) // 4]
    total = sum(sum(own.values()) for _, own in middle) or 1
    indices = {index for inside, _ in middle for index in inside}
    return {
        index: (round(latency_ns * sum(inside.get(index, 0) for inside, _ in middle) / total),
                round(latency_ns * sum(own.get(index, 0) for _, own in middle) / total))
        for index in indices
    }  # fmt: skip


def _module_runs(
    model: nn.Module, call: CallArguments, dtype: torch.dtype | None
) -> list[tuple[Times, Times]]:
    """The time in each module and in itself alone, of some runs with a clock at every module."""
    runs: list[tuple[Times, Times]] = []
    watch = Watch(time.perf_counter_ns)
    with ExitStack() as stack:
        stack.enter_context(process_as_it_was())
        stack.enter_context(standing_in(model, watch, on_meta=False, training=False, dtype=dtype))
        stack.enter_context(torch.no_grad())
        ready = prepared(call, on_meta=False, dtype=dtype)
        deadline = time.perf_counter() + _MODULE_BUDGET_S
        for turn in range(MODULE_RUNS + 1):
            watch.begin()
            model(*ready.args, **ready.kwargs)
            if turn == 0:  # the first run warms up
                continue
            whole: dict[int, int] = defaultdict(int)
            own: dict[int, int] = defaultdict(int)
            for child in watch.root.children.values():
                _add(child, frozenset(), whole, own)
            runs.append((whole, own))
            if time.perf_counter() > deadline:
                break
    return runs


def _add(node: CallNode, above: frozenset[int], whole: dict[int, int], own: dict[int, int]) -> None:
    own[node.index] += node.time_ns - sum(child.time_ns for child in node.children.values())
    whole[node.index] += 0 if node.index in above else node.time_ns
    for child in node.children.values():
        _add(child, above | {node.index}, whole, own)


def _timed(row: ModuleCost, times: dict[int, tuple[int, int]]) -> ModuleCost:
    if row.index not in times:
        return row
    return replace(row, time_ns=times[row.index][0], own_time_ns=times[row.index][1])


TELLING = 0.05  # shares below this are not worth a mark
FACTOR = 2.0


@dataclass(frozen=True)
class Share:
    """One module's own part of the model's time and FLOPs."""

    name: str
    kind: str
    time: float
    flops: float
    mark: str


def shares(cost: ModelCost) -> list[Share]:
    """Every module with time of its own, the longest first; marked where time and FLOPs part by a factor of two."""
    timed = [row for row in cost.modules if row.own_time_ns is not None and row.own_time_ns > 0]
    whole_ns = sum(row.own_time_ns or 0 for row in timed)
    found = [
        Share(
            row.name or cost.name,
            row.kind,
            time := (row.own_time_ns or 0) / whole_ns,
            flops := row.own_flops / cost.flops if cost.flops else 0.0,
            _mark(time, flops),
        )
        for row in timed
    ]
    return sorted(found, key=lambda share: -share.time)


def _mark(time: float, flops: float) -> str:
    if time >= TELLING and time >= FACTOR * flops:
        return "slow for its FLOPs"
    if flops >= TELLING and flops >= FACTOR * time:
        return "fast for its FLOPs"
    return ""
