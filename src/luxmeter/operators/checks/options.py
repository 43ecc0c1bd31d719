"""How to check: what `check` can be told, in Python and as text."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from luxmeter.errors import UsageError
from luxmeter.options import at_least, checked_options, option


def _items(given: Any) -> Any:
    """`fp32,bf16` -> ["fp32", "bf16"]; so each of several."""
    parts = [given] if isinstance(given, str) else given
    return [word.strip() for part in parts for word in str(part).split(",") if word.strip()]


def _patterns(given: Any) -> Any:
    """As `_items`; without one, all that there is would be checked, which nobody asked for who named something."""
    found = _items(given)
    if (given and not found) or given == "":
        raise UsageError(
            "bad-check-option",
            "check() cannot use an empty only.",
            "Name a module or an operator, or leave it out.",
        )
    return found


@dataclass(frozen=True)
class CheckOptions:
    """How to check."""

    rounds: int = option(
        1, "Rounds, each with new random inputs (Torbencher's num_epoches).", check=at_least(1)
    )
    dtypes: Sequence[str] = option(("fp32",), "fp32,bf16,fp16,fp64.", read=_items)
    device: str | Sequence[str] = option(
        "cpu", "cpu,cuda or any that torch, or a plug-in, knows.", read=_items
    )
    backends: Sequence[str] = option(
        ("eager",), "any of eager,compile,onnxruntime,mindspore and registered ones.", read=_items
    )
    only: Sequence[str] = option(
        (),
        "These modules or names: torch.nn.functional, torch.cos, '*conv*'. Repeat.",
        read=_patterns,
        many=True,
    )
    samples: int | None = option(None, "At most so many inputs for each case in a round.")
    backward: bool = option(True, "Compare gradients.")
    seed: int = option(0, "All random inputs come from it.")
    including_success: bool = option(True, "Keep the rows of what passed.")
    shrink: bool = option(False, "Make each failing input as small as it can be.")
    setup: Sequence[str] = option(
        (),
        "A module or .py file that every worker imports first: a device's plug-in. Repeat.",
        read=_items,
        many=True,
    )
    workers: int | None = option(None, "Processes at work; else as many as there are processors.")
    timeout_s: float | None = option(
        None,
        "Seconds after which a case counts as hung at an input; else 60, or 600 where inputs are compiled or exported.",
    )
    python: str = option(sys.executable, "The interpreter whose torch is checked; else this one.")
    resume: Path | str | None = option(
        None, "A JSON file that keeps rows as they come; what it holds is not run again."
    )
    quiet: bool = option(False, "Without a line of progress.")

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices to check."""
        return (self.device,) if isinstance(self.device, str) else tuple(self.device)

    @property
    def worker_count(self) -> int:
        """How many processes work."""
        return max(1, os.cpu_count() or 1) if self.workers is None else self.workers

    def patience_s(self, backend: str) -> float:
        """How long an input of a case may take."""
        if self.timeout_s is not None:
            return self.timeout_s
        return 600.0 if backend in ("compile", "onnxruntime") else 60.0

    def python_for(self, backend: str) -> str:
        """The interpreter a backend runs in: its own, or the one whose torch is checked."""
        from luxmeter.operators.backends import interpreter_of  # brings torch

        return interpreter_of(backend) or self.python


class CheckSettings(TypedDict, total=False):
    """The keyword arguments of `check`: the fields of CheckOptions."""

    rounds: int
    dtypes: Sequence[str]
    device: str | Sequence[str]
    backends: Sequence[str]
    only: Sequence[str]
    samples: int | None
    backward: bool
    seed: int
    including_success: bool
    shrink: bool
    setup: Sequence[str]
    workers: int | None
    timeout_s: float | None
    python: str
    resume: Path | str | None
    quiet: bool


def make_options(settings: CheckSettings) -> CheckOptions:
    """Checked options."""
    return checked_options(
        CheckOptions, settings, who="check()", unknown="unknown-check-option", bad="bad-check-option"
    )
