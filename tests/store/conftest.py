"""A lab of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from luxmeter.store import Lab


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """An empty lab. Its index is a file, or in PostgreSQL: `in_both_databases` asks for the one and the other."""
    if getattr(request, "param", "sqlite") == "postgresql":
        monkeypatch.setenv("LUXMETER_STORE_URL", request.getfixturevalue("postgres").url())
    made = Lab.open(tmp_path / "lab")
    yield made
    made.close()
