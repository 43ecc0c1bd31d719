"""A project to queue, a queue on it, and an engine that runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from luxmeter.process import Process
from luxmeter.store import Job, Needs
from luxmeter.train.queue.engines.engine import End, Room, Start

DEAD = replace(Process.here(), pid=2**22 - 7, started=1.0)  # a process of this machine that is gone


def project(folder: Path, **files: str) -> Path:
    """A folder with a script that does nothing, and other files."""
    folder.mkdir(exist_ok=True)
    for name, text in {"script": "print('hello')\n", **files}.items():
        (folder / f"{name}.py").write_text(text)
    return folder / "script.py"


class Pretended:
    """A program that ends when the test says so."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.place = f"pretended {start.job.id}"
        self.result: End | None = None
        self.asked: list[str] = []

    def poll(self) -> End | None:
        return self.result

    def end(self, how: Literal["ask", "kill"]) -> None:
        self.asked.append(how)
        if how == "kill":
            self.result = End(-9, "ended by SIGKILL")


class PretendedEngine:
    """Room for so many CPUs; remembers what it started."""

    name = "local"

    def __init__(self, cpus: int = 2) -> None:
        self.slots = 8
        self.cpus = cpus
        self.started: dict[int, Pretended] = {}
        self.order: list[int] = []
        self.refuses: OSError | None = None

    def room(self, needs: Needs, running: Sequence[Job]) -> Room:
        if needs.cpus > self.cpus:
            return Room(False, f"needs {needs.cpus} CPUs", never=True)
        taken = sum(job.needs.cpus for job in running)
        return Room(taken + needs.cpus <= self.cpus, f"waits for {needs.cpus} CPUs")

    def start(self, start: Start) -> Pretended:
        if self.refuses is not None:
            raise self.refuses
        self.order.append(start.job.id)
        self.started[start.job.id] = Pretended(start)
        return self.started[start.job.id]

    def adopt(self, job: Job, folder: Path) -> None:
        return None

    def close(self) -> None:
        pass

    def end(self, number: int, code: int | None = 0) -> None:
        """Let a program end."""
        self.started[number].result = End(code)


class Clock:
    """Time that goes on with each question."""

    def __init__(self, tick_s: float = 1.0) -> None:
        self.now, self.tick_s = 0.0, tick_s

    def __call__(self) -> float:
        self.now += self.tick_s  # by itself, every look is due
        return self.now
