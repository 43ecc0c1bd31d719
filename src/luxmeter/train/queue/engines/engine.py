"""What the worker asks of whatever runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from luxmeter.errors import UsageError, suggestion
from luxmeter.store import Job, Needs


@dataclass(frozen=True)
class Start:
    """A program to be started for a job."""

    job: Job
    words: Sequence[str]
    cwd: Path
    variables: Mapping[str, str]
    log: Path
    folder: Path  # where its code and orders lie


@dataclass(frozen=True)
class Room:
    """Whether a job can start now. `never`: it needs more than there is at all."""

    free: bool
    why: str = ""
    never: bool = False
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class End:
    """How a program ended: its exit code, or None if it is gone and nobody knows; `refused`: it was not begun."""

    code: int | None
    why: str = ""
    refused: bool = False


class Going(Protocol):
    """A program that was started."""

    place: str  # what the engine calls it

    def poll(self) -> End | None:
        """How it ended; None while it goes on."""

    def end(self, how: Literal["ask", "kill"]) -> None:
        """Ask it to end, or end it."""


class Engine(Protocol):
    """Where jobs run."""

    name: str

    @property
    def slots(self) -> int:
        """How many at once, unless something else is said."""

    def room(self, needs: Needs, running: Sequence[Job]) -> Room:
        """Whether there is room beside those that run."""

    def start(self, start: Start) -> Going:
        """Start a program; OSError or LuxmeterError if that cannot be done."""

    def adopt(self, job: Job, folder: Path) -> Going | None:
        """Go on with a program whose worker is gone, also one that waits to begin; None if it is gone too."""

    def close(self) -> None:
        """Let go of everything; what runs is not ended."""


def engine_named(name: str) -> Engine:
    """The engine of this name."""
    if name not in _ENGINES:
        raise UsageError(
            "unknown-engine",
            f"Nothing called {name!r} runs jobs.",
            suggestion(name, _ENGINES) or f"There are: {', '.join(_ENGINES)}.",
        )
    return _ENGINES[name]()


def _local() -> Engine:
    from luxmeter.train.queue.engines.local import Local

    return Local()


def _ray() -> Engine:
    from luxmeter.train.queue.engines.ray import Ray

    return Ray()


def _slurm() -> Engine:
    from luxmeter.train.queue.engines.slurm import Slurm

    return Slurm()


_ENGINES: dict[str, Callable[[], Engine]] = {"local": _local, "ray": _ray, "slurm": _slurm}
