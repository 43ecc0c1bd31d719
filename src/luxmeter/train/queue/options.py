"""What can be said of a job when it is queued, of a sweep of them, and of a worker. Light: every command line reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from luxmeter.options import Check, at_least, option, read_fields

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(?:i?b)?", re.IGNORECASE)


def read_size(given: Any) -> int:
    """`8GB` or `500M` as bytes, by powers of 1024."""
    matched = _SIZE.fullmatch(str(given).strip())
    assert matched is not None  # checked before
    return int(float(matched[1]) * _UNITS[matched[2].lower()])


_MEMORY = Check(lambda v: _SIZE.fullmatch(str(v).strip()) is not None, "Give a size such as 8GB or 500M.")


_JOBS = Check(
    lambda v: all(str(one).isdecimal() for one in v),
    "Give numbers of jobs, as luxmeter queue list shows them.",
)


def read_jobs(given: Any) -> tuple[int, ...]:
    """Numbers of jobs."""
    return tuple(int(one) for one in given)


@dataclass(frozen=True)
class JobOptions:
    """What a job needs and how it is treated."""

    memory: int | None = option(
        None, "Memory that must be free, such as 8GB; else what its last run used.", check=_MEMORY, read=read_size,
        metavar="SIZE",
    )  # fmt: skip
    cpus: int | None = option(
        None, "CPUs that must be free; else as many as its last run used, or 1.", check=at_least(1)
    )
    gpus: int | None = option(
        None, "GPUs that must be free, and that it will see; else 1 where there are any.", check=at_least(0)
    )
    priority: int = option(0, "Jobs of a higher one are started first.")
    retries: int = option(0, "Start it again so many times if it fails or is lost.", check=at_least(0))
    after: Sequence[int] = option(
        (), "Start it when this job is done; cancel it if that fails. Repeat for several.", many=True, metavar="JOB",
        check=_JOBS, read=read_jobs,
    )  # fmt: skip
    kind: Literal["script", "config"] | None = option(
        None, "What the file is: script or config; else its text tells.", metavar="KIND"
    )

    def __post_init__(self) -> None:
        read_fields(self, who="A job", bad="bad-job-option")


@dataclass(frozen=True)
class WorkerOptions:
    """Where jobs are run, and how many at once."""

    slots: int | None = option(
        None, "Jobs at once. [default: the number of GPUs, or 1; ray: of its GPUs, or CPUs; slurm: 16]", check=at_least(1)
    )  # fmt: skip
    on: str = option("local", "What runs them: local (this machine), ray or slurm.")

    def __post_init__(self) -> None:
        read_fields(self, who="A worker", bad="bad-worker-option")


@dataclass(frozen=True)
class SweepOptions:
    """What a sweep tries, and what it looks for."""

    grid: Sequence[str] = option(
        (), "Values of a parameter: lr=0.1,0.01. Repeat: every combination.", many=True, metavar="NAME=VALUES"
    )
    search: int = option(0, "Try so many points of the space instead of a grid.", check=at_least(0))
    space: Sequence[str] = option(
        (), "With --search: lr=1e-4:0.1, width=8:64 or optimizer=SGD,AdamW; else the bounds of the script's Params.",
        many=True, metavar="NAME=RANGE",
    )  # fmt: skip
    sampler: Literal["random", "optuna"] | None = option(
        None, "How points are found: random, or optuna, which learns; else optuna where it is installed.", metavar="NAME"
    )  # fmt: skip
    prune: bool = option(False, "End trials early that do worse than others at the same step (by optuna).")
    seeds: int = option(1, "Run each point with so many seeds: seed=0, 1, ...", check=at_least(1))
    metric: str = option("", "What to compare trials by, such as eval/acc.")
    mode: Literal["min", "max"] = option(
        "max",
        "Whether more (max) or less (min) of the metric is better; each run counts by the best it reached.",
    )
    name: str = option(
        "", "The sweep's name, and its runs' tag; else sweep-1, -2, ...",
        check=Check(lambda v: not v or _NAME.fullmatch(str(v)) is not None, "Give letters, digits, -, _ and ."),
    )  # fmt: skip
    draw_seed: int = option(0, "Where the randomness of --search comes from.")

    def __post_init__(self) -> None:
        read_fields(self, who="A sweep", bad="bad-sweep-option")
