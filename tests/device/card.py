"""The device of the tests, built once and registered as torch's accelerator `card`: see card.cpp.

For a process of its own: torch cannot let go of a device again.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

HERE = Path(__file__).parent
# By what it was built with: another torch, another Python, another build.
BUILT = HERE.parent.parent / "build" / f"card-{torch.__version__}-{sys.implementation.cache_tag}"


def load() -> Any:
    """The extension's functions; from now on torch.accelerator is the card."""
    known = sys.modules.get("torch.card")
    if known is not None:
        return known.native
    BUILT.mkdir(parents=True, exist_ok=True)
    left = BUILT / "lock"  # of a build that was killed: torch would wait for its end for ever
    if left.exists() and time.time() - left.stat().st_mtime > 900:
        left.unlink(missing_ok=True)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"  # where pip put ninja
    try:
        native = cpp_extension.load(
            name="card_native",
            sources=[str(HERE / "card.cpp")],
            build_directory=str(BUILT),
            extra_cflags=["-O1"],
        )
    finally:
        os.environ["PATH"] = before
    torch.utils.rename_privateuse1_backend("card")
    torch._register_device_module("card", _module(native))
    torch.utils.generate_methods_for_privateuse1_backend()
    atexit.register(native.end)
    return native


def let_go_when_waited_for(native: Any) -> threading.Thread:
    """A thread that lets the card, which is held, go on as soon as the program waits for it."""
    before = native.waits()

    def run() -> None:
        while native.waits() == before:
            continue
        native.hold(False)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _module(native: Any) -> types.ModuleType:
    """What torch asks of `torch.card`."""
    made = types.ModuleType("torch.card")
    made.native = native  # type: ignore[attr-defined]
    made.started = True  # type: ignore[attr-defined]
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: made.started,  # type: ignore[attr-defined]
        "device_count": lambda: native.CARDS,
        "current_device": native.get_device,
        "set_device": native.set_device,
        "synchronize": lambda device=None: native.synchronize(
            -1 if device is None or torch.device(device).index is None else torch.device(device).index
        ),
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda seed: None,
    }
    for name, answer in answers.items():
        setattr(made, name, answer)
    return made


if __name__ == "__main__":
    load()
