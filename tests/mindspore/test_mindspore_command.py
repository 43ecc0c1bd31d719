"""`luxmeter trace` of a program that uses MindSpore alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter.calls import load_trace

pytestmark = pytest.mark.mindspore

SCRIPT = """
import numpy as np
import mindspore as ms
from mindspore import nn, ops
x = ms.Tensor(np.ones((2, 3), np.float32))
for _ in range(3):
    ops.relu(nn.Dense(3, 4)(x))
"""


def test_a_program_without_torch_is_traced() -> None:
    Path("s.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "trace", "-o", "kept", "s.py"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = {row.name: (row.framework, row.n) for row in load_trace("kept").table()}
    assert seen["mindspore.nn.Dense"] == ("mindspore", 3)
    assert seen["mindspore.ops.relu"] == ("mindspore", 3)
