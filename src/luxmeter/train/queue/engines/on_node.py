"""A job's program on the machine where an engine put it: run to its end, which is written down in the job's folder.

That folder lies in the lab, which all machines share: so the next worker learns how a job ended whose own worker is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from luxmeter.errors import StoreError
from luxmeter.files import read_json, write_json
from luxmeter.train.queue.begin import PARENT

# What a node says of itself: the worker's own values mean nothing there.
DEVICES = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
    "ASCEND_RT_VISIBLE_DEVICES", "NPU_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR",
)  # fmt: skip
LAUNCHERS = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", "OMPI_")
_LOOKS_EVERY_S = 0.1
_PATIENCE_S = 10.0  # from SIGTERM to SIGKILL


@dataclass(frozen=True)
class Program:
    """What is to be run there. `takes`: which variables of the node it gets, by how they begin."""

    words: Sequence[str]
    cwd: str
    variables: Mapping[str, str]
    log: str
    folder: str
    takes: tuple[str, ...] = DEVICES


def run_program(program: Program) -> int:
    """Its exit code, below 0 for a signal. An interrupt ends it, and all that it started in its session."""
    variables = {**of_node(program.variables, os.environ, program.takes), PARENT: str(os.getpid())}
    child = None
    try:
        with Path(program.log).open("ab") as log:
            child = subprocess.Popen(
                program.words, cwd=program.cwd, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        while child.poll() is None:  # no wait(): Ray could not interrupt it
            time.sleep(_LOOKS_EVERY_S)
    except BaseException:
        if child is not None:
            _end(child)
        raise
    finally:
        if child is not None and child.returncode is not None:
            with contextlib.suppress(OSError):  # cleared away already: nobody asks any more
                write_json(Path(program.folder) / "ended.json", {"code": child.returncode})
    return child.returncode


def ended_code(folder: Path) -> int | None:
    """What a program ended with, if it was written down; damaged, nobody knows."""
    with contextlib.suppress(StoreError):
        told = read_json(folder / "ended.json")
        code = told.get("code") if isinstance(told, dict) else None
        return code if type(code) is int and abs(code) < 1 << 31 else None
    return None


def of_node(
    given: Mapping[str, str], node: Mapping[str, str], takes: Iterable[str] = DEVICES
) -> dict[str, str]:
    """The worker's variables, but for what a node says of its devices and a launcher of its ranks; there, the node's own."""
    taken = tuple(takes)
    kept = {name: value for name, value in given.items() if not name.startswith((*DEVICES, *LAUNCHERS))}
    return {**kept, **{name: value for name, value in node.items() if name.startswith(taken)}}


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE_S)
            return
