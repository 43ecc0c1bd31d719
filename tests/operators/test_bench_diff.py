"""One benchmark against another: what changed beyond chance and noise, what broke, what is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luxmeter.errors import UsageError
from luxmeter.operators.diff import diff_benchmark_files, diff_benchmarks
from luxmeter.operators.results import BenchResult, Row


def row(op: str, us: float | None, *, spread: float = 0.01, n: int = 60, seed: int = 0, **more: Any) -> Row:
    times: tuple[float, ...] = ()
    if us is not None:
        times = tuple(us * 1e-6 * (1 + spread * np.random.default_rng(seed).standard_normal(n)))
    status = {} if us is not None else {"status": "error", "reason": "RuntimeError: no"}
    values: dict[str, Any] = {
        "signature": "f32[8]",
        "scale": "",
        "dtype": "fp32",
        "backend": "eager",
        **status,
        **more,
    }
    return Row(op=op, n=len(times), median_us=us, times_s=times, **values)


A = BenchResult(
    (
        row("same", 10), row("slower", 10), row("faster", 10), row("broken", 10), row("fixed", None), row("gone", 10),
        row("twice", 10), row("twice", 20), row("never", None),
    ), {"machine": {"processor": "x", "cores": 2, "python": "3.11.7"}, "packages": {"torch": "2.12.0"}}, 0.01,
)  # fmt: skip
B = BenchResult(
    (
        row("same", 10.01, seed=1), row("slower", 12, seed=2), row("faster", 8, seed=3), row("broken", None),
        row("fixed", 10), row("new", 5), row("twice", 10, seed=5), row("twice", 30, seed=4), row("never", None),
    ), {"machine": {"processor": "x", "cores": 2, "python": "3.11.7"}, "packages": {"torch": "2.13.0"}}, 0.03,
)  # fmt: skip


def test_every_kind_of_change_is_called_by_its_name() -> None:
    found = diff_benchmarks(A, B)
    calls = [(c.op, c.call) for c in found.changes]
    assert sorted(calls[7:9]) == [("same", "same"), ("twice", "same")]
    assert calls[:7] + calls[9:] == [
        ("broken", "broken"), ("twice", "slower"), ("slower", "slower"), ("fixed", "fixed"), ("faster", "faster"),
        ("gone", "gone"), ("new", "new"), ("never", "neither"),
    ]  # fmt: skip
    slower = found.of("slower")[1]
    assert slower.relative == pytest.approx(0.2, abs=0.01) and slower.low < 0.2 < slower.high
    assert slower.p_value is not None and slower.p_value < 0.01
    assert found.of("broken")[0].why == "error: RuntimeError: no"
    assert found.threshold == 0.03  # the larger of the two noise floors
    assert found.notes == ("torch 2.12.0 and 2.13.0",)


def test_noise_is_not_called_a_difference() -> None:
    """3 % more, with a floor of 5 % in one of them; and a lone pair of values."""
    loud = BenchResult((row("x", 10),), noise_floor=0.05)
    assert [
        c.call
        for c in diff_benchmarks(loud, BenchResult((row("x", 10.3, seed=9),), noise_floor=0.01)).changes
    ] != ["slower"]
    few = BenchResult((row("x", 10, n=1),)), BenchResult((row("x", 20, n=1),))
    [change] = diff_benchmarks(*few).changes
    assert change.call == "unclear" and "cannot reach" in change.why


def test_files_text_and_json(tmp_path: Path) -> None:
    a, b = A.to_json(tmp_path / "old.json"), B.to_parquet(tmp_path / "new.parquet")
    found = diff_benchmark_files(a, b)
    text = str(found)
    assert "slower" in text and "+20." in text and "1 broken, 2 slower" in text
    assert "new takes" in text and "x the time of old" in text
    told = json.loads(json.dumps(found.to_json()))
    assert told["counts"] == {"broken": 1, "slower": 2, "fixed": 1, "faster": 1, "gone": 1, "new": 1, "same": 2,
                              "neither": 1}  # fmt: skip
    assert len(told["changes"]) == 10 and told["a"] == "old"
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UsageError, match="benchmark-damaged"):
        diff_benchmark_files(a, tmp_path / "x.json")


def test_another_machine_is_pointed_out() -> None:
    other = BenchResult(
        B.rows, {"machine": {"processor": "y", "cores": 64}, "packages": {"torch": "2.12.0"}}, complete=False
    )
    notes = "\n".join(diff_benchmarks(A, other).notes)
    assert "processor x and y" in notes and "cores 2 and 64" in notes and "no noise floor" in notes
    assert "stopped early" in notes
