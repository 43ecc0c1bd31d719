"""Times every MindSpore call and writes one line for each."""

from __future__ import annotations

from pathlib import Path

from luxmeter.calls import import_mindspore, raise_failure, wait_for_mindspore
from luxmeter.classic.apitimewrapper import hooks
from luxmeter.classic.apitimewrapper.torch_wrap import global_param


def start_hook_net(
    hook_inside: bool = False, parall_execute: bool = False, *, log: str | Path | None = None
) -> None:
    """Time every MindSpore call from here on, beside torch's if those are timed already.

    `hook_inside`: also what those calls call. `parall_execute`: do not wait until each call is done.
    `log`: where the lines go (performance.log).
    """
    import_mindspore()
    if log is not None:
        global_param.g_torch_log_path = str(log)
    hooks.start("mindspore", hooks.Side(inside=hook_inside, wait=None if parall_execute else _wait))


def stop_hook_net() -> None:
    """Take the timing of MindSpore out again. Nothing happens if it is not in."""
    hooks.stop("mindspore")


def _wait() -> None:
    wait_for_mindspore()
    raise_failure()
