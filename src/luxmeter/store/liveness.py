"""Is the process that writes a run still there?

On the same machine (boot and process namespace alike) the process itself is looked for, by number and time of
start: a killed one is found at once. On another machine only the age of the run's `alive` file can tell; it is
touched every two seconds and compared with the file server's own clock, so that clocks may differ.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from luxmeter.store.layout import ALIVE

TOUCH_EVERY_S = 2.0


@dataclass(frozen=True)
class Process:
    """A process that can be recognised later."""

    host: str
    machine: str  # boot id and process namespace: process numbers mean something only within
    pid: int
    started: float

    @staticmethod
    def here() -> Process:
        """This process."""
        pid = os.getpid()
        return Process(socket.gethostname(), _machine(), pid, _started(pid))

    @staticmethod
    def of(record: dict[str, Any]) -> Process:
        """From the `process` part of a run's identity."""
        return Process(record["host"], record["machine"], record["pid"], record["started"])


def is_alive(process: Process, run_folder: Path, *, lost_after_s: float, here: Process | None = None) -> bool:
    """Whether the writer of `run_folder` lives, as far as this machine can tell."""
    here = here or Process.here()
    if process.machine == here.machine:
        return _runs_here(process)
    try:
        touched = (run_folder / ALIVE).stat().st_mtime
    except OSError:
        return False
    return _server_time(run_folder) - touched < lost_after_s


def _runs_here(process: Process) -> bool:
    try:
        found = psutil.Process(process.pid)
        # A process number is used again after a while; its time of start is not.
        return abs(found.create_time() - process.started) < 1.0 and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _server_time(run_folder: Path) -> float:
    """Now, by the clock that stamps files in this folder; this machine's own if nothing can be written there."""
    probe = run_folder / f".clock-{os.getpid()}"
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
        return now
    except OSError:
        return time.time()


def _started(pid: int) -> float:
    return psutil.Process(pid).create_time()


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
