"""A terminal that knows ASCII alone shows what it can, and no command ends for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.store import Lab


@pytest.mark.parametrize(
    "command", [["show", "latest"], ["runs"], ["plot", "latest"], ["diff", "latest", "latest"]], ids=" ".join
)
def test_commands_on_an_ascii_terminal(tmp_path: Path, command: list[str]) -> None:
    with Lab.open(tmp_path / "lab").create_run("über", params={"näme": "größe"}) as run:
        for step in range(30):
            run.log({"loss": 1.0 / (step + 1)}, step=step)
    environment = {
        **os.environ,
        "LUXMETER_HOME": str(tmp_path / "lab"),
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
    }
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", *command], env=environment, capture_output=True, cwd=tmp_path
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
