"""`luxmeter diff` of benchmarks, traces and runs: several at once, exit codes for CI, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.operators.results import BenchResult, Row
from luxmeter.view.cli import build_app

ONE_CORE = "which calls a trace has is the same on both cores"


def luxmeter(*args: str) -> Any:
    return CliRunner().invoke(build_app(), list(args), catch_exceptions=False)


def bench(name: str, *, torch_version: str = "2.12.0", **us: float) -> str:
    """A benchmark file of made-up times: operator -> microseconds."""
    rows = []
    for number, (op, value) in enumerate(us.items()):
        times = value * 1e-6 * np.random.default_rng([number, len(name)]).lognormal(0, 0.01, 80)
        rows.append(
            Row(f"torch.{op}", "f32[2,2]", "", "fp32", "eager", n=80, median_us=float(np.median(times)) * 1e6, times_s=tuple(times),
                traced_calls=10, traced_ns=40_000_000)
        )  # fmt: skip
    environment = {"packages": {"torch": torch_version}}
    BenchResult(tuple(rows), environment, 0.01, whole=(100_000_000, 50)).to_json(f"{name}.json")
    return f"{name}.json"


def test_the_verdict_and_what_differs_are_printed() -> None:
    a, b = bench("old", mm=10, exp=5), bench("newer", torch_version="2.13.0", mm=8, exp=5)
    said = luxmeter("diff", a, b)
    assert said.exit_code == 0
    assert "this run would be 8." in said.stdout and "% of it from mm." in said.stdout
    assert "The 2 compared rows are 80% of its time" in said.stdout
    assert "not the same environment: torch 2.12.0 and 2.13.0" in said.stdout
    told = json.loads(luxmeter("diff", a, b, "--json").stdout)
    assert told["verdicts"][0]["call"] == "faster" and told["differences"] == [
        {"name": "torch", "a": "2.12.0", "b": "2.13.0"}
    ]
    assert "regressions" not in told


def test_three_are_a_matrix() -> None:
    files = bench("old", mm=10, exp=5), bench("same", mm=10, exp=5), bench("slow", mm=10, exp=6)
    said = luxmeter("diff", *files, "--all").stdout
    assert "old " in said and "slow: this run would be" in said and "% slower" in said
    told = json.loads(luxmeter("diff", *files, "--json").stdout)
    assert told["names"] == ["old", "same", "slow"] and len(told["against_first"]) == 2
    failed = luxmeter("diff", *files, "--fail-on-regression")
    assert failed.exit_code == 1 and "slow: torch.exp(f32[2,2])" in failed.stdout.split("regression")[-1]


def test_a_regression_ends_with_1_and_a_short_list() -> None:
    a, b = bench("old", mm=10, exp=5), bench("newer", mm=10.6, exp=5)
    for words in (("--fail-on-regression", a, b), (a, b, "--fail-on-regression"), (a, b, "--fail-on-regression=3%"),
                  (a, b, "--fail-on-regression=0.03")):  # fmt: skip
        said = luxmeter("diff", *words)
        assert said.exit_code == 1, words
        assert "slower  torch.mm(f32[2,2]) [fp32, eager]" in said.stdout.split("regressions above")[-1]
    assert luxmeter("diff", a, b, "--fail-on-regression=10%").exit_code == 0
    assert "no regressions above 10.0%" in luxmeter("diff", a, b, "--fail-on-regression=10%").stdout
    assert luxmeter("diff", b, a, "--fail-on-regression").exit_code == 0  # faster
    assert luxmeter("diff", a, b).exit_code == 0
    told = luxmeter("diff", a, b, "--fail-on-regression", "--json")
    assert told.exit_code == 1
    assert [(r["name"], r["kind"]) for r in json.loads(told.stdout)["regressions"]][-1] == (
        "torch.mm(f32[2,2]) [fp32, eager]",
        "slower",
    )


@pytest.mark.parametrize("said", ["x", "0", "-1%", "200%", "nan%"])
def test_a_threshold_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match="bad-regression-threshold"):
        luxmeter("diff", "a", "b", f"--fail-on-regression={said}")


def test_what_means_nothing_is_refused_with_the_reason() -> None:
    x = torch.ones(4, 4)
    with lux.trace(keep="one"):
        x @ x
    with lux.trace(keep="two"):
        torch.zeros(2)
    a, b = bench("a", mm=10), bench("b", exp=10)
    with pytest.raises(UsageError, match=r"no row in common: their operators \(torch.mm and torch.exp\)"):
        luxmeter("diff", a, b)
    with pytest.raises(
        UsageError, match=r"traces have no api in common: A has @, B torch.zeros.*nothing-in-common"
    ):
        luxmeter("diff", "one", "two")
    with pytest.raises(UsageError, match=r"one is a trace, a.json is a benchmark.*diff-kinds"):
        luxmeter("diff", "one", a)
    Path("x.parquet").write_bytes(b"PAR1")
    Path("c.json").write_text('{"what": "luxmeter check"}')
    with pytest.raises(UsageError, match=r"c.json is a check, x.parquet is a benchmark\. .*diff-kinds"):
        luxmeter("diff", "c.json", "x.parquet")
    Path("x.txt").write_text("hello")
    with pytest.raises(
        UsageError, match=r"c.json is a check, x.txt is no file that is compared\. .*diff-kinds"
    ):
        luxmeter("diff", "c.json", "x.txt")
    Path("torn.parquet").write_bytes(b"PAR1" * 9)
    with pytest.raises(
        UsageError, match=r"torn.parquet is no benchmark of Luxmeter: [^:]*[^.]\. Give a file"
    ):
        luxmeter("diff", a, "torn.parquet")
    with pytest.raises(UsageError, match=r"There is no file nowhere.json\. .*no-such-file"):
        luxmeter("diff", "nowhere.json", a)
    with pytest.raises(UsageError, match=r"more than two are compared of benchmarks only.*diff-kinds"):
        luxmeter("diff", a, a, "one")


def test_traces_fail_by_calls_that_became_more() -> None:
    x = torch.ones(4, 4)
    for name, more in (("one", 1), ("two", 3)):
        with lux.trace(keep=name):
            for _ in range(20):
                for _ in range(more):
                    torch.exp(x)
                x @ x, torch.ones(3), x + x, x * x
    said = luxmeter("diff", "one", "two", "--fail-on-regression=50%", "--json")
    assert said.exit_code == 1
    assert ("torch.exp", "more") in [(r["name"], r["kind"]) for r in json.loads(said.stdout)["regressions"]]
    again = luxmeter("diff", "one", "one", "--fail-on-regression")
    assert again.exit_code == 0 and "all calls together" not in again.stdout  # of so few calls nobody knows


def test_runs_fail_by_what_they_hold() -> None:
    runs = []
    for name, hidden in (("small", 8), ("large", 64)):
        with lux.Experiment(name) as exp:
            exp.log({"loss": 1.0})
            lux.analyze(
                torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 2)), torch.ones(1, 4)
            )
        runs.append(exp.id)
    said = luxmeter("diff", *runs, "--fail-on-regression")
    assert said.exit_code == 1 and "parameters" in said.stdout.split("regressions above")[-1]
    assert luxmeter("diff", *reversed(runs), "--fail-on-regression").exit_code == 0
    told = json.loads(luxmeter("diff", *runs, "--fail-on-regression", "--json").stdout)
    assert {r["kind"] for r in told["results"]["model"]["regressions"]} == {"more"}
    empty = []
    for name in ("this", "that"):
        with lux.Experiment(name) as exp:
            exp.log({"loss": 1.0})
        empty.append(exp.id)
    with pytest.raises(UsageError, match="nothing-to-judge"):
        luxmeter("diff", *empty, "--fail-on-regression")
