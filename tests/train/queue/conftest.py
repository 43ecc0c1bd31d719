"""A queue on a project with a script that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_parts import project

from luxmeter.train import Queue, open_queue


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """In the lab of the test; the script is `project/script.py`."""
    project(tmp_path / "project")
    made = open_queue(create=True)
    yield made
    made.close()
