"""A process is recognised however the clock is set."""

from __future__ import annotations

import os
from dataclasses import replace

import psutil
import pytest

from luxmeter.process import Process


def test_a_step_of_the_clock_makes_no_living_process_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Process.here()
    assert here.runs_here() and Process.of(vars(here)) == here
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: here.started + 3600)
    assert here.runs_here(), "the clock was put forward by an hour"
    assert not replace(here, ticks=here.ticks - 1).runs_here(), "another process of that number"


def test_records_of_older_versions_are_recognised() -> None:
    here = Process.here()
    record = {name: value for name, value in vars(here).items() if name != "ticks"}
    assert Process.of(record).runs_here() and Process.of(record).pid == os.getpid()
    assert not replace(Process.of(record), started=here.started - 5).runs_here()
