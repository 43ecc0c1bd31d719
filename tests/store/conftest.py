"""A lab of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from luxmeter.store import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """An empty lab."""
    made = Lab.open(tmp_path / "lab")
    yield made
    made.close()
