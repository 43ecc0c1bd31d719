"""A queue that a real worker works off in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from luxmeter.train import open_queue

LIMIT_S = 180  # for a machine that is busy


def luxmeter(*words: object, expected: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", *map(str, words)], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )  # fmt: skip
    assert expected is None or done.returncode == expected, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def jobs() -> list[dict[str, Any]]:
    """All jobs, as the table has them."""
    queue = open_queue()
    try:
        return [job.record() for job in queue.table.jobs()]
    finally:
        queue.close()


def states() -> list[str]:
    """Of all jobs."""
    return [job["state"] for job in jobs()]


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for something."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.1)


@contextmanager
def worker(*words: object, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker beside the test; its output lies in `worker.out`."""
    with Path("worker.out").open("ab") as out:
        made = subprocess.Popen(
            [sys.executable, "-m", "luxmeter", "queue", "work", *map(str, words)],
            stdout=out, stderr=out, start_new_session=True, env={**os.environ, **variables},
        )  # fmt: skip
    try:
        yield made
    finally:
        made.kill()
        made.wait()
