"""Meters put together: two of them, and those of two real ranks."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luxmeter import AvgMeter
from luxmeter.experiment.meter.averages import Average, Spans, fold, merge


def test_merge_is_pure_and_exact() -> None:
    left, right = AvgMeter(), AvgMeter()
    left.update({"x": 1.0, "only": 2.0, "s": "l"}, weight=1)
    right.update({"x": 4.0, "s": "r"}, weight=3)
    merged = left.merge(right)
    assert (merged.x.mean, merged.x.count, merged.x.min, merged.x.max, merged.x.last) == (
        3.25,
        2,
        1.0,
        4.0,
        4.0,
    )
    assert merged.only.mean == 2.0
    assert merged.s == "r"
    assert left.x.count == right.x.count == 1
    merged.update({"x": 0.0})
    assert left.x.count == 1


NUMBERS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.1, 100)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS)
def test_merging_two_equals_seeing_all(
    first: list[tuple[float, float]], second: list[tuple[float, float]]
) -> None:
    def seen(pairs: list[tuple[float, float]]) -> Average:
        return fold([Average()], [[v] for v, _ in pairs], [w for _, w in pairs], Spans())[0]

    both, whole = merge(seen(first), seen(second)), seen(first + second)
    assert both.count == whole.count
    assert both.sum == pytest.approx(whole.sum, abs=1e-3)
    assert both.weight == pytest.approx(whole.weight)
    if whole.count:
        assert (both.min, both.max, both.last) == (
            whole.min,
            whole.max,
            whole.last if second else seen(first).last,
        )


RANK_PROGRAM = """
import sys, torch, torch.distributed as dist
from luxmeter import AvgMeter
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
am = AvgMeter()
for i in range(3):
    am.update({"loss": torch.tensor(float(10 * rank + i)), "who": f"rank {rank}"}, weight=rank + 1)
if rank:
    am.update({"only": 5.0})
am.percent("only", 0)
merged = am.merge_ranks()
print(merged.loss.mean, merged.loss.count, merged.loss.min, merged.loss.max, merged)
print(am.loss.count)
dist.destroy_process_group()
"""


def test_merge_over_two_real_ranks() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK_PROGRAM, str(rank), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    mean = (0 + 1 + 2 + 2 * (10 + 11 + 12)) / 9
    shown = f"{mean} 6 0.0 12.0 @loss=12.0000({mean:.4f})  @who=rank 1  @only=500%(500%)\n3\n"
    assert [out for out, _ in outputs] == [shown, shown]


def test_alone_merge_over_ranks_is_a_copy() -> None:
    am = AvgMeter()
    am.update({"x": 1.0})
    merged = am.merge_ranks()
    merged.update({"x": 3.0})
    assert (am.x.count, merged.x.mean) == (1, 2.0)
