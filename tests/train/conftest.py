"""Every training of these tests has a lab of its own, and one thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from in_process import command as command
from in_process import own_names as own_names


@pytest.fixture(autouse=True)
def own_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The lab lies in the test's folder; runs end with the test."""
    from luxmeter.train import own_run

    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path / "lab"
    torch.set_num_threads(before)
    own_run.close_open()
