"""How long a queued job waits when there is room: from the end of one job's process to the beginning of the next one's.

    .venv/bin/python benchmarks/queue_start.py [--jobs 30] [--seconds 0.2]

One worker with one slot on the local engine works off short jobs. The end of a process is seen by a thread that waits for it,
the beginning is when it has been started; what Python and luxmeter take from there to the program's first line is told apart.
"""

from __future__ import annotations

import argparse
import os
import select
import statistics
import tempfile
import threading
import time
from pathlib import Path

from luxmeter.train import JobOptions, Wanted, Worker, open_queue
from luxmeter.train.queue.engines.engine import Start
from luxmeter.train.queue.engines.local import Child, Local

GOAL_S = 1.0
SCRIPT = "import sys, time\nopen(sys.argv[1], 'w').write(str(time.time()))\ntime.sleep(float(sys.argv[2]))\n"


class Watching(Local):
    """Notes when each process was started and when it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[float] = []
        self.ended: dict[int, float] = {}
        self.threads: list[threading.Thread] = []

    def start(self, start: Start) -> Child:
        child = super().start(start)
        number = len(self.began)
        self.began.append(time.time())
        pid = int(child.place.removeprefix("pid "))
        watch = threading.Thread(target=self._watch, args=(number, os.pidfd_open(pid)))
        watch.start()
        self.threads.append(watch)
        return child

    def _watch(self, number: int, process: int) -> None:
        select.select([process], [], [])
        self.ended[number] = time.time()
        os.close(process)


def measured(jobs: int, seconds: float, folder: Path) -> tuple[list[float], list[float]]:
    """The gaps between jobs, and the times from a process to its program's first line."""
    os.environ["LUXMETER_HOME"] = str(folder / "lab")
    script = folder / "project" / "short.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    queue = open_queue(create=True)
    wanted = [Wanted([str(folder / f"first-{number}"), str(seconds)]) for number in range(jobs)]
    queue.add(script, wanted, JobOptions(cpus=1, memory=0))
    engine = Watching()
    Worker(queue, engine, slots=1).work(drain=True)
    for thread in engine.threads:
        thread.join()
    assert all(job.state == "done" for job in queue.table.jobs())
    queue.close()
    gaps = [engine.began[n + 1] - engine.ended[n] for n in range(jobs - 1)]
    return gaps, [float((folder / f"first-{n}").read_text()) - engine.began[n] for n in range(jobs)]


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gaps, starts = measured(options.jobs, options.seconds, Path(folder))
    for what, values in (
        ("from a job's end to the next one's process", gaps),
        ("from there to the program's first line", starts),
    ):
        print(f"{what}: median {statistics.median(values):.3f} s, most {max(values):.3f} s ({len(values)})")
    print(
        f"goal: at most {GOAL_S:g} s from a resource coming free: {'met' if max(gaps) <= GOAL_S else 'MISSED'}"
    )


if __name__ == "__main__":
    main()
