"""docs/is-the-new-torch-faster.md and docs/keep-it-cheap-in-ci.md are true: what they print is what the commands print.

The benchmarks behind the first are kept in tests/flows/recorded, as they were measured under two versions of torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from luxmeter.operators import load_operators
from luxmeter.view.cli import build_app

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
FASTER = (DOCS / "is-the-new-torch-faster.md").read_text(encoding="utf-8")
CHEAP = (DOCS / "keep-it-cheap-in-ci.md").read_text(encoding="utf-8")


def luxmeter(*args: str) -> Any:
    return CliRunner().invoke(build_app(), list(args), catch_exceptions=False)


def shown(page: str, command: str) -> str:
    """What a page says that a command prints."""
    found = re.search(rf"^\$ {re.escape(command)}\n(.*?)(?=^\$ |^```)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, command
    return found[1]


def code(page: str, name: str) -> str:
    """The file of that name on a page."""
    return page.split(f"```python\n# {name}\n", 1)[1].split("```", 1)[0]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE / "recorded")


@pytest.mark.parametrize("page", [FASTER, CHEAP], ids=["faster", "cheap"])
def test_what_the_pages_compare(page: str, recorded: None) -> None:
    commands = re.findall(r"^\$ (luxmeter diff .*)$", page, re.MULTILINE)
    assert commands
    for command in commands:
        done = luxmeter(*command.split()[1:])
        assert shown(page, command) == done.stdout
        assert done.exit_code == (1 if "--fail-on-regression" in command else 0)


def test_the_training_of_the_page_gives_its_operators() -> None:
    """Its steps are fewer here; what it calls is the same."""
    Path("train.py").write_text(code(FASTER, "train.py").replace("range(40)", "range(2)"))
    for words in (["trace", "-o", "traced", "train.py"], ["ops", "traced", "-o", "ops.jsonl"]):
        subprocess.run(
            [sys.executable, "-m", "luxmeter", *words],
            check=True,
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    names = {case.op for case in load_operators("ops.jsonl")}
    assert {
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.nn.Linear",
        "torch.nn.LayerNorm",
    } <= names


def test_the_budget_of_the_page() -> None:
    Path("test_cost.py").write_text(code(CHEAP, "test_cost.py"))
    Path("pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "test_cost.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1

    def plain(text: str) -> str:
        return re.sub(r"\d+\.\d+s( \([\d:]+\))?", "0s", text).strip()

    assert plain(done.stdout) == plain(shown(CHEAP, "pytest -q --tb=short test_cost.py"))
