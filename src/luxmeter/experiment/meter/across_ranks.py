"""Averages over all ranks, and what of a meter can travel or rest as plain values."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from luxmeter.torch_extra import HAS_TORCH, Tensor, torch

if TYPE_CHECKING:
    from luxmeter.experiment.meter.meter import AvgMeter


def is_plain(value: Any) -> bool:
    """Whether a checkpoint can hold the value as it is."""
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    return (
        value is None
        or isinstance(value, str | Tensor)
        or (isinstance(value, numbers.Real) and not _is_numpy(value))
    )


def _is_numpy(value: Any) -> bool:
    return isinstance(value, np.generic)


def gather(meter: AvgMeter, group: Any) -> AvgMeter:
    """The meters of all ranks merged in the order of the ranks."""
    if not (HAS_TORCH and torch.distributed.is_available() and torch.distributed.is_initialized()):
        return meter.merge()
    dist = torch.distributed
    state = meter.state_dict()
    states: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(
        states, {**state, "values": {n: _to_host(v) for n, v in state["values"].items()}}, group
    )
    parts = []
    for part in states:
        one = type(meter)(window=part["window"], decay=part["decay"])
        one.load_state_dict(part)
        parts.append(one)
    merged = parts[0].merge(*parts[1:])
    merged._formats.update(meter._formats)
    return merged


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value
