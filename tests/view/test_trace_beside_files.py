"""LUXMETER_TRACE overwrites no file: the variable stays set, and meets programs that nobody thought of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("precious\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", "import torch; torch.abs(torch.ones(1))"], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "LUXMETER_TRACE": "keep=calls.csv"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls.csv").read_text() == "precious\n"
    made = sorted(path.name for path in tmp_path.glob("calls*"))
    assert made == ["calls-2.csv", "calls-3.csv", "calls.csv"]
    assert "torch.abs" in (tmp_path / "calls-2.csv").read_text()
