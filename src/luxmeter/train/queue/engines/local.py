"""Jobs as processes of this machine, each with a session of its own: Ctrl-C in the worker's terminal is none of theirs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

from luxmeter.experiment import gpu_memory
from luxmeter.process import Process
from luxmeter.render import counted, size
from luxmeter.store import Job, Needs
from luxmeter.train.queue.engines.engine import End, Room, Start

_BUSY = 0.1  # a GPU of whose memory others use more is not free


class Local:
    """This machine: memory, CPUs and GPUs that are free now."""

    name = "local"

    def __init__(self) -> None:
        self._gpus = own_gpus()
        self.slots = max(1, len(self._gpus))

    def room(self, needs: Needs, running: Sequence[Job]) -> Room:
        """What others use, and what jobs that run may still come to use, is not free."""
        cpus = _own_cpus()
        memory = psutil.virtual_memory()
        gpus = needs.gpus if needs.gpus is not None else min(1, len(self._gpus))
        for wanted, there, what in (
            (needs.cpus, cpus, "CPUs"), (gpus, len(self._gpus), "GPUs"), (needs.memory_bytes, memory.total, "memory"),
        ):  # fmt: skip
            if wanted > there:
                needed = (
                    f"{size(wanted)} of memory"
                    if what == "memory"
                    else counted(wanted, what.removesuffix("s"))
                )
                has = size(there) if what == "memory" else str(there)
                return Room(False, f"needs {needed}, this machine has {has}", never=True)
        taken = sum(job.needs.cpus for job in running)
        if running and taken + needs.cpus > cpus:
            return Room(False, f"waits for {needs.cpus} of {cpus} CPUs")
        promised = sum(max(0, job.needs.memory_bytes - _used_bytes(job)) for job in running)
        if needs.memory_bytes > memory.available - promised:
            return Room(False, f"waits for {size(needs.memory_bytes)} of memory")
        held = {gpu for job in running for gpu in job.gpus}
        free = [gpu for gpu, used in self._gpus_now().items() if gpu not in held and used < _BUSY]
        if gpus > len(free):
            return Room(False, f"waits for {gpus} of {len(self._gpus)} GPUs")
        return Room(True, gpus=tuple(free[:gpus]))

    def start(self, start: Start) -> Child:
        """A process that writes to the job's log."""
        variables = dict(start.variables)
        if self._gpus or start.job.needs.gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, start.job.gpus))
        with start.log.open("ab") as log:
            return Child(
                subprocess.Popen(
                    start.words, cwd=start.cwd, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )
            )  # fmt: skip

    def adopt(self, job: Job, folder: Path) -> Watched | None:
        """By the number of its process and the time of its start."""
        return Watched(job.process) if job.process is not None and job.process.runs_here() else None

    def close(self) -> None:
        """Nothing is held."""

    def _gpus_now(self) -> dict[int, float]:
        memory = gpu_memory()
        return {gpu: (memory[gpu][0] / memory[gpu][1] if gpu < len(memory) else 0.0) for gpu in self._gpus}


class Child:
    """A process that we started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.place = f"pid {process.pid}"

    def poll(self) -> End | None:
        """Its exit code."""
        code = self._process.poll()
        return None if code is None else End(code, said_of_code(code))

    def end(self, how: Literal["ask", "kill"]) -> None:
        """It and all that it started."""
        if self._process.poll() is None:
            _signal(self._process.pid, how)


class Watched:
    """A process that another worker started: how it ends is not told to us."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.place = f"pid {process.pid}"

    def poll(self) -> End | None:
        """Whether it is there."""
        return None if self._process.runs_here() else End(None)

    def end(self, how: Literal["ask", "kill"]) -> None:
        """It and all that it started."""
        if self._process.runs_here():
            _signal(self._process.pid, how)


def own_gpus() -> list[int]:
    """The numbers of the GPUs that this process may use."""
    count = len(gpu_memory())
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is None:
        return list(range(count))
    return [int(word) for word in said.split(",") if word.strip().isdecimal() and int(word) < count]


def _own_cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _signal(pid: int, how: Literal["ask", "kill"]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM if how == "ask" else signal.SIGKILL)


def said_of_code(code: int) -> str:
    """Which signal a process ended by; empty if by none."""
    if code >= 0:
        return ""
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _used_bytes(job: Job) -> int:
    """What a job's process and its children use now."""
    if job.process is None or not job.process.is_here or not job.process.runs_here():
        return 0
    try:
        first = psutil.Process(job.process.pid)
        return sum(one.memory_info().rss for one in (first, *first.children(recursive=True)))
    except psutil.Error:
        return 0
