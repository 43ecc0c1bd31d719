"""Where cases come from: torch's own databases, captured operators, test classes and functions of a user's files.

A case is plain data, `{"source": ..., "api": ..., "name": ...}` and what its source needs, so that any worker can make
its trials: `trials_of(case, dtype, seed)`. A source is a module here with that function.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from luxmeter.operators.checks.trial import Trial

# source -> the module here that makes its trials
MODULES = {
    "opinfo": "opinfo",
    "module": "module_database",
    "optimizer": "optimizer_database",
    "operator": "captured",
    "program": "programs",
}


def load(source: str) -> None:
    """Import what its cases come from: torch's databases take seconds, on a busy machine minutes."""
    module = importlib.import_module(f"luxmeter.operators.checks.sources.{MODULES[source]}")
    if hasattr(module, "database"):
        module.database()


def trials_of(case: dict[str, Any], *, dtype: str, seed: int, device: str = "cpu") -> Iterator[Trial]:
    """The trials of one round of a case, drawn from the seed."""
    module = importlib.import_module(f"luxmeter.operators.checks.sources.{MODULES[case['source']]}")
    yield from module.trials_of(case, dtype=dtype, seed=seed, device=device)
