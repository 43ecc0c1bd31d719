"""Calls that make a program wait for its device are known by their names and arguments, on a CPU, too."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.calls.syncs import device_syncs

MASKED, COUNT = (
    "indexed by a mask: the size of the result hangs on values",
    "the size of the result hangs on values",
)


class Reads(nn.Module):
    def forward(self, x: torch.Tensor) -> float:
        return x.sum().item()


@pytest.mark.parametrize("totals", [False, True], ids=["calls", "totals"])
def test_which_calls_wait_and_which_do_not(core_name: str, totals: bool) -> None:
    x, model = torch.arange(6.0), Reads()
    mask, counts, bare = x > 2, torch.full((6,), 2), lux.trace(totals=totals)
    with bare as t:
        model(x), x.sum().item()
        x[mask], x[2], x[counts]
        torch.where(mask), torch.where(mask, x, x)
        torch.repeat_interleave(x, counts), torch.repeat_interleave(x, 2)
        x.repeat_interleave(counts, output_size=12)
        x.to("cpu"), x.to(device=torch.device("cpu")), x.to(torch.float64)
        x.to(device="cpu", non_blocking=True)
    found = device_syncs(t.result)
    assert {(one.name, one.why, one.n) for one in found} == {
        ("Tensor.item", "a value is read", 2),
        ("Tensor.to", "copied to the host", 2),
        ("[]", MASKED, 1),
        ("torch.where", COUNT, 1),
        ("torch.repeat_interleave", COUNT, 1),
    }
    assert [one.n for one in found] == [2, 2, 1, 1, 1]
    first = "Tensor.item x2: a value is read" if totals else "Tensor.item x2 in Reads: a value is read"
    assert str(found[0]) == first


def test_of_calls_without_signatures_only_the_name_is_known(core_name: str) -> None:
    x = torch.arange(3.0)
    with lux.trace(signatures=False) as t:
        x.sum().item(), x[x > 1]
    assert [(one.name, one.n) for one in device_syncs(t.result)] == [("Tensor.item", 1)]
