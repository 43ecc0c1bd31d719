"""Times every torch call and writes one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from luxmeter.calls import coverage, current_device
from luxmeter.classic.apitimewrapper import hooks
from luxmeter.classic.apitimewrapper.torch_wrap import global_param
from luxmeter.errors import UsageError, warn_once

# The keys of support_wrap_ops.yaml -> what names of a trace begin with.
_PREFIXES = {"torch": "torch.", "functional": "torch.nn.functional.", "tensor": "Tensor.", "nn": "torch.nn.", "module": "torch.nn."}  # fmt: skip


def start_hook_torch_net(
    hook_inside: bool = False,
    parall_execute: bool = False,
    *,
    ops: str | Path | None = None,
    log: str | Path | None = None,
) -> None:
    """Time every torch call from here on.

    `hook_inside`: also what those calls call. `parall_execute`: do not wait for the device after each call.
    `ops`: a support_wrap_ops.yaml, the only calls to time. `log`: where the lines go (performance.log).
    """
    only = frozenset(read_ops(Path(ops))) if ops is not None else None
    if log is not None:
        global_param.g_torch_log_path = str(log)
    wait = None if parall_execute else current_device("torch").synchronize
    hooks.start("torch", hooks.Side(inside=hook_inside, wait=wait, only=only))


def stop_hook_torch_net() -> None:
    """Take the timing out again and close the log. Nothing happens if it is not in."""
    hooks.stop("torch")


def read_ops(path: Path) -> Sequence[str]:
    """Names to time, out of lists under the keys torch, tensor, functional and nn. Names unknown to this torch are told."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        wanted = [_PREFIXES[key] + name for key, names in content.items() for name in names or ()]
    except (OSError, yaml.YAMLError, AttributeError, TypeError, KeyError) as error:
        raise UsageError(
            "ops-list-unreadable",
            f"The list of operators {path} cannot be used: {type(error).__name__} {error}.",
            f"Write lists of names under the keys {', '.join(_PREFIXES)}.",
        ) from error
    seen = set(coverage("torch").seen)
    known = [name for name in wanted if name in seen]
    if not known:
        raise UsageError(
            "ops-list-empty",
            f"No name in {path} is a call that can be timed.",
            "Check the names under each key.",
        )
    if len(known) < len(wanted):
        missing = ", ".join(name for name in wanted if name not in seen)
        warn_once(
            "ops-not-known",
            f"Not timed, as this torch does not have them: {missing}.",
            f"See {path}.",
            key=missing,
        )
    return known
