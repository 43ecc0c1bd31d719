"""How to benchmark: what `bench` can be told."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from luxmeter.isolate import Pool
from luxmeter.operators.backends import interpreter_of


class BenchSettings(TypedDict, total=False):
    """The settings of `bench`, see `BenchOptions`."""

    dtypes: Sequence[str]
    backends: Sequence[str]
    scales: Mapping[str, Sequence[int]] | None
    names: Mapping[str, int] | None
    device: str | Sequence[str]
    threads: int | Sequence[int]
    backward: bool
    kernels: bool
    budget_s: float
    target_ci: float
    seed: int
    python: str | Mapping[str, str]
    timeout_s: float | None
    resume: str | Path | None
    quiet: bool
    pool: Pool | None


@dataclass(frozen=True)
class BenchOptions:
    """How to benchmark.

    `budget_s` is for the whole call. `scales` are sizes of named dimensions; `names` gives names of your own to
    recorded sizes. `device` and `threads` may be several. `python` is the interpreter whose torch is measured, or one
    for each backend by its name. `timeout_s` ends a case that hangs (without it: the budget, but at least a minute).
    `resume` is a JSON file that keeps the rows as they are done: what it already holds is not measured again.
    `kernels` adds a row for each aten kernel. `pool` is one of your own whose workers stay warm for the next call.
    """

    dtypes: Sequence[str] = ("fp32",)
    backends: Sequence[str] = ("eager",)
    scales: Mapping[str, Sequence[int]] | None = None
    names: Mapping[str, int] | None = None
    device: str | Sequence[str] = "cpu"
    threads: int | Sequence[int] = 1
    backward: bool = False
    kernels: bool = False
    budget_s: float = 60.0
    target_ci: float = 0.02
    seed: int = 0
    python: str | Mapping[str, str] = sys.executable
    timeout_s: float | None = None
    resume: str | Path | None = None
    quiet: bool = False
    pool: Pool | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices to run on."""
        return (self.device,) if isinstance(self.device, str) else tuple(self.device)

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """The numbers of threads to run with."""
        return (self.threads,) if isinstance(self.threads, int) else tuple(self.threads)

    @property
    def patience_s(self) -> float:
        """How long one case may take."""
        return max(60.0, self.budget_s) if self.timeout_s is None else self.timeout_s

    def python_for(self, backend: str) -> str:
        """The interpreter a backend runs in: the caller's choice for it, its own, or the one that is measured."""
        if isinstance(self.python, str):
            return interpreter_of(backend) or self.python
        return self.python.get(backend) or interpreter_of(backend) or sys.executable
