"""Which torch Luxmeter works with: said in one place, and the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter import supported
from luxmeter.errors import UsageError

ONE_CORE = "what is said of versions before a core is chosen"

ROOT = Path(__file__).parents[1]


def test_the_readme_and_the_package_say_the_same_range() -> None:
    assert f"torch {supported.range_of_torch()}" in (ROOT / "README.md").read_text()
    [asked] = set(re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    assert supported.numbers_of(asked) == supported.OLDEST_TORCH


@pytest.mark.parametrize(
    ("version", "old", "new"),
    [
        ("2.4.1", True, False),
        ("2.7.1+cu126", True, False),
        ("2.8.0", False, False),
        ("2.15.3+cpu", False, False),
        ("2.16.0a0+git12ab", False, True),
        ("3.0", False, True),
        ("", False, False),
        ("unknown", False, False),
    ],
)
def test_versions(version: str, old: bool, new: bool) -> None:
    assert (supported.too_old(version) is not None, bool(supported.newer_than_tested(version))) == (old, new)


def test_an_old_torch_is_the_reason_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a name that it lacks, and not the user's model or inputs."""
    monkeypatch.setattr(torch, "__version__", "2.7.1")
    for work in (
        lux.trace,
        lux.start,
        lambda: lux.analyze(torch.nn.Linear(2, 2), torch.ones(1, 2)),
        lambda: lux.bench(lux.Operators([])),
    ):
        with pytest.raises(UsageError) as told:
            work()
        assert told.value.slug == "torch-too-old"
        assert "2.7.1" in told.value.what and "pip install 'torch>=2.8'" in told.value.next_step


def test_a_newer_torch_than_tested_is_one_line_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(torch, "__version__", "9.1.0")
    with lux.trace() as trace:
        torch.ones(2)
    [note] = trace.result.notes()
    assert note.startswith("torch 9.1.0 is newer than what was tested (2.15)") and note in str(trace)
    assert not recwarn.list


def test_what_is_not_imported_yet_is_not_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    assert supported.has("no_such_package.name")
    assert not supported.has("torch._C.nothing_of_the_kind")
    monkeypatch.delattr(torch._C, "_is_cow_tensor")
    assert "_is_cow_tensor" in " ".join(name for name, _ in supported.lacking(trace_only=True))
