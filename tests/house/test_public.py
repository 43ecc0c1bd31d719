"""Every public name is typed, documented and shown in an example that the tests run."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typed import ANYTHING, untyped

import luxmeter

REPOSITORY = Path(__file__).parent.parent.parent
NAMES = [name for name in luxmeter.__all__ if name != "__version__"]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_is_documented(name: str) -> None:
    value = getattr(luxmeter, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs").glob("*.md"))
    assert re.search(rf"\b{name}\b", pages), f"no page of docs/ mentions {name}"


@pytest.mark.parametrize("name", NAMES)
def test_is_shown_in_an_example(name: str) -> None:
    shown = "\n".join(path.read_text(encoding="utf-8") for path in EXAMPLES)
    pattern = rf"(\blux\.{name}\b|from luxmeter import [^\n]*\b{name}\b)"
    assert re.search(pattern, shown), f"no example uses {name}"


@pytest.mark.parametrize("name", NAMES)
def test_is_typed(name: str) -> None:
    assert not untyped(getattr(luxmeter, name))


def test_every_exception_from_types_is_needed() -> None:
    found = {line for name in NAMES for line in untyped(getattr(luxmeter, name), anything=())}
    assert found == {f"{name}: its result is anything" for name in ANYTHING}


def test_dir_and_unknown_names() -> None:
    assert set(NAMES) <= set(dir(luxmeter))
    with pytest.raises(AttributeError, match="no_such_name"):
        luxmeter.no_such_name


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.name != "demo.py"], ids=lambda p: p.stem)
def test_example_runs(path: Path, tmp_path: Path, temporary_files: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 60, f"{path.name} has {lines} lines"
    script = Path(
        shutil.copy(path, tmp_path)
    )  # not in the repository: some keep a snapshot of the code around them
    temporary = temporary_files / "t"  # short: sockets of workers lie below it
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(temporary.glob("luxmeter-*"))
    shutil.rmtree(temporary)  # an example may leave its own things there, for a reader to look at


def test_a_mistyped_name_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Experimnt'"):
        luxmeter.Experimnt
    done = subprocess.run(
        [sys.executable, "-c", "import luxmeter as lux\nlux.Experimnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Did you mean: 'Experiment'?" in done.stderr
