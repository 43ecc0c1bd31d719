"""Which rank of how many am I, whoever launched me: torchrun, Slurm, Open MPI, MPICH or torch.distributed itself."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from luxmeter.loaded import loaded

# Launcher -> (rank, world size, local rank). The first launcher whose rank and size are both set is believed;
# torchrun stands first because it is also used inside Slurm jobs, where Slurm's own numbers describe the nodes.
_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


@dataclass(frozen=True)
class Rank:
    """A process among its fellows."""

    rank: int
    world_size: int
    local_rank: int
    launcher: str


def own_rank(environ: Mapping[str, str] | None = None) -> Rank:
    """Where this process stands. An initialised torch.distributed knows best, then the launcher's variables."""
    env = os.environ if environ is None else environ
    found = _from_launcher(env)
    torch = loaded("torch") if environ is None else None
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank = distributed.get_rank()
        return Rank(
            rank, distributed.get_world_size(), found.local_rank if found else rank, "torch.distributed"
        )
    return found or Rank(0, 1, 0, "none")


def job_key(environ: Mapping[str, str] | None = None) -> str:
    """What tells the job of this rank from others, the same on all its ranks; empty if the launcher does not say."""
    env = os.environ if environ is None else environ
    master = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    step = env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", "")
    parts: tuple[str, ...]
    if all(master):
        here = socket.gethostname() if master[0].startswith(("127.", "localhost", "::1")) else ""
        parts = ("at", *master, here, env.get("TORCHELASTIC_RUN_ID", ""))
    elif all(step):
        parts = ("slurm", *step)
    elif "PMIX_NAMESPACE" in env:
        parts = ("pmix", env["PMIX_NAMESPACE"], socket.gethostname())
    else:
        return ""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:24]


def rank() -> int:
    """My rank, 0 when alone."""
    return own_rank().rank


def world_size() -> int:
    """How many ranks there are, 1 when alone."""
    return own_rank().world_size


def is_main() -> bool:
    """True on rank 0: the one that prints and writes what is written once."""
    return own_rank().rank == 0


def _from_launcher(env: Mapping[str, str]) -> Rank | None:
    for launcher, (rank_name, size_name, local_name) in _LAUNCHERS.items():
        rank_text, size_text = env.get(rank_name, ""), env.get(size_name, "")
        if rank_text.isdigit() and size_text.isdigit():
            local_text = env.get(local_name, "")
            return Rank(
                int(rank_text),
                int(size_text),
                int(local_text) if local_text.isdigit() else int(rank_text),
                launcher,
            )
    return None
