"""tools/covered.py: what only a subprocess or a forked child reaches is measured, and what none reaches is named."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

TEST = """
import os, subprocess, sys

def test_elsewhere():
    assert subprocess.run([sys.executable, "-c", "import luxmeter.csv_text as c; c.csv_text([['=1']])"]).returncode == 0
    child = os.fork()
    if child == 0:
        import luxmeter.stats
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def test_that_fails():
    assert False
"""


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "covered_tool", Path(__file__).parents[2] / "tools" / "covered.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "covered_tool", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PLACE", tmp_path / "coverage")
    return module


@pytest.mark.slow
@pytest.mark.skipif("coverage" in sys.modules, reason="is measured itself")
def test_subprocesses_and_forked_children_are_measured(tool: ModuleType, tmp_path: Path) -> None:
    test = tmp_path / "test_elsewhere.py"
    test.write_text(TEST)
    assert tool.measure([str(test)], "1") == 1, "a test failed"
    files = json.loads((tool.PLACE / "report.json").read_text())["files"]
    reached = {path.rpartition("/")[2]: said["summary"]["covered_lines"] for path, said in files.items()}
    assert reached["csv_text.py"] > 5 and reached["stats.py"] > 5 and reached["typed_fields.py"] == 0


def test_a_file_counts_in_the_innermost_room(tool: ModuleType) -> None:
    for path, room in (
        ("src/luxmeter/calls/reader.py", "calls"),
        ("src/luxmeter/calls/targets/torch/names.py", "calls"),
        ("src/luxmeter/calls/targets/mindspore/names.py", "mindspore"),
        ("src/luxmeter/experiment/checkpoint/saver.py", "checkpoint"),
        ("src/luxmeter/errors.py", ""),
    ):
        assert tool._room_of(path) == room, path


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("gcov")), reason="needs gcc and gcov")
def test_the_core_in_c_is_measured_line_by_line(tool: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    assert tool.measure_core(["tests/calls/test_core_packed.py"]) == 0
    said = capfd.readouterr().out
    assert "core (C)" in said
    never = [line.split("never")[1].strip() for line in said.splitlines() if "  never  " in line]
    assert any("fork" in line for line in never), "of the tests of packed events none forks"
    assert not any("end += since" in line for line in never), "each of them unpacks"


def test_each_line_and_branch_that_none_takes_is_named(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    place = tmp_path / "src" / "luxmeter" / "store"
    place.mkdir(parents=True)
    (place / "a.py").write_text("if x:\n    y()\nfor z in x:\n    z()\n")
    summary = {"covered_lines": 3, "num_statements": 4, "covered_branches": 2, "num_branches": 4}
    said = {"summary": summary, "missing_lines": [2], "missing_branches": [[1, 2], [3, -1], [2, 3]]}
    whole = {"summary": summary, "missing_lines": [], "missing_branches": []}
    tool.tell(
        ["store", "calls"],
        {"src/luxmeter/store/a.py": said, "src/luxmeter/calls/b.py": whole, "src/luxmeter/x.py": said},
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[1:] == [
        ["store", "3/4", "2/4", "62.50%"],
        ["calls", "3/4", "2/4", "62.50%"],
        ["src/luxmeter/store/a.py"],
        ["2", "y()"],
        ["1", "->", "2", "if", "x:"],
        ["3", "->", "out", "for", "z", "in", "x:"],
    ]
