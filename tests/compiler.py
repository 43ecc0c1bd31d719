"""Whether a compiler works here: one that is there may still refuse."""

from __future__ import annotations

import shutil
import subprocess


def compiler_works(*names: str) -> bool:
    """Whether the first of these that is on the path answers."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0
