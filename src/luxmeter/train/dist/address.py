"""Where the ranks of a job meet: as their launcher says, or worked out of what it says of the job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from luxmeter.errors import UsageError
from luxmeter.ranks import Rank

LAUNCHED = "LUXMETER_LAUNCHED"  # in processes that our own launcher started
DEBUG_RANK = "LUXMETER_DEBUG_RANK"  # the rank that somebody looks at
HERE = "127.0.0.1"
_PORTS = range(20000, 32000)  # below those that systems hand out by themselves


@dataclass(frozen=True)
class Address:
    """A host and a port; `by_launcher`: the launcher keeps the store there, and not rank 0. `attempt`: of torchrun, after restarts."""

    host: str
    port: int
    by_launcher: bool = False
    attempt: str = "0"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def meeting_address(own: Rank, env: Mapping[str, str]) -> Address:
    """MASTER_ADDR and MASTER_PORT; what is not set is worked out under Slurm, and under MPI on one host."""
    host = env.get("MASTER_ADDR") or _host(own, env)
    text = env.get("MASTER_PORT") or str(_port(own, env))
    if not (text.isdigit() and 0 < int(text) < 65536):
        raise UsageError(
            "master-port",
            f"MASTER_PORT is {text!r}, which is no port.",
            "Set it to a number from 1 to 65535, the same for all ranks.",
        )
    by_launcher = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return Address(host, int(text), by_launcher, env.get("TORCHELASTIC_RESTART_COUNT", "0"))


def is_one_of_several(own: Rank, env: Mapping[str, str]) -> bool:
    """Whether this process was started beside others: the script of a Slurm job knows of tasks, but srun starts them."""
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if (
        own.launcher in ("none", "torchrun")
        and rank
        and size
        and not (rank.isdigit() and size.isdigit() and int(size))
    ):
        raise UsageError(
            "rank-number",
            f"RANK is {rank!r} and WORLD_SIZE is {size!r}: such a rank cannot be.",
            "Set WORLD_SIZE to the number of processes and RANK to a number below it, or unset both to train alone.",
        )
    in_step = own.launcher != "slurm" or "SLURM_STEP_ID" in env or "SLURM_STEPID" in env
    return own.world_size > 1 and in_step


def first_host(nodes: str) -> str:
    """The first of Slurm's list of nodes: `gpu-a` of `gpu-a,gpu-b`, `gpu07` of `gpu[07-09,12]`."""
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes.strip())
    return "".join(part or "" for part in found.groups()) if found else ""


def _host(own: Rank, env: Mapping[str, str]) -> str:
    if own.launcher == "slurm":
        nodes = (
            env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")
        )
        count = (
            env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES", "")
        )
        if count == "1":
            return HERE  # its name may not be known to itself
        if nodes:
            return first_host(nodes)
    local = env.get("OMPI_COMM_WORLD_LOCAL_SIZE") or env.get("MPI_LOCALNRANKS")
    if own.launcher in ("openmpi", "mpich") and local == str(own.world_size):
        return HERE
    raise UsageError(
        "no-master",
        f"Rank {own.rank} of {own.world_size} ({own.launcher}) is not told where the ranks meet.",
        "Set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port of it, the same for all ranks.",
    )


def _port(own: Rank, env: Mapping[str, str]) -> int:
    """One that all ranks of the job work out alike, and other jobs on the host hardly do."""
    if own.launcher == "slurm":
        job = f"{env.get('SLURM_JOB_ID', '')}.{env.get('SLURM_STEP_ID') or env.get('SLURM_STEPID', '')}"
    else:
        job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or ""
    if own.launcher == "mpich" and not job:
        job = f"child of {os.getppid()}"  # all of one host are
    if not job:
        raise UsageError(
            "no-master",
            f"Rank {own.rank} of {own.world_size} ({own.launcher}) is told no port at which the ranks meet.",
            "Set MASTER_PORT to a free port of the host of rank 0, the same for all ranks.",
        )
    return _PORTS[crc32(job.encode()) % len(_PORTS)]
