"""A project with a git submodule: its code is told apart, and made to run again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.experiment.compare.diff import RunDiff
from luxmeter.experiment.query import source_code
from luxmeter.experiment.query.runs import runs

SCRIPT = (
    "import sys\n"
    "sys.path.insert(0, 'vendored')\n"
    "import lib\n"
    "import luxmeter as lux\n"
    "with lux.Experiment('sub', quiet=True, system_s=0) as exp:\n"
    "    exp.log({'loss': lib.f(0.1)})\n"
)


def git(place: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=n@x", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inner, outer = tmp_path / "inner", tmp_path / "project"
    for place, name, text in ((inner, "lib.py", "def f(x): return 2 * x\n"), (outer, "train.py", SCRIPT)):
        place.mkdir()
        (place / name).write_text(text)
        git(place, "init", "-q")
        git(place, "add", ".")
        git(place, "commit", "-qm", "first")
    git(outer, "submodule", "add", "-q", str(inner), "vendored")
    git(outer, "commit", "-qm", "second")
    monkeypatch.chdir(outer)
    return outer


def test_its_code_is_compared_and_runs_again(project: Path) -> None:
    subprocess.run([sys.executable, "train.py"], check=True)
    lib = project / "vendored" / "lib.py"
    lib.write_text("def f(x): return 3 * x\n")  # not committed, and not in the tree of the project
    subprocess.run([sys.executable, "train.py"], check=True)
    second, first = runs()
    diff = RunDiff(first, second)
    assert [(file.path, file.kind, file.added, file.removed) for file in diff.code] == [
        ("vendored/lib.py", "changed", 1, 1)
    ]
    assert source_code.read_source(first, "vendored/lib.py") == b"def f(x): return 2 * x\n"
    assert source_code.read_source(first, ".gitmodules").startswith(b"[submodule")

    words = [sys.executable, "-m", "luxmeter", "code", first.id, "--all", "--json"]
    every = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert {".gitmodules", "train.py", "vendored/lib.py"} <= set(every)
    assert every["vendored/lib.py"] == "def f(x): return 2 * x\n"

    lib.write_text("def f(x): return 4 * x\n")
    words = [sys.executable, "-m", "luxmeter", "reproduce", second.id]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "bit by bit" in done.stdout, done.stdout + done.stderr
    assert lib.read_text() == "def f(x): return 4 * x\n"
