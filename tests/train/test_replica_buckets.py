"""In which order DDP sends the gradients of a model: as backward has them, so that they travel while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import luxmeter as lux
from luxmeter.train.parallel import Replica


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of this process alone."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # in whose place torch puts its own
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def deep() -> nn.Sequential:
    """So large that its gradients are sent in several buckets."""
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)), nn.Linear(512, 4))


def buckets(ddp: Any, call: Any, model: nn.Module) -> list[list[str]]:
    """The parameters in each bucket, as DDP has arranged them after a step."""
    call(torch.ones(2, 512)).sum().backward()
    call(torch.ones(2, 512)).sum().backward()
    names = {id(one): name for name, one in model.named_parameters()}
    return [
        [names[id(one)] for one in bucket.parameters()]
        for bucket in ddp.reducer._get_zeros_like_grad_buckets()
    ]


def test_the_last_layer_is_sent_first_as_by_ddp_itself() -> None:
    model = deep()
    ddp = DistributedDataParallel(model)
    usual = buckets(ddp, ddp, model)
    replica = Replica(model := deep(), unused=False, compiled=False)
    own = buckets(replica._ddp, model, model)
    replica.remove()
    assert own == usual and len(own) > 1
    assert [name for bucket in own for name in bucket] == [name for name, _ in model.named_parameters()][::-1]


def test_arranging_them_is_no_backward_of_the_users(core_name: str) -> None:
    model = nn.Linear(4, 2)
    with lux.trace() as seen:
        Replica(model, unused=False, compiled=False).remove()
        model(torch.ones(1, 4)).sum().backward()
    assert seen.table()["Tensor.backward"].n == 1
