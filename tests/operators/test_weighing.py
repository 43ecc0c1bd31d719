"""What changes of operators mean for the program they come from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import luxmeter as lux
from luxmeter.operators.diff import diff_benchmarks
from luxmeter.operators.results import BenchResult, Row
from luxmeter.operators.weighing import log_medians

ONE_CORE = "a benchmark takes what a trace found, whichever core made it"
MS = 1_000_000


def row(op: str, us: float, *, seed: int, calls: int = 100, ns: int | None = None, **more: Any) -> Row:
    times = tuple(us * 1e-6 * np.random.default_rng(seed).lognormal(0, 0.02, 200))
    return Row(
        op, "f32[8]", more.pop("scale", ""), more.pop("dtype", "fp32"), "eager", n=200, median_us=float(np.median(times)) * 1e6,
        times_s=times, traced_calls=calls, traced_ns=ns, **more,
    )  # fmt: skip


def result(*rows: Row, whole: int | None = 100 * MS) -> BenchResult:
    return BenchResult(rows, noise_floor=0.01, whole=None if whole is None else (whole, 1000))


def test_rows_weigh_what_they_take_in_the_traced_run() -> None:
    """40 ms of 100 in attention, which takes 20 % less; 20 ms in mm, which takes 5 % more: 7 % less in all, half of it unseen."""
    a = result(row("F.attention", 50, seed=0, ns=40 * MS), row("torch.mm", 900, seed=1, ns=20 * MS))
    b = result(row("F.attention", 40, seed=2, ns=1), row("torch.mm", 945, seed=3, ns=1))
    found = diff_benchmarks(a, b)
    said = found.verdict
    assert said is not None and said.call == "faster"
    assert said.change == pytest.approx(0.4 * -0.2 + 0.2 * 0.05, abs=0.004)
    assert said.low < said.change < said.high < 0 and said.high - said.low < 0.02
    assert said.coverage == pytest.approx(0.6) and said.rows == 2
    assert said.main is not None and said.main.op == "F.attention"
    assert "this run would be 7." in said.sentence and "% faster (" in said.sentence
    assert "100% of it from attention, against it mm with +1.0%" in said.sentence
    assert "The 2 compared rows are 60% of its time; the rest is taken as unchanged." in said.sentence
    assert [c.share for c in found.changes if c.op == "torch.mm"] == [pytest.approx(0.2)]
    assert found.to_json()["verdicts"][0]["sentence"] == said.sentence


def test_where_the_trace_cannot_say_calls_times_time_does() -> None:
    """Backward is not in the trace of an operator, nor is another size; and a run that is not known has no share."""
    a = result(
        row("x", 100, seed=0, ns=5, mode="forward+backward"),
        row("y", 300, seed=1, ns=5, mode="forward+backward"),
        whole=None,
    )
    b = result(
        row("x", 150, seed=2, mode="forward+backward"),
        row("y", 300, seed=3, mode="forward+backward"),
        whole=None,
    )
    said = diff_benchmarks(a, b).verdict
    assert said is not None and said.change == pytest.approx(0.25 * 0.5, abs=0.01)
    assert said.coverage is None and said.estimated == 1.0
    assert (
        "a run of these rows would be 12." in said.sentence
        and "Weighed by calls times time: 2 compared rows." in said.sentence
    )
    kernel = replace(row("x", 1, seed=4), kernel="aten.mm")
    assert (
        diff_benchmarks(result(kernel), result(kernel)).verdict is None
    )  # a part of a row that has its weight
    silent = replace(row("x", 1, seed=4), traced_calls=None)
    told = diff_benchmarks(result(silent), result(silent))
    assert told.verdict is None and "does not say how often" in str(told)


def test_each_setting_has_its_verdict_that_of_most_of_the_run_first() -> None:
    a = result(
        row("x", 10, seed=0, ns=10 * MS, dtype="bf16"),
        row("x", 10, seed=1, ns=10 * MS),
        row("y", 10, seed=2, ns=50 * MS),
    )
    b = result(row("x", 20, seed=3, dtype="bf16"), row("x", 10, seed=4), row("y", 10, seed=5))
    first, second = diff_benchmarks(a, b).verdicts
    assert (first.setting, first.call, first.rows) == ("fp32", "unclear", 2)
    assert (second.setting, second.call) == ("bf16", "slower") and second.sentence.startswith(
        "bf16: this run"
    )


def test_the_interval_knows_of_neighbours_that_resemble_each_other() -> None:
    rng = np.random.default_rng(0)
    alike = np.repeat(rng.lognormal(0, 0.05, 12), 50)
    free = rng.permutation(alike)
    wide, narrow = (log_medians(x, np.random.default_rng(1)).std() for x in (alike, free))
    assert wide > 4 * narrow
    assert log_medians([1.0], rng).std() == 0


def test_the_interval_of_a_run_holds_the_truth_as_often_as_it_says() -> None:
    """Levels wander by 1 % between looks, as the second looks show; a tenth of the rows is really 10 % slower."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(25):
        sides: list[list[Row]] = [[], []]
        for i in range(20):
            for side, rows in enumerate(sides):
                us = 10 * (1.1 if side and i < 2 else 1.0)
                looks = [
                    tuple(us * 1e-6 * np.exp(rng.normal(0, 0.01)) * rng.lognormal(0, 0.02, 60))
                    for _ in range(2)
                ]
                rows.append(
                    Row(f"op{i}", "", "", "fp32", "eager", n=60, median_us=float(np.median(looks[0])) * 1e6, times_s=looks[0],
                        again_s=looks[1], traced_calls=1, traced_ns=MS)
                )  # fmt: skip
        said = diff_benchmarks(*(BenchResult(tuple(rows), whole=(20 * MS, 20)) for rows in sides)).verdict
        assert said is not None
        inside += said.low <= 0.01 <= said.high
    assert inside >= 22


def test_a_machine_that_is_too_noisy_gives_no_verdict() -> None:
    rng = np.random.default_rng(1)
    rows = [
        replace(row(f"op{i}", 10, seed=i, ns=MS), again_s=tuple(1e-5 * np.exp(rng.normal(0, 0.5)) * np.ones(50))) for i in range(10)
    ]  # fmt: skip
    said = diff_benchmarks(
        result(*rows), result(*(replace(r, times_s=tuple(3 * t for t in r.times_s)) for r in rows))
    ).verdict
    assert said is not None and said.call == "unclear" and "too noisy to tell" in said.sentence


def test_a_benchmark_keeps_what_its_operators_are_in_the_traced_run() -> None:
    a = torch.rand(8, 8)
    with lux.trace() as t:
        for _ in range(7):
            a @ a
        torch.exp(a)
    ops = t.operators()
    found = lux.bench(ops, budget_s=0.2, quiet=True)
    assert found.whole == ops.whole and found.whole[1] == 8
    assert {(r.op, r.traced_calls) for r in found} == {("Tensor.__matmul__", 7), ("torch.exp", 1)}
    assert [r.traced_ns for r in found] == [case.total_ns for case in ops]
