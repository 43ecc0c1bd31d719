"""Whether a run of another machine lives is told by its `alive` file: neither old nor out of the future."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from luxmeter.process import Process
from luxmeter.store.layout import ALIVE
from luxmeter.store.liveness import is_alive


@pytest.mark.parametrize(
    ("at_s", "alive"), [(-3, True), (3, True), (-60, False), (60, False), (75 * 365 * 86400, False)]
)
def test_only_a_moment_near_now_is_a_sign_of_life(tmp_path: Path, at_s: float, alive: bool) -> None:
    (tmp_path / ALIVE).touch()
    moment = time.time() + at_s
    os.utime(tmp_path / ALIVE, (moment, moment))
    elsewhere = replace(Process.here(), machine="another/pid:[1]")
    assert is_alive(elsewhere, tmp_path, lost_after_s=10) is alive
