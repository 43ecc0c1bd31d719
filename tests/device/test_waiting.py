"""On a device whose calls return before their work is done: what sync=True waits for, and that nothing else waits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from card import let_go_when_waited_for

import luxmeter as lux

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("core_name", "card")]
MS = 1_000_000


def test_the_card_is_an_accelerator_whose_calls_return_before_their_work_is_done(card: Any):
    assert str(torch.accelerator.current_accelerator()) == "card" and torch.accelerator.device_count() == 2
    a = torch.arange(16.0).reshape(4, 4).to("card")
    torch.accelerator.synchronize()
    card.hold()
    begun = card.clock_ns()
    out = torch.relu(torch.mm(a, a) + 1)
    assert card.pending() >= 3 and card.clock_ns() == begun
    card.hold(False)
    torch.accelerator.synchronize()
    assert card.clock_ns() - begun == 3 * MS
    cpu = a.cpu()
    assert torch.equal(out.cpu(), torch.relu(cpu @ cpu + 1))


def test_a_network_learns_on_the_card_as_on_the_cpu():
    def trained(device: str) -> torch.Tensor:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.arange(12.0).reshape(3, 4).to(device) / 12
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        return net[0].weight.detach().cpu()

    assert torch.allclose(trained("cpu"), trained("card"))


def test_with_sync_each_call_ends_when_its_work_is_done(card: Any):
    a = torch.ones(4, 4, device="card")
    with lux.trace(sync=True, only=["torch.mm", "torch.relu"]) as t:
        for _ in range(5):
            before = card.waits()
            torch.mm(a, a)
            assert card.pending() == 0 and card.waits() == before + 1
            torch.relu(a)
            assert card.pending() == 0 and card.waits() == before + 2
    assert {row.name: row.n for row in t.table()} == {"torch.mm": 5, "torch.relu": 5}
    assert all(t.events()["completed"].to_pylist())


def test_dispatch_and_completion_are_told_apart(card: Any):
    a = torch.ones(4, 4, device="card")
    torch.accelerator.synchronize()
    card.hold()
    released = let_go_when_waited_for(card)
    with lux.trace(sync=True, only="torch.mm") as t:
        torch.mm(a, a)  # without an end, if what dispatches waited
    released.join()
    row = t.table()["torch.mm"]
    assert row.dispatch_ns is not None and 0 < row.dispatch_ns < row.total_ns
    own = t.sql("select dispatch_ns, duration_ns from calls where not own").to_pylist()
    assert own == [{"dispatch_ns": row.dispatch_ns, "duration_ns": row.total_ns}]


def test_without_sync_nothing_is_waited_for(card: Any):
    a = torch.ones(4, 4, device="card")
    torch.accelerator.synchronize()
    card.hold()
    before = card.waits()
    with lux.trace(only="torch.mm") as t:
        for _ in range(5):
            torch.mm(a, a)
        assert card.pending() >= 5
    assert card.waits() == before
    row = t.table()["torch.mm"]
    assert row.n == 5 and row.dispatch_ns == row.total_ns
    own = t.sql("select completed from calls where not own")["completed"].to_pylist()
    assert own == [False] * 5


@pytest.mark.parametrize("sync", [True, False])
def test_what_the_device_reports_is_the_failure_of_who_waits_for_it(card: Any, sync: bool):
    a = torch.ones(4, 4, device="card")
    torch.accelerator.synchronize()
    with lux.trace(sync=sync, only="torch.mm") as t:
        card.fail_next()
        if sync:
            with pytest.raises(RuntimeError, match="the card failed"):
                torch.mm(a, a)
        else:
            torch.mm(a, a)
            with pytest.raises(RuntimeError, match="the card failed"):
                torch.accelerator.synchronize()
        torch.mm(a, a)
        torch.accelerator.synchronize()
    assert t.table()["torch.mm"].n == 2 and t.table()["torch.mm"].raised == int(sync)
