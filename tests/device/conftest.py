"""The card as this process's accelerator: all tests here, and no other ones, in one process."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from typing import Any

import card as cards
import pytest
import torch

from compiler import compiler_works

MS = 1_000_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """torch cannot let go of a device: other tests would run on a machine with an accelerator."""
    if not all(item.get_closest_marker("device") for item in items):
        skip = pytest.mark.skip(reason="a process of its own is needed: make test-device")
        for item in items:
            if item.get_closest_marker("device"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def built() -> Any:
    """The extension, built if it was not yet."""
    if not compiler_works("c++", "g++", "clang++"):
        pytest.skip("the card of the tests is C++, and no compiler answers")
    return cards.load()


@pytest.fixture
def card(built: Any) -> Iterator[Any]:
    """Nothing queued, a clock of its own that moves by a millisecond for each piece of work."""

    def as_new() -> None:
        for index in range(built.CARDS):
            built.hold(False, index)
            built.synchronize(index)
            built.cost(MS, index)
        built.tick(True), built.capture(False), built.keep_time(True), built.tell_memory(True)
        torch.accelerator.set_device_index(0)

    as_new()
    faulthandler.dump_traceback_later(120, exit=True)  # what waits for a card that is held waits for ever
    yield built
    faulthandler.cancel_dump_traceback_later()
    as_new()
