"""Every public name is typed, documented and shown in an example that the tests run."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from typed import ANYTHING, untyped

import luxmeter

REPOSITORY = Path(__file__).parent.parent.parent
NAMES = [name for name in luxmeter.__all__ if name != "__version__"]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))


def faults_of_name(name: str, value: object, pages: str, examples: str) -> list[str]:
    """What a public name lacks: a docstring, a page, an example."""
    shown = rf"(\blux\.{name}\b|from luxmeter import [^\n]*\b{name}\b)"
    return [
        *([] if inspect.getdoc(value) else [f"{name} has no docstring"]),
        *([] if re.search(rf"\b{name}\b", pages) else [f"no page of docs/ mentions {name}"]),
        *([] if re.search(shown, examples) else [f"no example uses {name}"]),
    ]


def text_of(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("name", NAMES)
def test_is_documented_and_shown_in_an_example(name: str) -> None:
    pages = text_of((REPOSITORY / "docs").glob("*.md"))
    assert faults_of_name(name, getattr(luxmeter, name), pages, text_of(EXAMPLES)) == []


def test_a_planted_name_without_docs_is_found() -> None:
    def planted() -> None: ...

    good = ("Say `lux.planted()`.", "import luxmeter as lux\nlux.planted()")
    assert faults_of_name("planted", planted, *good) == ["planted has no docstring"]
    planted.__doc__ = "It is planted."
    assert faults_of_name("planted", planted, *good) == []
    assert faults_of_name("planted", planted, "", "from luxmeter import a, planted") == [
        "no page of docs/ mentions planted"
    ]
    assert faults_of_name("planted", planted, "`planted`, `lux.planted_more`", "lux.planted_more()") == [
        "no example uses planted"
    ]


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


def faults_of_example(path: Path, work: Path, temporary_files: Path) -> list[str]:
    """Run an example in `work`: what is wrong with it."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    # Not in the repository: some keep a snapshot of the code around them.
    script = Path(shutil.copy(path, work))
    temporary = temporary_files / "t"  # short: sockets of workers lie below it
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=work, timeout=120,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    left = sorted(path.name for path in temporary.glob("luxmeter-*"))
    shutil.rmtree(temporary)  # an example may leave its own things there, for a reader to look at
    return [
        *([] if lines <= 60 else [f"it has {lines} lines"]),
        *([] if done.returncode == 0 else [f"it ended with {done.returncode}: {done.stdout}{done.stderr}"]),
        *(f"it left {name}" for name in left),
    ]


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.name != "demo.py"], ids=lambda p: p.stem)
def test_example_runs(path: Path, tmp_path: Path, temporary_files: Path) -> None:
    assert faults_of_example(path, tmp_path, temporary_files) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("print(1)\n" * 60, ""),
        ("print(1)\n" * 61, "it has 61 lines"),
        ("assert 1 + 1 == 3, 'wrong'", "AssertionError: wrong"),
        ("import tempfile; tempfile.mkdtemp(prefix='luxmeter-trace-')", "it left luxmeter-trace-"),
    ],
)
def test_a_planted_fault_of_an_example_is_found(
    text: str, fault: str, tmp_path: Path, temporary_files: Path
) -> None:
    (tmp_path / "example.py").write_text(text)
    (tmp_path / "there").mkdir()
    found = faults_of_example(tmp_path / "example.py", tmp_path / "there", temporary_files)
    assert len(found) == bool(fault) and fault in "".join(found)


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
