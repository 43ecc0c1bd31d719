"""patching_hook's front door: what every operator of a training was given, exported when the program ends.

from luxmeter.classic.patching_hook import init, hook
nn.modules.module.register_module_forward_pre_hook(hook)
init()

Everything that a trace sees is collected, modules, functionals and all Tensor methods, so `hook` has nothing left to
do but to begin where `init` was forgotten. The file is Luxmeter's own: `lux.load_operators`, `luxmeter bench`.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from luxmeter.calls import Trace, active, trace
from luxmeter.errors import UsageError, warn_once
from luxmeter.store import Lab, active_run

__all__ = ["add_wrapper", "export", "hook", "init", "remove_wrappers"]

_started: tuple[Trace, Path | None, int] | None = None
_wrapped: list[tuple[Any, str, Any, bool]] = []


def init(path: str | Path | None = None) -> None:
    """Begin to collect. At the program's end the operators are written to `path`, or into the lab, and it says where."""
    global _started
    if _started is not None:
        raise UsageError(
            "hook-twice", "init() was called before.", "Call it once, or export() what there is, then init()."
        )
    if active() is not None:
        raise UsageError(
            "hook-in-trace",
            "A trace is running: it collects the operators already.",
            "Use its operators() instead of init().",
        )
    target = None if path is None else Path(path).absolute()
    _started = (trace(totals=True).start(), target, os.getpid())
    atexit.register(export)


def hook(module: Any, input: Any) -> None:
    """The forward pre-hook of the document. What it would collect is collected already, from `init` on."""
    if _started is None and active() is None:
        init()


def export() -> Path | None:
    """Stop collecting and write the file; None if nothing was collected. The program's end does it by itself."""
    global _started
    if _started is None or _started[2] != os.getpid():  # a forked child's operators are in its parent's trace
        return None
    running, path, _ = _started
    _started = None
    atexit.unregister(export)
    running.stop()
    ops = running.operators()
    if path is None:
        path = _operators_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    ops.save(path)
    sys.stdout.write(
        f"patching_hook: {len(ops)} operators of {sum(c.count for c in ops)} calls written to {path}\n"
    )
    return path


def add_wrapper(mod: Any, name: str) -> None:
    """Make `mod.name` (of `torch.nn.functional`, say) a module's call, so that module hooks see it: class `name`."""
    import torch

    func = getattr(mod, name, None)
    if not callable(func):
        warn_once(
            "nothing-to-wrap", f"{mod!r} has no function {name!r} to wrap.", "Check the name.", key=name
        )
        return
    here = name in vars(mod)
    shown = getattr(func, "__name__", name)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    kind: Callable[[], Any] = type(shown, (torch.nn.Module,), {"forward": forward})

    @functools.wraps(func)
    def wrapper_func(*args: Any, **kwargs: Any) -> Any:
        return kind()(*args, **kwargs)

    setattr(mod, name, wrapper_func)
    _wrapped.append((mod, name, func, here))


def remove_wrappers() -> None:
    """Take out all that `add_wrapper` put in, the last one first."""
    while _wrapped:
        mod, name, func, here = _wrapped.pop()
        if here:
            setattr(mod, name, func)
        else:
            delattr(mod, name)  # it was inherited


def _operators_file() -> Path:
    """In the folder of the run that is kept, or in the lab, under a name of its own."""
    run = active_run()
    if run is not None:
        return Path(run.folder) / "operators.jsonl"
    lab = Lab.open()
    try:
        return Path(lab.folder) / "operators" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.jsonl"
    finally:
        lab.close()
