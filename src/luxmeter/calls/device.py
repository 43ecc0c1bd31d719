"""Whether calls return before their work is done, and how to wait for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Device:
    """What computes. `synchronize` is None where a call's return is its completion (CPU)."""

    name: str
    synchronize: Callable[[], None] | None = None


CPU = Device("cpu")


def current(framework: str = "torch") -> Device:
    """The device that work of the framework goes to in this process."""
    torch: Any = sys.modules.get("torch")
    if framework != "torch" or torch is None:
        return CPU
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if accelerator is not None and hasattr(accelerator, "synchronize"):
        if not accelerator.is_available():
            return CPU
        return Device(str(accelerator.current_accelerator()), accelerator.synchronize)
    return Device("cuda", torch.cuda.synchronize) if torch.cuda.is_available() else CPU
