"""The group of processes that this one trains in: made where a launcher started several, and ended with the process."""

from __future__ import annotations

import atexit
import contextlib
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from luxmeter.errors import LuxmeterError
from luxmeter.process import at_worker_end
from luxmeter.ranks import own_rank
from luxmeter.train.dist import failing
from luxmeter.train.dist.address import DEBUG_RANK, LAUNCHED, is_one_of_several, meeting_address
from luxmeter.train.dist.meeting import current_meeting, meet, part_of

MEETING_S = 600.0  # for ranks to come
DEBUGGING_S = 7 * 24 * 3600.0  # while somebody looks at one of them


@dataclass(frozen=True)
class Group:
    """The processes of a training, and which of them this one is; alone: 0, 0, 1, "", "none"."""

    rank: int
    local_rank: int
    world_size: int
    backend: str
    launcher: str


def current_group() -> Group:
    """That of torch.distributed, or this process alone."""
    if not (dist.is_available() and dist.is_initialized()):
        return Group(0, 0, 1, "", "none")
    launched = own_rank(os.environ)
    launcher = "luxmeter" if LAUNCHED in os.environ else launched.launcher
    local = launched.local_rank if launched.launcher != "none" else dist.get_rank()
    return Group(dist.get_rank(), local, dist.get_world_size(), dist.get_backend(), launcher)


def ensure_group(timeout_s: float | None = None) -> Group:
    """The group of this process, made if it was launched as one of several: by torchrun, srun, mpirun or --processes.

    `timeout_s`: for every rank to come, and for each of the collectives; else 10 minutes, and torch's own (30 minutes for gloo).
    With one process, or where there is a group already, nothing is done.
    """
    if dist.is_available() and dist.is_initialized():
        return current_group()
    own = own_rank(os.environ)
    if not is_one_of_several(own, os.environ):
        return current_group()
    if not dist.is_available():
        raise LuxmeterError(
            "no-distributed",
            f"This is rank {own.rank} of {own.world_size}, and this torch was built without torch.distributed.",
            "Start one process, or install a torch that has it.",
        )
    is_debugged = DEBUG_RANK in os.environ
    met = meet(own, meeting_address(own, os.environ), timeout_s or MEETING_S)
    if "nccl" in met.backend:
        torch.cuda.set_device(own.local_rank % torch.cuda.device_count())
    patience_s = DEBUGGING_S if is_debugged else timeout_s
    try:
        dist.init_process_group(
            met.backend,
            store=part_of(met.store, "group"),
            rank=own.rank,
            world_size=own.world_size,
            timeout=None if patience_s is None else timedelta(seconds=patience_s),
        )
    except (RuntimeError, ValueError) as error:
        raise LuxmeterError(
            "group-failed",
            f"Rank {own.rank} of {own.world_size} has met the others, but no group came of it: {str(error).partition(chr(10))[0]}.",
            "Check that the hosts reach each other on every port; GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose the network.",
        ) from error
    failing.watch()
    atexit.register(_leave)
    at_worker_end(_leave)
    return current_group()


def _leave() -> None:
    if current_meeting() is not None and dist.is_initialized() and not failing.has_failed():
        with contextlib.suppress(RuntimeError):  # another rank was quicker, and the store was its
            dist.destroy_process_group()
