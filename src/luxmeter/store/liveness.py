"""Is the process that writes a run still there?

On the same machine (boot and process namespace alike) the process itself is looked for, by number and time of
start: a killed one is found at once. On another machine only the age of the run's `alive` file can tell; it is
touched every two seconds and compared with the file server's own clock, so that clocks may differ.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from luxmeter.process import Process as Process
from luxmeter.store.layout import ALIVE

TOUCH_EVERY_S = 2.0


def is_alive(process: Process, run_folder: Path, *, lost_after_s: float) -> bool:
    """Whether the writer of `run_folder` lives, as far as this machine can tell."""
    if process.machine == Process.here().machine:
        return process.runs_here()
    try:
        touched = (run_folder / ALIVE).stat().st_mtime
    except OSError:
        return False
    # One that lies in the future was forged, or stamped before the server's clock was put back: the next touch mends that.
    return abs(_server_time(run_folder) - touched) < lost_after_s


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
