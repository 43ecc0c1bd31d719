"""MindSpore is traced where there is no torch: here torch cannot be imported in any process that is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import luxmeter as lux

pytestmark = pytest.mark.mindspore

BLOCKER = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
PROGRAM = """
import mindspore as ms, numpy as np
x = ms.Tensor(np.ones((4, 4), np.float32))
ms.ops.relu(ms.ops.matmul(x, x))
"""
WITHIN = """
import sys
import luxmeter as lux
with lux.trace(keep="awaited") as t:  # MindSpore comes while it runs
    import mindspore as ms, numpy as np
    x = ms.Tensor(np.ones((4, 4), np.float32))
    ms.ops.matmul(x, x)
with lux.trace(keep="there"):
    ms.ops.matmul(x, x)
assert "torch" not in sys.modules and "callables are timed" in str(t.coverage())
for use in (t.operators, lambda: lux.start(framework="torch")):
    try:
        use()
    except ImportError as error:
        assert error.slug == "needs-torch", error
    else:
        raise AssertionError(use)
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    Path("blocked").mkdir(exist_ok=True)
    Path("blocked", "sitecustomize.py").write_text(BLOCKER)
    paths = [str(Path("blocked").absolute()), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip


def counts(folder: str) -> dict[str, int]:
    return {row.name: row.n for row in lux.load_trace(folder).table()}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text(PROGRAM)
    done = run("-m", "luxmeter", "trace", "-o", "kept", "s.py")
    assert done.returncode == 0, done.stderr
    assert counts("kept") == {"mindspore.ops.matmul": 1, "mindspore.ops.relu": 1}


def test_within_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text(WITHIN)
    done = run("s.py")
    assert done.returncode == 0, done.stderr
    assert counts("awaited") == counts("there") == {"mindspore.ops.matmul": 1}
