"""What counts as one signature of a torch call in a trace."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from seen import CORES

import luxmeter as lux
from luxmeter.calls.describe import SHAPED_BY_FLOATS
from luxmeter.calls.patching.patcher import coverage


def signatures(trace: lux.Trace) -> Counter[str]:
    """API -> number of distinct signatures."""
    return Counter(row.name for row in trace.table(by="signature"))


@pytest.mark.parametrize("core", CORES)
def test_floats_count_where_they_decide_the_size(core: str) -> None:
    image = torch.ones(1, 1, 8, 8)
    with lux.trace(core=core) as t:
        for factor in (2.0, 0.5, 2.0):
            torch.nn.functional.interpolate(image, scale_factor=factor)
            torch.arange(0.0, 1.0, factor / 10)
            torch.nn.functional.fractional_max_pool2d(image, 2, output_ratio=(factor / 4, factor / 4))
            torch.clamp(image, max=factor)
    assert signatures(t) == {
        "torch.nn.functional.interpolate": 2,
        "torch.arange": 2,
        "torch.nn.functional.fractional_max_pool2d": 2,
        "torch.clamp": 1,
    }


@pytest.mark.parametrize("core", CORES)
def test_two_hundred_steps_of_adam_are_one_signature_each(core: str) -> None:
    weights = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))]
    optimizer = torch.optim.Adam(weights, foreach=False)
    with lux.trace(core=core, inside=True) as t:
        for _ in range(200):
            for weight in weights:
                weight.grad = torch.ones_like(weight)
            optimizer.step()
    found = signatures(t)
    assert found["Tensor.addcdiv_"] == 2 and max(found.values()) <= 4, found


@pytest.mark.one_core("a list is held against a list")
def test_every_name_is_one_that_is_timed() -> None:
    assert set(coverage().seen) >= SHAPED_BY_FLOATS
