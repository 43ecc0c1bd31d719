"""Every recorder and trace test runs on both cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from luxmeter.calls import core as cores
from luxmeter.calls import session
from luxmeter.calls.records import EVENT_DTYPE


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many of torch's own samples ran, and how many of them were excused."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in report.user_properties if report.when == "call" else ():
            if name == "samples":
                terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {text}")


@pytest.fixture(params=["c", "python"])
def core_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The core under test; every trace of the test uses it."""
    monkeypatch.setenv("LUXMETER_CORE", request.param)
    name: str = request.param
    return name


@pytest.fixture
def core(core_name: str) -> ModuleType:
    """The module of the core under test."""
    return cores.load(core_name)[0]


@pytest.fixture
def recorded() -> Callable[[Any], np.ndarray]:
    """The events a recorder holds, as records."""
    return lambda recorder: np.frombuffer(b"".join(recorder.drain()), dtype=EVENT_DTYPE)


@pytest.fixture(autouse=True)
def no_trace_left() -> Iterator[None]:
    """No test leaves a trace running."""
    yield
    left = session.active()
    if left is not None:
        left.stop()
    assert left is None, "a trace was left running"
