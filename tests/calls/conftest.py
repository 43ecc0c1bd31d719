"""Every recorder and trace test runs on both cores."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from luxmeter.calls import core as cores
from luxmeter.calls.records import EVENT_DTYPE


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many of torch's own samples ran, and how many of them were excused."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in report.user_properties if report.when == "call" else ():
            if name == "samples":
                terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {text}")


@pytest.fixture
def core(core_name: str) -> ModuleType:
    """The module of the core under test."""
    return cores.load(core_name)[0]


@pytest.fixture
def recorded() -> Callable[[Any], np.ndarray]:
    """The events a recorder holds, as records."""
    return lambda recorder: np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)
