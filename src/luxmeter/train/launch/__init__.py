"""Several processes of one command on this machine: started as torchrun does, watched, and ended together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.train.launch.launching import launch as launch
    from luxmeter.train.launch.no_terminal import is_launched as is_launched
    from luxmeter.train.launch.no_terminal import pass_over as pass_over
    from luxmeter.train.launch.no_terminal import wait_for_debugged as wait_for_debugged

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "launch": "launching",
        "is_launched": "no_terminal",
        "pass_over": "no_terminal",
        "wait_for_debugged": "no_terminal",
    },
)
