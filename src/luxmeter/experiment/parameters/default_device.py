"""Where a training computes when nobody says where."""

from __future__ import annotations

from luxmeter.ranks import place
from luxmeter.torch_extra import has_torch


def default_device() -> str:
    """The accelerator of this process if there is one (by its local rank), otherwise the CPU."""
    if not has_torch():
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return f"cuda:{place().local_rank % max(1, torch.cuda.device_count())}"
    return "mps" if torch.backends.mps.is_available() else "cpu"
