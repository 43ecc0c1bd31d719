"""A program that `luxmeter reproduce` started draws the numbers of the run it repeats: its random state is set anew
at the moment at which that run's was written down."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from luxmeter.errors import LuxmeterError, warn_once
from luxmeter.experiment.seed import start_state
from luxmeter.files import read_json
from luxmeter.store import records

VARIABLE = "LUXMETER_RANDOM_FROM"  # the folder of the run that is repeated


def random_at_start() -> dict[str, Any]:
    """The random state at a run's start; first set to that of the run that is repeated, if one is."""
    folder = os.environ.get(VARIABLE)
    if folder:
        _go_back(Path(folder))
    return start_state.take()


def _go_back(folder: Path) -> None:
    record = read_json(folder / records.FILES_FOLDER / records.RANDOM)
    if record is None or any(name in record and name not in sys.modules for name in ("torch", "numpy")):
        return  # written down when a framework was loaded that is not yet: then this will be called again
    os.environ.pop(VARIABLE, None)  # once, and not in the processes that this one starts
    try:
        start_state.restore(record)
    except (LuxmeterError, KeyError, TypeError, ValueError) as error:
        warn_once(
            "random-not-restored",
            f"The random state of the run in {folder} cannot be set: {error}.",
            "What is drawn without a seed will differ.",
        )
