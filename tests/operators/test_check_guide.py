"""docs/check.md: its fault is found, made small, and shown again by the printed script, with the output of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.operators import CheckResult, check
from luxmeter.operators.checks.records import STATUSES

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXT = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "150"},
    )


def test_the_fault_is_found_made_small_and_shown_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("expecttest")
    monkeypatch.chdir(tmp_path)
    Path("fault.py").write_text(PYTHON[0])
    command, _, table = TEXT[0].removeprefix("$ ").partition("\n")
    done = run("-m", *command.split(), "--workers", "1")
    assert done.returncode == 1, done.stderr
    shown, _, script = done.stdout.partition("\n\nThis shows torch.cos again:\n\n")
    assert shown.split() == table.split()
    assert script == PYTHON[1].replace("/home/you", str(tmp_path))
    Path("shows.py").write_text(script)
    again = run("-I", "shows.py")
    assert (again.returncode, f"$ python shows.py\n{again.stdout}{again.stderr}") == (1, TEXT[2])
    Path("fault.py").write_text("")
    assert run("-I", "shows.py").returncode == 0  # without the fault nothing is wrong


def test_a_test_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = next(block for block in PYTHON if block.startswith("# mine.py"))
    Path("mine.py").write_text(mine)
    names: dict[str, object] = {}
    exec(next(block for block in PYTHON if 'check("mine.py"' in block), names)
    assert isinstance(names["result"], CheckResult) and names["check"] is check


def test_the_page_names_every_status() -> None:
    assert re.findall(
        r"^\| `(\w+)` \| (?:every|a sample|it is not|the worker|no result)", PAGE, re.MULTILINE
    ) == list(STATUSES)
    for path in re.findall(r"`(operators/checks/\w+\.py)`", PAGE):
        assert (Path(__file__).parents[2] / "src" / "luxmeter" / path).is_file()
