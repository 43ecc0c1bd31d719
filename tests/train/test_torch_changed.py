"""A torch that has no longer what training in several processes stands on: told by name, before anything is trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from luxmeter.errors import UsageError
from luxmeter.train.parallel import Replica
from luxmeter.train.sharding import lacks


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of this process alone."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # in whose place torch puts its own
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_what_fsdp_has_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    root: Any = fully_shard(nn.Linear(4, 2), mesh=init_device_mesh("cpu", (1,)))
    state = root._get_fsdp_state()
    assert lacks(root) == ""
    (group,) = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    one, *_ = group.fsdp_params
    for name in ("unsharded_accumulated_grad", "_unsharded_param", "sharded_param"):
        with monkeypatch.context() as without:
            without.delitem(type(one).__annotations__, name)
            if name in vars(one):
                without.delattr(one, name)
            assert lacks(root) == f"FSDPParam.{name}"
    with monkeypatch.context() as without:
        without.delattr(group, "fsdp_params")
        assert lacks(root) == "FSDPParamGroup.fsdp_params"
    with monkeypatch.context() as without:
        without.delattr(type(state), "_lazy_init")
        assert lacks(root) == "FSDPState._lazy_init"
    with monkeypatch.context() as without:
        without.setattr(FSDPModule, "_get_fsdp_state", lambda _: SimpleNamespace(_lazy_init=None))
        assert lacks(root) == "FSDPState._fsdp_param_groups"
    with monkeypatch.context() as without:
        without.delattr(FSDPModule, "_get_fsdp_state")
        assert lacks(root) == "FSDPModule._get_fsdp_state"


@pytest.mark.usefixtures("group")
def test_what_ddp_has_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    Replica(nn.Linear(2, 2), unused=False, compiled=False).remove()
    monkeypatch.delattr(nn.parallel.DistributedDataParallel, "_post_forward")
    with pytest.raises(UsageError, match=r"it has no DistributedDataParallel\._post_forward.*torch-changed"):
        Replica(nn.Linear(2, 2), unused=False, compiled=False)
