"""A benchmark on a device whose calls return before their work is done: it holds all of the work, and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from card import let_go_when_waited_for

import luxmeter as lux
from luxmeter.operators import measure
from luxmeter.operators import work as worker
from luxmeter.operators.backends import Unsupported
from luxmeter.operators.case import Case, Operators, case_to_json
from luxmeter.signature import describe

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("card")]
MS = 1_000_000
MM = Case("torch.mm", describe((torch.ones(8, 8), torch.ones(8, 8))))


def test_a_block_of_a_benchmark_begins_with_an_empty_queue_and_holds_all_its_work(card: Any):
    """By the card's own clock, which only its work moves: what was queued before, or is not waited for, would be seen."""
    a = torch.ones(4, 4, device="card")
    torch.accelerator.synchronize()
    card.cost(3 * MS), card.hold()
    for _ in range(10):
        torch.relu(a)
    released = let_go_when_waited_for(card)
    found = measure(
        lambda: torch.mm(a, a), sync=worker._waiter("card"), queued=True, clock=card.clock_ns, budget_s=1.0
    )
    released.join()
    assert (
        found.first_s == 3e-3
        and set(found.times_s) == {3e-3}
        and len(found.times_s) > 5
        and card.pending() == 0
    )
    card.hold()
    assert measure(lambda: torch.mm(a, a), clock=card.clock_ns, budget_s=0).median_s == 0


def test_bench_waits_for_the_card_that_it_measures(card: Any):
    card.tick(False), card.cost(2 * MS, 1)
    case = case_to_json(MM)
    before = card.waits(1)
    row = worker.bench_one(
        case, dtype="recorded", backend="eager", backward=False, threads=1, budget_s=0.2, target_ci=0.5, device="card:1"
    )  # fmt: skip
    assert row["status"] in ("ok", "doubtful") and row["max_abs_error"] == 0
    assert min(row["times_s"]) >= 2e-3 and card.waits(1) > before + len(row["times_s"])


def test_latency_of_a_model_on_the_card_is_that_of_its_work(card: Any):
    card.tick(False)
    net = torch.nn.Linear(4, 4).to("card")
    x = torch.ones(2, 4, device="card")
    before = card.waits()
    cost = lux.analyze(net, x, latency=True)
    assert cost.latency is not None and min(cost.latency.batches[0].times_ns) >= MS
    assert card.waits() > before


def test_a_device_that_nothing_waits_for_is_not_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    monkeypatch.delattr(sys.modules["torch.card"], "synchronize")
    with pytest.raises(Unsupported, match="nothing that waits for 'card'"):
        worker._waiter("card")


def test_the_command_measures_on_the_card_in_its_workers(tmp_path: Path):
    """`--setup` brings the device into each worker."""
    Operators([MM]).save(tmp_path / "ops.json")
    (tmp_path / "bring_card.py").write_text("import card\ncard.load().cost(2_000_000)\n")
    path = os.pathsep.join([str(Path(__file__).parent), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "bench", "ops.json", "--device", "card", "--setup", "bring_card", "--budget-s", "3", "--json"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    [row] = json.loads(done.stdout)["rows"]
    assert row["device"] == "card" and row["status"] in ("ok", "doubtful") and row["min_us"] >= 2000
