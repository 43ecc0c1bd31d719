"""benchmarks/diff_quality.py in small: few false alarms, a slowdown found, on times with heavy tails, drift and neighbours alike."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from luxmeter.operators.results import BenchResult, Row

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "diff_quality.py"


@pytest.fixture(scope="module")
def quality() -> Any:
    spec = importlib.util.spec_from_file_location("diff_quality_of_tests", SCRIPT)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look their module up
    spec.loader.exec_module(found)
    yield found
    del sys.modules[spec.name]


def series(rng: np.random.Generator, n: int = 150) -> np.ndarray:
    """Each time resembles the one before, some are far too long, and all get slower by and by."""
    noise = rng.standard_t(4, n) * 0.006
    for i in range(1, n):
        noise[i] += 0.5 * noise[i - 1]
    return 1 + np.maximum(noise, -0.02) + np.linspace(0, 0.002, n)


def benchmark(rng: np.random.Generator, operators: int = 30) -> BenchResult:
    def look(us: float) -> tuple[float, ...]:
        return tuple(us * 1e-6 * np.exp(rng.standard_t(6) * 0.002) * series(rng))

    rows = []
    for i in range(operators):
        times, again = look(2.0 + i), look(2.0 + i)
        rows.append(
            Row(f"op{i}", "", "", "fp32", "eager", n=len(times), median_us=float(np.median(times)) * 1e6, times_s=times, again_s=again,
                traced_calls=1, traced_ns=1000)
        )  # fmt: skip
    return BenchResult(tuple(rows), noise_floor=0.0)


def test_a_sample(quality: Any) -> None:
    rng = np.random.default_rng(0)
    noise = quality.Noise.of([benchmark(rng) for _ in range(3)])
    found = quality.simulate(noise, operators=32, repetitions=6, slowdown=0.05, seed=1)
    assert found["with_alarm"] == 0 and found["false_of_called_beside_a_true_one"] <= 0.1
    assert found["power"] >= 5 / 6
    assert found["verdict_has_zero"] >= 4 / 6


def test_without_its_second_looks_noise_would_be_called_a_change(quality: Any) -> None:
    """Levels that differ by 4 % from session to session: the rank test alone is fooled."""
    rng = np.random.default_rng(2)
    loud = [BenchResult(tuple(_moved(row, rng) for row in benchmark(rng))) for _ in range(2)]
    assert not quality.compared(*loud)["slower"] and not quality.compared(*loud)["faster"]
    blind = [BenchResult(tuple(replace(row, again_s=()) for row in result)) for result in loud]
    assert quality.compared(*blind)["slower"] + quality.compared(*blind)["faster"] > 5


def _moved(row: Row, rng: np.random.Generator) -> Row:
    first, second = (np.exp(rng.normal(0, 0.04, 2))).tolist()
    return replace(
        row, times_s=tuple(first * t for t in row.times_s), again_s=tuple(second * t for t in row.again_s)
    )


def in_turns(
    rng: np.random.Generator, rounds: int = 40, operators: int = 40
) -> tuple[BenchResult, BenchResult]:
    """Two equal sides: each round has its own luck with each operator, and one in ten was disturbed."""
    sides: list[list[Row]] = [[], []]
    for i in range(operators):
        luck = rng.normal(0, 0.012, rounds) * np.where(rng.random(rounds) < 0.1, 20, 1)
        turns = np.exp(luck[:, None] + rng.normal(0, 0.01, (rounds, 6)))
        for rows, taken in zip(sides, (np.ones_like(turns), turns), strict=True):
            rows.append(
                Row(f"op{i}", "", "", "fp32", "eager", median_us=1.0, times_s=(1e-6,), traced_calls=1, traced_ns=1000,
                    turns_s=tuple(tuple(t) for t in taken.tolist()))
            )  # fmt: skip
    return BenchResult(tuple(sides[0]), together="x"), BenchResult(tuple(sides[1]), together="x")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sample_in_turns(quality: Any, seed: int) -> None:
    noise = quality.Rounds.of(
        [in_turns(np.random.default_rng(3), 24), in_turns(np.random.default_rng(4), 24)]
    )
    found = quality.simulate_turns(noise, operators=40, repetitions=10, slowdown=0.05, find=0.05, seed=seed)
    assert found["rounds"] == 24 and found["with_alarm"] <= 0.1 and found["power"] >= 0.8
    assert found["of_all_rounds_measured"] < 0.7 and found["verdict_has_zero"] >= 0.7
