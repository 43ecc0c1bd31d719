"""One benchmark against another: what changed beyond chance and noise, what broke, what is new."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luxmeter.errors import UsageError
from luxmeter.operators.diff import diff_benchmark_files, diff_benchmarks
from luxmeter.operators.matrix import diff_many, diff_many_files
from luxmeter.operators.results import BenchResult, Row, load_benchmark


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
    assert slower.effect is not None and slower.effect > 0.95
    assert found.threshold == 0.03  # the larger of the two noise floors
    assert [str(d) for d in found.differences] == ["torch 2.12.0 and 2.13.0"]
    assert "not the same environment: torch 2.12.0 and 2.13.0" in str(found)


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
    notes = str(diff_benchmarks(A, other))
    assert "processor x and y" in notes and "cores 2 and 64" in notes and "no noise floor" in notes
    assert "stopped early" in notes


def test_a_setting_that_differs_as_a_whole_is_what_is_compared() -> None:
    """One number of threads in all of A, another in all of B: rows are paired, and the difference is named."""
    one = BenchResult((row("x", 10, threads=1), row("y", 10, threads=1)), noise_floor=0.01)
    two = BenchResult((row("x", 6, threads=2, seed=1), row("y", 10, threads=2, seed=2)), noise_floor=0.01)
    found = diff_benchmarks(one, two)
    assert [(c.op, c.call) for c in found.changes] == [("x", "faster"), ("y", "same")]
    assert [str(d) for d in found.differences] == ["threads 1 and 2"]
    mixed = BenchResult(
        (*one.rows, *two.rows), noise_floor=0.01
    )  # two settings in one of them: rows of one name
    assert sorted(c.call for c in diff_benchmarks(one, mixed).changes) == ["new", "new", "same", "same"]


def test_nothing_in_common_is_refused_with_the_reason() -> None:
    one, other = BenchResult((row("x", 10),)), BenchResult((row("y", 10), row("z", 10)))
    with pytest.raises(UsageError, match=r"operators \(x and y and 1 more\).*nothing-in-common"):
        diff_benchmarks(one, other)
    with pytest.raises(UsageError, match=r"sizes \(batch=1 and batch=2\)"):
        diff_benchmarks(
            BenchResult((row("x", 1, scale="batch=1"),)), BenchResult((row("x", 1, scale="batch=2"),))
        )
    with pytest.raises(UsageError, match="bad-smallest"):
        diff_benchmarks(one, one, smallest=0)
    with pytest.raises(UsageError, match="nothing-to-compare"):
        diff_many([one])


def test_what_looking_again_shows_is_noise_and_not_a_change() -> None:
    """Ten rows that another look moves by 5 %: 6 % more is nothing, 60 % is; without second looks both would be called."""
    rng = np.random.default_rng(0)

    def measured(us: float, seed: int) -> Row:
        times = np.array(row("x", us, seed=seed).times_s)
        moved = np.exp(rng.normal(0, 0.05))
        return replace(row("x", us), times_s=tuple(times), again_s=tuple(times * moved))

    def result(seed: int, **changed: float) -> BenchResult:
        rows = [replace(measured(10 * changed.get(f"op{i}", 1.0), seed + i), op=f"op{i}") for i in range(10)]
        return BenchResult(tuple(rows), noise_floor=0.01)

    a, b = result(0), result(100, op3=1.06, op4=1.6)
    found = diff_benchmarks(a, b)
    assert [c.op for c in found.of("slower")] == ["op4"] and not found.of("faster")
    assert found.wander.looks == 20 and 0.02 < found.wander.each < 0.06
    blind = [BenchResult(tuple(replace(r, again_s=()) for r in x), noise_floor=0.01) for x in (a, b)]
    assert [c.op for c in diff_benchmarks(*blind).of("slower")] == ["op4", "op3"]


def test_several_benchmarks_are_a_matrix(tmp_path: Path) -> None:
    paths = [
        A.to_json(tmp_path / "old.json"),
        B.to_json(tmp_path / "new.json"),
        A.to_json(tmp_path / "again.json"),
    ]
    found = diff_many_files(paths)
    assert found.names == ("old", "new", "again")
    text = str(found)
    assert "old " in text and "+20." in text and "broken" in text
    assert "new: not the same environment: torch 2.12.0 and 2.13.0" in text and "again: not" not in text
    lines = {line[0]: line[5:] for line in found.table(everything=True).rows if line[0] != "twice"}
    assert lines["slower"][0].endswith(" slower") and lines["slower"][1].startswith("(")
    told = json.loads(json.dumps(found.to_json()))
    assert [d["b"] for d in told["against_first"]] == ["new", "again"]
    assert {r.name.partition(":")[0] for r in found.regressions(0.02)} == {"new"}


def test_a_regression_is_more_than_the_threshold_and_beyond_chance() -> None:
    found = diff_benchmarks(A, B)
    said = [(r.name.partition("(")[0], r.kind) for r in found.regressions(0.02)]
    assert said == [("broken", "broken"), ("twice", "slower"), ("slower", "slower")]
    assert [r.kind for r in found.regressions(0.3)] == ["broken", "slower"]
    assert found.regressions(0.3)[0].change is None
    assert diff_benchmarks(A, A).regressions(0.001) == []


def test_a_benchmark_of_the_first_format_is_read_and_a_newer_one_refused(tmp_path: Path) -> None:
    path = A.to_json(tmp_path / "a.json")
    said = json.loads(path.read_text())
    for name in ("traced_calls", "traced_ns", "again_s"):
        for each in said["rows"]:
            del each[name]
    del said["whole"]
    path.write_text(json.dumps({**said, "version": 1}))
    assert load_benchmark(path) == A
    path.write_text(json.dumps({**said, "version": 99}))
    with pytest.raises(UsageError, match=r"version 99.*benchmark-newer"):
        load_benchmark(path)
