"""Where a training computes when nobody says where."""

from __future__ import annotations

from luxmeter.ranks import place


def default_device() -> str:
    """The accelerator of this process if there is one (by its local rank), otherwise the CPU."""
    import torch

    if torch.cuda.is_available():
        return f"cuda:{place().local_rank % max(1, torch.cuda.device_count())}"
    return "mps" if torch.backends.mps.is_available() else "cpu"
