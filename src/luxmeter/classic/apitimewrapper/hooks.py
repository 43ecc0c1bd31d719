"""What is timed now: torch, MindSpore or both, by one listener; a line for each call."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from dataclasses import dataclass

from luxmeter.calls import Heard, Listener
from luxmeter.classic.apitimewrapper import analysis, my_print
from luxmeter.classic.apitimewrapper.ms_wrap import global_param as ms_param
from luxmeter.classic.apitimewrapper.torch_wrap import global_param as torch_param


@dataclass(frozen=True)
class Side:
    """How one framework is timed."""

    inside: bool = False
    wait: Callable[[], None] | None = None
    only: frozenset[str] | None = None  # names to tell; None: all


_sides: dict[str, Side] = {}
_listener: Listener | None = None


def start(framework: str, side: Side) -> None:
    """Time a framework from here on, as `side` says; another that is timed already goes on."""
    my_print.check_log()
    _restart({**_sides, framework: side})


def stop(framework: str) -> None:
    """Time it no longer. With the last one the log is closed."""
    if framework in _sides:
        _restart({name: side for name, side in _sides.items() if name != framework})
    if not _sides:
        my_print.close_log()


def _restart(sides: dict[str, Side]) -> None:
    global _listener
    listener = None
    if sides:
        listener = Listener(
            _hear,
            inside={name: side.inside for name, side in sides.items()},
            after={name: side.wait for name, side in sides.items()},
            framework="+".join(sides),
        )
    if _listener is not None:
        _listener.stop()
        _listener = None
    _sides.clear()
    if listener is not None:
        _listener = listener.start()
        _sides.update(sides)


def _hear(call: Heard) -> None:
    side = _sides.get(call.framework, Side())
    if side.only is not None and call.name not in side.only:
        return
    if call.raised:  # it says nothing of those: what reads its lines takes each for a time
        return
    name = _name(call)
    cost_s = call.duration_ns / 1e9
    line = f"{name} cost_time:{cost_s}"
    my_print.write_log(line)
    silent = ms_param.g_stop_ms_print if call.framework == "mindspore" else torch_param.g_stop_torch_print
    if not silent:
        sys.stdout.write(line + "\n")
    analysis.count(name, cost_s)


def _name(call: Heard) -> str:
    """As it calls things: `torch.nn.function.relu`, `ops.relu` of MindSpore."""
    if call.framework == "mindspore":
        return call.name.removeprefix("mindspore.")
    name = f"torch.{call.name}" if call.name.startswith("Tensor.") else call.name
    return name.replace("torch.nn.functional.", "torch.nn.function.", 1)


def _stop_all() -> None:
    for framework in list(_sides):
        stop(framework)


atexit.register(_stop_all)
