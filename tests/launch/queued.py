"""A queue that a real worker works off in a process of its own."""

from __future__ import annotations

import json
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


def sweep_on(engine: str) -> None:
    """A sweep of two points over an engine, to its end."""
    Path("script.py").write_text(
        "import luxmeter as lux\np = lux.Params()\np.arange('lr', 0.1, 0.001, 1.0)\np.from_args()\n"
        "with lux.Experiment('swept', p) as exp:\n    exp.log({'acc': 1 - p.lr}, step=1)\n"
    )
    words = ("sweep", "script.py", "--on", engine, "--grid", "lr=0.5,0.25", "--metric", "acc", "--json")
    told = json.loads(luxmeter(*words).stdout)
    assert [trial["state"] for trial in told["trials"]] == ["done", "done"]
    assert told["trials"][0]["point"] == {"lr": 0.25}
    assert {job["engine"] for job in jobs()} == {engine}


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
