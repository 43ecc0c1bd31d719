"""Memory stays flat however long the training, no call is lost, and nothing leaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, psutil, luxmeter as lux
calls, shapes, torch_too = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "torch"
if torch_too:
    import torch
me = psutil.Process()
t = lux.start(framework=None, keep=sys.argv[4], max_signatures=1000)
work = t.wrap(lambda *args: None, name="work")
x = torch.ones(2, 3) if torch_too else 1.5
def some(n, start):
    if shapes == "new":
        for i in range(start, start + n):
            work(i)
    else:
        for _ in range(n):
            work(x, x)
part = max(calls // 20, 1)
some(2 * part, 0)
t._spill.flush()
before = me.memory_info().rss
highest = 0
for k in range(2, 20):
    some(part, k * part)
    highest = max(highest, me.memory_info().rss)
lux.stop()
stats = [p.end["stats"] for p in t.result.recording.processes]
print((highest - before) / 2**20, highest / 2**20, stats[0]["events"], stats[0]["lost"], stats[0]["signatures"])
"""


def run(tmp_path: Path, core: str, calls: int, shapes: str, framework: str = "none") -> list[float]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), str(calls), shapes, framework, str(tmp_path / "t")],
        capture_output=True, text=True, env={**os.environ, "LUXMETER_CORE": core}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.split()]


@pytest.mark.parametrize(("core", "calls"), [("c", 2_000_000), ("python", 100_000)])
def test_memory_is_flat(tmp_path: Path, core: str, calls: int):
    grown, _, events, lost, _ = run(tmp_path, core, calls, "same")
    assert grown < 64, "MiB more than after the first tenth (the writer's own buffers come and go)"
    assert events + lost == pytest.approx(calls, abs=10)
    assert (
        lost == 0 or core == "c"
    )  # with the processor taken away the writer may fall behind: then it says so


@pytest.mark.parametrize(("core", "calls"), [("c", 1_000_000), ("python", 50_000)])
def test_ever_new_signatures_stay_flat(tmp_path: Path, core: str, calls: int):
    grown, _, _, _, signatures = run(tmp_path, core, calls, "new")
    assert grown < 64
    assert signatures == 1001


@pytest.mark.one_core("so many calls are too many for the Python core")
def test_a_million_calls_with_tensors_leak_nothing(tmp_path: Path):
    pytest.importorskip("luxmeter.calls.core._core")
    grown, *_ = run(tmp_path, "c", 1_000_000, "same", "torch")
    assert grown < 64


@pytest.mark.one_core("so many calls are too many for the Python core")
@pytest.mark.soak
def test_fifty_million_calls_in_two_hundred_megabytes(tmp_path: Path):
    pytest.importorskip("luxmeter.calls.core._core")
    grown, highest, events, lost, _ = run(tmp_path, "c", 50_000_000, "same")
    assert highest < 200 and grown < 64
    assert events + lost == pytest.approx(50_000_000, abs=10)
    size = sum(p.stat().st_size for p in (tmp_path / "t").glob("rank*/events/*.parquet"))
    assert size / events <= 10
