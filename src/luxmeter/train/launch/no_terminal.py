"""`breakpoint()` in a rank that has no terminal."""

from __future__ import annotations

import os
import sys
from typing import Any

from luxmeter.errors import UsageError, warn_once
from luxmeter.ranks import own_rank
from luxmeter.train.dist.address import DEBUG_RANK, LAUNCHED


def is_launched() -> bool:
    """Whether `launch` started this process."""
    return LAUNCHED in os.environ


def pass_over(*args: Any, **kwargs: Any) -> None:
    """Go on, and say once how to stop there."""
    rank = own_rank(os.environ).rank
    warn_once(
        "breakpoint-passed",
        f"breakpoint() is passed over in rank {rank}: it has no terminal.",
        f"Start with --debug-rank {rank} to stop there.",
        key=str(rank),
        stacklevel=4,
    )


def wait_for_debugged(rank: int) -> None:
    """In a process that another launcher started as one of several: only `rank` stops at breakpoints, the others wait for it."""
    own = own_rank(os.environ)
    if not 0 <= rank < own.world_size:
        raise UsageError(
            "debug-rank",
            f"There is no rank {rank} among {own.world_size} process{'es' if own.world_size > 1 else ''}.",
            f"Give one from 0 to {own.world_size - 1}; --processes N starts more."
            if own.launcher == "none"
            else f"Give one from 0 to {own.world_size - 1}.",
        )
    os.environ[DEBUG_RANK] = str(rank)
    if own.rank != rank and not is_launched():
        sys.breakpointhook = lambda *args, **kwargs: None
