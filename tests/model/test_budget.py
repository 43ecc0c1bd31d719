"""A cost that a test holds a model and a step to: what is counted, what is seen, and what the plugin loads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from luxmeter.calls import device_syncs, trace
from luxmeter.errors import UsageError
from luxmeter.model import CostBudget, OverBudgetError

ONE_CORE = "what is counted hangs on names and arguments, which tests of the recorder hold on both"
X = torch.rand(2, 16)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).relu())


def test_what_a_model_may_cost() -> None:
    budget = CostBudget()
    macs, params = 2 * (16 * 32 + 32 * 4), 16 * 32 + 32 + 32 * 4 + 4
    cost = budget.model(Net(), X, macs=macs, params=params, flops=1e6, peak_bytes=1e6)
    assert (cost.macs, cost.params) == (macs, params)
    with pytest.raises(OverBudgetError) as caught:
        budget.model(Net(), X, macs=macs - 1, params=100, peak_bytes=cost.peak_bytes - 1, flops=1e6)
    said = str(caught.value)
    assert "Net for 2x16 costs more than allowed" in said and "flops" not in said
    assert "macs: 1.28 K (1,280), allowed are 1.28 K (1,279), 0.1% more; most of it in a 80%, b 20%" in said
    assert "params: 676, allowed are 100, 576.0% more" in said and "peak_bytes: " in said
    with pytest.raises(OverBudgetError, match=r"params: 676, allowed are 10, 67\.6 times as much"):
        budget.model(Net(), X, params=10)
    with pytest.raises(AssertionError, match="training_peak_bytes"):
        budget.model(Net(), X, training_peak_bytes=1, optimizer="sgd")


def test_how_often_an_api_may_be_called() -> None:
    budget, net = CostBudget(), Net()
    with budget.step(
        calls={"torch.nn.Linear": 2, "Tensor.relu": 1, "torch.nn.functional.*": 0, "Tensor.item": 0}
    ):
        net(X)
    with pytest.raises(OverBudgetError, match=r"torch\.nn\.Linear: called 4 times, allowed are 2"):
        with budget.step(calls={"torch.nn.Linear": 2}):
            net(net.a.weight[:2, :16])
            net(X)
    with pytest.raises(OverBudgetError, match=r"Tensor\.\*: called 2 times \(Tensor.relu x2\)"):
        with budget.step(calls={"Tensor.*": 1}):
            net(X), net(X)
    with pytest.raises(ZeroDivisionError):  # of the step itself: no word about budgets
        with budget.step(calls={"Tensor.*": 0}):
            X.sum() / (1 / 0)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: float(x.sum()), lambda x: int(x.sum()), lambda x: x.tolist(),
        lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: x.to(device=torch.device("cpu")), lambda x: x.numpy(), lambda x: x.nonzero(),
        lambda x: torch.nonzero(x), lambda x: x[x > 0.5], lambda x: torch.masked_select(x, x > 0.5), lambda x: torch.unique(x),
        lambda x: torch.where(x > 0.5), lambda x: torch.equal(x, x), lambda x: f"{x.sum()}", lambda x: x.argwhere(),
        lambda x: torch.repeat_interleave(x, torch.tensor([1, 2]), dim=0),
    ],
)  # fmt: skip
def test_what_waits_for_a_device_is_seen_on_any(wait: Any) -> None:
    with pytest.raises(OverBudgetError, match="waits for the device: 1, allowed are 0"):
        with CostBudget().step(no_sync=True):
            wait(X)


def test_what_does_not_wait_is_let_pass() -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    with CostBudget().step(no_sync=True):
        net(X).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        (
            torch.where(X > 0.5, X, 0.0),
            X[0],
            X[:, torch.tensor([0, 1])],
            X.to(torch.float64),
            X.to("cpu", non_blocking=True),
        )
        torch.repeat_interleave(X, 2, dim=0), X.shape, len(X), X.masked_fill(X > 0.5, 0.0)
    with CostBudget().step(syncs=2):
        X.sum().item(), X.mean().item()


def test_where_a_program_waits_is_told() -> None:
    class Reads(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x).relu() * (1 if self.a(x).sum().item() > 0 else 2))

    with trace() as t:
        Reads()(X), Reads()(X), X.cpu()
    found = device_syncs(t.result)
    assert [(s.name, s.n) for s in found] == [("Tensor.item", 2), ("Tensor.cpu", 1)]
    assert "Reads" in str(found[0]) and "a value is read" in str(found[0])


def test_a_budget_that_holds_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="empty-budget"):
        CostBudget().model(Net(), X)
    with pytest.raises(UsageError, match="empty-budget"):
        with CostBudget().step():
            pass
    with pytest.raises(UsageError, match="bad-budget"):
        CostBudget().model(Net(), X, macs=-1)
    with pytest.raises(UsageError, match=r"'Tensor.itme'.*Tensor.item.*filter-matches-nothing"):
        with CostBudget().step(calls={"Tensor.itme": 0}):
            pass


def pytest_run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_plugin_loads_nothing_until_its_fixture_is_used(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent("""
        import sys
        def pytest_sessionfinish():
            print("LOADED", sorted(m for m in ("torch", "luxmeter", "numpy", "pytest_luxmeter") if m in sys.modules))
        """)
    )
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    said = pytest_run(tmp_path, "-s", "--collect-only").stdout
    assert "LOADED ['pytest_luxmeter']" in said, said
    (tmp_path / "test_it.py").write_text(
        "def test_it():\n    pass\n\ndef test_other(cost_budget):\n    assert cost_budget\n"
    )
    assert "LOADED ['pytest_luxmeter']" in pytest_run(tmp_path, "-s", "--collect-only").stdout
    used = pytest_run(tmp_path, "-s").stdout
    assert "2 passed" in used and "'torch'" in used
