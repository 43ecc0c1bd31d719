"""Whether calls return before their work is done, and how to wait for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Device:
    """What computes. `synchronize` is None where a call's return is its completion (torch on CPU)."""

    name: str
    synchronize: Callable[[], None] | None = None
    complete: bool | None = (
        None  # calls of torch are done when they return; None: if there is nothing to wait for
    )

    @property
    def completes(self) -> bool:
        """Whether without waiting a call's end is its completion."""
        return self.synchronize is None if self.complete is None else self.complete


CPU = Device("cpu")


def current_device(framework: str = "torch") -> Device:
    """The device that work of the framework goes to in this process; "auto": of all that are or will be imported."""
    if framework == "mindspore":
        return Device("mindspore", wait_for_mindspore)
    torch = _torch_device() if framework in ("torch", "auto") else CPU
    if framework != "auto":
        return torch
    wait = torch.synchronize

    def wait_for_all() -> None:
        if wait is not None:
            wait()
        if "mindspore" in sys.modules:
            wait_for_mindspore()

    return Device(torch.name, wait_for_all, complete=wait is None)


def wait_for_mindspore() -> None:
    """MindSpore's calls return before their work is done, on a CPU too.

    MindSpore tells of a failed kernel once, to whoever waits next. That is the program's to know: it is kept for it.
    """
    api: Any = sys.modules.get("mindspore.graph.api") or sys.modules.get("mindspore.common.api")
    if api is None:
        return
    try:
        api._pynative_executor.sync()
    except Exception as error:  # noqa: BLE001 - whatever it is, raise_failure gives it to the program
        _failures.__dict__.setdefault("kept", error)


_failures = threading.local()


def raise_failure() -> None:
    """Raise what waiting on this thread met, if anything: to be called where the program would meet it, at its next call."""
    kept = _failures.__dict__.pop("kept", None)
    if kept is not None:
        raise kept


def _torch_device() -> Device:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return CPU
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if accelerator is not None and hasattr(accelerator, "synchronize"):
        if not accelerator.is_available():
            return CPU
        return Device(str(accelerator.current_accelerator()), accelerator.synchronize)
    return Device("cuda", torch.cuda.synchronize) if torch.cuda.is_available() else CPU
