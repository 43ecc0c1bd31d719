"""A process: recognised later, known to run or not, and told what to do at its end."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from luxmeter.typed_fields import checked_fields

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Process:
    """A process that can be recognised later."""

    host: str
    machine: str  # boot id and process namespace: process numbers mean something only within
    pid: int
    started: float
    ticks: int = 0  # the same by the system's own count, which no step of a clock changes; 0: not known

    @staticmethod
    def here() -> Process:
        """This process."""
        pid = os.getpid()
        return Process(socket.gethostname(), _machine(), pid, psutil.Process(pid).create_time(), _ticks(pid))

    @staticmethod
    def of(record: dict[str, Any]) -> Process:
        """From the `process` part of a run's identity; ValueError, KeyError or TypeError if it tells of none."""
        found = Process(
            record["host"], record["machine"], record["pid"], record["started"], record.get("ticks", 0)
        )
        if not 0 < checked_fields(found).pid < 1 << 31:  # a signal to 0 or below goes to whole groups
            raise ValueError(f"its pid is {found.pid}")
        return found

    @property
    def boot(self) -> str:
        """Which start of which machine: all its containers share it."""
        return self.machine.partition("/")[0]

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine: only then its number says anything."""
        return self.machine == _machine()

    def runs_here(self) -> bool:
        """Whether it lives; only for a process of this machine."""
        try:
            found = psutil.Process(self.pid)
            # A process number is used again after a while; its time of start is not.
            same = (
                _ticks(self.pid) == self.ticks
                if self.ticks
                else abs(found.create_time() - self.started) < 1.0
            )
            return same and found.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def _ticks(pid: int) -> int:
    """When a process was started, counted from the start of the system."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


@functools.lru_cache(maxsize=1)
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = f"{socket.gethostname()}-{int(psutil.boot_time())}"
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = "pid"
    return f"{boot}/{namespace}"


def dying_with(parent: int) -> Callable[[], None] | None:
    """What a child calls first, on Linux: the system is to kill it when its parent is gone, however that comes."""
    if sys.platform != "linux":
        return None
    import ctypes  # few processes need it, and every command reads this file

    prctl = ctypes.CDLL(None).prctl

    def die_with_it() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return die_with_it


def at_worker_end(work: Callable[[], None], priority: int = 5) -> None:
    """In a child of multiprocessing, run `work` at its end: it leaves by os._exit and runs only these finalizers.

    The higher the priority, the earlier. Nothing in other processes: they run what atexit knows.
    """
    context, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if context is not None and util is not None and context.parent_process() is not None:
        util.Finalize(None, work, exitpriority=priority)
