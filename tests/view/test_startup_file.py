"""The one line that Python reads when it starts: LUXMETER_TRACE alone switches tracing on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import luxmeter as lux

LINE = Path(__file__).parents[2] / "luxmeter_startup.pth"
PROGRAM = """
import site, sys
for _ in range(2):  # what Python does at its start; lib and lib64 may be one folder
    site.addsitedir(sys.argv[1])
asked = sorted(name for name in sys.modules if name.startswith("luxmeter"))
if len(sys.argv) > 2:
    import subprocess, torch
    torch.sin(torch.ones(2))
    subprocess.run([sys.executable, __file__, sys.argv[1], "child"]) if sys.argv[2] == "parent" else torch.neg(torch.ones(1))
print(asked)
"""


def run(tmp_path: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    place = tmp_path / "site"
    place.mkdir(exist_ok=True)
    shutil.copy(LINE, place)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(script), str(place), *words],
        capture_output=True, text=True, check=False, env={**kept, **environ}, cwd=tmp_path,
    )  # fmt: skip


def test_without_the_variable_nothing_is_imported(tmp_path: Path) -> None:
    if not LINE.exists():
        pytest.skip("an installed package: the line lies elsewhere")
    assert run(tmp_path).stdout == "[]\n"


def test_the_variable_alone_traces_a_program_and_its_children(tmp_path: Path) -> None:
    if not LINE.exists():
        pytest.skip("an installed package: the line lies elsewhere")
    done = run(tmp_path, "parent", LUXMETER_TRACE="keep=kept")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("calls of") == 1  # only the first process speaks
    table = lux.load_trace(tmp_path / "kept").table()
    assert {row.name: row.n for row in table} == {"torch.sin": 2, "torch.ones": 3, "torch.neg": 1}
