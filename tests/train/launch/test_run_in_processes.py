"""`luxmeter run --processes N script.py`: a script that knows nothing of us, in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import luxmeter as lux

SCRIPT = """\
import os, sys
rank = int(os.environ["RANK"])
print("rank", rank, "of", os.environ["WORLD_SIZE"], sys.argv[1:])
if rank == 1:
    raise ValueError("it fails here")
"""


def test_a_script(tmp_path: Path) -> None:
    Path("script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "run", "--processes", "2", "script.py", "--lr", "0.1"],
        capture_output=True, text=True, check=False, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert (
        "rank 0 of 2 ['--lr', '0.1']\n" in done.stdout
        and "[rank 1] rank 1 of 2 ['--lr', '0.1']\n" in done.stdout
    )
    head, _, told = done.stderr.partition("luxmeter: rank 1 of 2 failed first:\n")
    assert "Traceback" not in head and told.startswith("Traceback (most recent call last):\n"), done.stderr
    assert told.splitlines()[-2:] == ["ValueError: it fails here", "  rank 0 had come to its end"]
    assert "view/program.py" not in told
    (run,) = lux.runs()
    assert run.name == "script" and run.params["lr"] == 0.1 and run.state == "finished"
