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


def test_without_a_sign_it_does_not_live(tmp_path: Path) -> None:
    elsewhere = replace(Process.here(), machine="another/pid:[1]")
    assert not is_alive(elsewhere, tmp_path, lost_after_s=10)


def test_where_nothing_can_be_written_this_machines_clock_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ALIVE).touch()
    real = Path.touch

    def refuse(path: Path, *arguments: bool, **options: bool) -> None:
        if path.name.startswith(".clock"):
            raise OSError(30, "Read-only file system")
        real(path, *arguments, **options)

    monkeypatch.setattr(Path, "touch", refuse)
    assert is_alive(replace(Process.here(), machine="another/pid:[1]"), tmp_path, lost_after_s=10)
