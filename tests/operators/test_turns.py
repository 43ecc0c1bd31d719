"""Two sides measured in turns: who comes when, what a failing side costs, and a real slowdown that is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.isolate import Outcome
from luxmeter.operators import bench_against, diff_benchmarks, load_benchmark, read_against
from luxmeter.operators.jobs import jobs_of
from luxmeter.operators.options import make_options
from luxmeter.operators.results import Row
from luxmeter.operators.turns import FIND, Side, TurnsEngine
from luxmeter.operators.weighing import run_verdicts
from luxmeter.verdict import compare_in_turns, found_in_turns
from luxmeter.view.cli import build_app

ONE_CORE = "what is measured in turns hangs on names and arguments, which tests of the recorder hold on both"

SLOW = """
import time
import torch

right = torch.mm


def mm(*args, **kwargs):
    until = time.perf_counter() + 2e-4
    result = right(*args, **kwargs)
    while time.perf_counter() < until:
        pass
    return result


torch.mm = mm
"""


def traced() -> lux.Operators:
    a = torch.rand(24, 24)
    with lux.trace() as t:
        torch.mm(a, a), torch.exp(a), torch.softmax(a, 1)
    return t.operators()


def test_a_side_that_is_really_slower_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text(SLOW)
    traced().save("ops.jsonl")
    said = [
        "bench",
        "ops.jsonl",
        "--against",
        "setup=slow",
        "-o",
        "a.parquet",
        "-o",
        "b.json",
        "--budget-s",
        "1",
        "--json",
    ]
    done = CliRunner().invoke(build_app(), said, catch_exceptions=False)
    found = json.loads(done.stdout)
    assert {c["op"]: c["call"] for c in found["changes"] if c["call"] == "slower"} == {"torch.mm": "slower"}
    assert (
        found["rounds"] == 3
        and found["a"] == "a"
        and found["differences"] == [{"name": "setup", "a": None, "b": "slow"}]
    )
    again = diff_benchmarks(load_benchmark("a.parquet"), load_benchmark("b.json"))
    assert [c.op for c in again.of("slower")] == ["torch.mm"] and "in turns, 3 rounds" in str(again)


class FakeWorkers:
    """Answers as a worker does, without measuring: an operator takes as long as `took` says."""

    def __init__(self, name: str, took: Any, log: list[str]) -> None:
        self._name, self._took, self._log = name, took, log
        self._held = ""

    def start(self) -> None:
        self._log.append(f"{self._name} starts")

    def run(self, work: str, args: dict[str, Any], *, timeout_s: float) -> Outcome:
        if work.endswith("hold_one"):
            self._held = args["case"]["op"]
            taken = self._took(self._held)
            if taken is None:
                return Outcome("crashed", reason="ended by SIGSEGV")
            return Outcome("ok", {"status": "ok", "calls": 10, "call_s": taken})
        self._log.append(self._name)
        return Outcome("ok", [self._took(self._held)] * args["blocks"])


def engine(log: list[str], *, a: Any, b: Any, budget_s: float = 0.0, find: float = FIND) -> TurnsEngine:
    ops, options = traced(), make_options({"budget_s": budget_s, "quiet": True})
    sides = []
    for name, took in (("A", a), ("B", b)):
        workers = FakeWorkers(name, took, log)
        pools = SimpleNamespace(of=lambda backend, w=workers: w, renew=lambda: None, versions=dict)
        sides.append(Side(options, pools, list(jobs_of(ops, options, None))))
    return TurnsEngine((sides[0], sides[1]), find=find, clock=lambda: 0.0)


def test_turns_alternate_and_rounds_have_new_processes() -> None:
    log: list[str] = []
    a, b = engine(log, a=lambda op: 1e-5, b=lambda op: 2e-5).run()
    starts = [i for i, line in enumerate(log) if line.endswith("starts")]
    assert [log[i] for i in starts] == [
        "A starts",
        "B starts",
        "B starts",
        "A starts",
        "A starts",
        "B starts",
    ]
    turns = log[2 : starts[2]]
    assert turns[:4] == ["A", "B", "B", "A"] and turns.count("A") == turns.count("B")
    assert a.together == b.together and all(len(row.turns_s) == 3 for row in (*a, *b))
    found = diff_benchmarks(a, b)
    assert len(found.of("slower")) == 3 and found.changes[0].relative == pytest.approx(1.0)


def test_a_case_that_dies_on_one_side_is_broken_and_costs_no_other() -> None:
    a, b = engine([], a=lambda op: 1e-5, b=lambda op: None if op == "torch.exp" else 1e-5).run()
    assert {row.op: row.status for row in b}["torch.exp"] == "crashed"
    found = diff_benchmarks(a, b)
    assert [c.op for c in found.of("broken")] == ["torch.exp"] and len(found.changes) == 3
    assert next(row for row in a if row.op == "torch.exp").median_us == pytest.approx(10.0)


def test_chance_is_how_far_rounds_differ() -> None:
    rng = np.random.default_rng(0)
    things: dict[str, Any] = {}
    for number in range(60):  # each has its own luck with its processes, round by round
        rounds = []
        for _ in range(6):
            luck, b = rng.normal(0, 0.01), np.exp(rng.normal(0, 0.003, 20))
            rounds.append((np.ones(20), b * np.exp(luck) * (1.05 if number == 7 else 1.0)))
        things[str(number)] = rounds
    found = compare_in_turns(things, smallest=0.02, share_of_errors=0.05)
    assert [name for name, c in found.items() if c.call in ("higher", "lower")] == ["7"]
    alone = compare_in_turns({"x": things["7"][:1]}, smallest=0.02)
    assert alone["x"].call == "unclear"  # one round tells nothing of chance


def things_of(ratios: Any) -> dict[str, Any]:
    return {str(i): [(np.ones(1), np.exp([r])) for r in rounds] for i, rounds in enumerate(ratios)}


def disturbed(rng: np.random.Generator, things: int, rounds: int) -> Any:
    """Rounds of which one in eight was met by something else that ran."""
    wild = np.where(rng.random((things, rounds)) < 0.12, 30.0, 1.0)
    return rng.normal(0, 0.01, (things, rounds)) * wild


def test_five_per_cent_in_one_of_many_are_found_though_some_rounds_are_wild() -> None:
    rng, found, alarms = np.random.default_rng(6), 0, 0
    for _ in range(8):
        ratios = disturbed(rng, 100, 28)
        alarms += sum(c.call in ("higher", "lower") for c in compare_in_turns(things_of(ratios), smallest=0.02, share_of_errors=0.05).values())  # fmt: skip
        ratios[7] += np.log(1.05)
        called = compare_in_turns(things_of(ratios), smallest=0.02, share_of_errors=0.05)
        found += called["7"].call == "higher"
        assert called["7"].relative.low < 0.05 < called["7"].relative.high
    assert found >= 7 and alarms <= 1


def test_what_would_be_found_is_what_is_found() -> None:
    rng = np.random.default_rng(7)
    ratios = list(disturbed(rng, 60, 24))
    says = np.array(found_in_turns(ratios, 0.0, smallest=0.02, share_of_errors=0.05))
    found = []
    for i in range(0, 60, 6):
        fresh = list(disturbed(rng, 60, 24))
        fresh[i] = fresh[i] + np.log1p(says[i])
        found.append(compare_in_turns(things_of(fresh), smallest=0.02, share_of_errors=0.05)[str(i)].call == "higher")  # fmt: skip
    assert np.mean(found) >= 0.7 and float(np.median(says)) < 0.05
    few = found_in_turns([r[:4] for r in ratios], 0.0, smallest=0.02, share_of_errors=0.05)
    assert float(np.median(few)) > 2 * float(np.median(says))
    assert found_in_turns([], 0.05, smallest=0.02, share_of_errors=0.05) == []
    assert found_in_turns([r[:1] for r in ratios[:3]], 0.05, smallest=0.02, share_of_errors=0.05) == [np.inf] * 3  # fmt: skip


def test_rounds_go_on_only_for_what_may_have_changed() -> None:
    log: list[str] = []
    slow = {"torch.exp": 1.06e-5}
    a, b = engine(log, a=lambda op: 1e-5, b=lambda op: slow.get(op, 1e-5), budget_s=1000.0).run()
    rounds = {row.op: len(row.turns_s) for row in b}
    assert rounds == {"torch.exp": 64, "torch.mm": 5, "torch.softmax": 5} and log.count("A starts") == 64
    assert a.find == b.find == 0.05
    found = diff_benchmarks(a, b)
    assert [c.op for c in found.of("slower")] == ["torch.exp"] and found.rounds == 64
    assert [c.finds for c in found.of("same")] == [pytest.approx(0.05)] * 2
    smaller = {
        "torch.exp": 1.03e-5
    }  # excluded are 5 %, and how long it took to exclude them hung on what was seen
    a, b = engine([], a=lambda op: 1e-5, b=lambda op: smaller.get(op, 1e-5 * 1.2), budget_s=1000.0).run()
    calls = {c.op: (c.call, c.why) for c in diff_benchmarks(a, b, smallest=0.02).changes}
    assert calls["torch.exp"] == ("same", "within 5.0% either way") and calls["torch.mm"][0] == "slower"
    every = engine([], a=lambda op: 1e-5, b=lambda op: 1e-5, budget_s=1000.0, find=0.0).run()
    assert [len(row.turns_s) for row in every[1]] == [64] * 3


def test_a_comparison_says_how_small_a_change_it_would_find(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)

    def took(op: str) -> float:
        return 1e-5 * float(np.exp(rng.normal(0, 0.02)))

    short = diff_benchmarks(*engine([], a=took, b=took).run())
    said = str(short)
    assert "would be found, 95 times of 100, from" in said
    assert "of 3 rows small changes show from 8 rounds on, and here are 3: give more --budget-s" in said
    a, b = engine([], a=took, b=took, budget_s=1000.0, find=0.0).run()
    long = diff_benchmarks(a, b)
    assert short.finds and long.finds and long.finds[1] < short.finds[0] and "small changes" not in str(long)
    assert long.to_json()["finds"] == list(long.finds)
    kept = [load_benchmark(side.to_file(tmp_path / name)) for side, name in ((a, "a.json"), (b, "b.parquet"))]
    assert [side.find for side in kept] == [0.0, 0.0] and diff_benchmarks(*kept).finds == long.finds


def test_the_whole_is_as_sure_as_its_rounds() -> None:
    """Rows that were left out have told less of the whole: as if all rounds had been theirs the interval would be too narrow."""
    rng, held, width = np.random.default_rng(9), 0, []
    for _ in range(60):
        pairs = []
        for i in range(12):
            logs = rng.normal(0, 0.02, 24 if i < 3 else 6)
            row = Row(f"op{i}", "", "", "fp32", "eager", median_us=1.0, times_s=(1e-6,), traced_calls=1, traced_ns=1000)  # fmt: skip
            pairs.append((replace(row, turns_s=((1.0,),) * len(logs)), replace(row, turns_s=tuple((float(np.exp(r)),) for r in logs))))  # fmt: skip
        [found] = run_verdicts(pairs, None, None, settings=("scale",))
        held += found.low <= 0 <= found.high
        width.append(found.high - found.low)
    assert held >= 52 and float(np.median(width)) < 0.02


def test_words_for_the_other_side() -> None:
    assert read_against(["new/bin/python", "env=A=1", "env=B=2", "threads=2"]) == {
        "python": ["new/bin/python"], "env": ["A=1", "B=2"], "threads": "2",
    }  # fmt: skip
    with pytest.raises(UsageError, match="threads was given twice"):
        read_against(["threads=1", "threads=2"])


@pytest.mark.parametrize(
    ("against", "settings", "said"),
    [
        ({"seed": 1}, {}, "cannot differ in seed"), ({}, {}, "nothing to differ in"), ({"threads": 2}, {"kernels": True}, "kernels does not go"),
        ({"threads": [1, 2]}, {}, "One side has 3 rows and the other 6"), ({"env": "novalue"}, {}, "bad-variable"),
    ],
)  # fmt: skip
def test_sides_that_cannot_be_held_against_each_other(against: Any, settings: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bench_against(traced(), against, **settings)


@pytest.mark.parametrize("more", [["-o", "a.json"], ["-o", "a.png", "-o", "b.json"], ["--plot", "speedup"]])
def test_outputs_of_two_sides(more: list[str]) -> None:
    done = CliRunner().invoke(build_app(), ["bench", "ops.jsonl", "--against", "threads=2", *more])
    assert isinstance(done.exception, UsageError) and done.exception.slug == "against-outputs"


def test_what_is_looked_for_must_be_a_share_of_two_sides() -> None:
    with pytest.raises(UsageError, match="bad-find"):
        bench_against(traced(), {"threads": 2}, find=-0.1)
    done = CliRunner().invoke(build_app(), ["bench", "ops.jsonl", "--find", "0.1"])
    assert isinstance(done.exception, UsageError) and done.exception.slug == "find-alone"
