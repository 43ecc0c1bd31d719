"""The doctor does not guess: it tries a trace with the torch that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from luxmeter import environment, supported
from luxmeter.view.cli import doctor


def test_a_trace_is_tried_and_what_is_lacking_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supported, "NEWEST_TORCH", (2, 7))  # this torch is newer than that
    found = doctor.Findings(versions=environment.versions(("torch",)))
    doctor._look_at_torch(found)
    assert found.torch["a trace"] == "works" and not found.problems
    assert "is newer than what was tested (2.7)" in found.notes[0]
    assert doctor.trial()["lacks"] == supported.lacking()
    assert [note.partition(":")[0] for note in found.notes[1:]] == [name for name, _ in supported.lacking()]


def test_a_torch_that_cannot_be_traced_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('built for another machine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor.Findings(versions={"torch": "2.15.0"})
    doctor._look_at_torch(found)
    [(what, next_step)] = found.problems
    assert "built for another machine" in what and "2.15.0" in what and next_step
    doctor._show(found)
    said = capsys.readouterr().out
    assert "PROBLEM A trace does not start" in said and "No problems found" not in said


@pytest.mark.parametrize("version", ["2.7.1", "2.4.1+cu121"])
def test_an_old_torch_is_a_problem_with_what_to_do(version: str) -> None:
    found = doctor.Findings(versions={"torch": version})
    doctor._look_at_torch(found)
    [(what, next_step)] = found.problems
    assert version in what and "2.8 to 2.15" in what and "torch>=2.8" in next_step
