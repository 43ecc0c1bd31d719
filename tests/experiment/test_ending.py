"""The line at the end: what changed against the run before, and what that did."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

import luxmeter as lux
from luxmeter.experiment.ending import against, duration
from luxmeter.store import Lab, Run
from luxmeter.store.records import CODE

BEFORE: dict[str, Any] = {
    "params": {"lr": 0.1, "optim": {"name": "sgd"}},
    "files": {"train.py": "1", "model.py": "1"},
    "tree": "1" * 40,
    "environment": {"torch": "2.12"},
    "metrics": {"loss": 0.4},
}


def made(lab: Lab, **changed: Any) -> Run:
    """A finished run like BEFORE, but for what is changed."""
    facts = {**BEFORE, **changed}
    environment = {"machine": {"python": "3.11"}, "packages": facts["environment"]}
    with lab.create_run("mnist", params=facts["params"], environment=environment) as run:
        run.put_file(CODE, json.dumps({"files": facts["files"], "git": {"tree": facts["tree"]}}))
        run.log(facts["metrics"], step=1)
    return lab.find(run.id)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "nothing changed => loss 0.4 (same)"),
        (
            {"params": {"lr": 0.01, "optim": {"name": "sgd"}}, "metrics": {"loss": 0.3}},
            "lr 0.1 -> 0.01 => loss 0.4 -> 0.3 (-25.0%)",
        ),
        ({"params": {"lr": 0.1}}, "optim.name sgd -> unset => loss 0.4 (same)"),
        ({"files": {"train.py": "2", "new.py": "1"}}, "code train.py, +new.py, -model.py => loss 0.4 (same)"),
        ({"tree": "2" * 40}, "code that was not imported => loss 0.4 (same)"),
        ({"environment": {"torch": "2.13"}}, "torch 2.12 -> 2.13 => loss 0.4 (same)"),
        ({"metrics": {"acc": 0.5}}, "nothing changed => acc 0.5 (new)"),
        ({"metrics": {"loss": 0.400001}}, "nothing changed => loss 0.4 (about the same)"),
        ({"metrics": {}}, "nothing changed"),
        ({"metrics": {"loss": float("nan")}}, "nothing changed => loss 0.4 -> nan"),
        (
            {"params": {**BEFORE["params"], **{f"p{i}": i for i in range(6)}}, "metrics": {}},
            "p0 unset -> 0, p1 unset -> 1, p2 unset -> 2, p3 unset -> 3 and 2 more",
        ),
    ],
)
def test_line(changed: dict[str, Any], line: str) -> None:
    lab = Lab.open()
    before, after = made(lab), made(lab, **changed)
    assert against(before, after) == f"against {before.id[:5]}: {line}"
    lab.close()


def test_the_first() -> None:
    lab = Lab.open()
    assert against(None, made(lab)) == "the first of 'mnist': loss 0.4"
    lab.close()


def test_duration() -> None:
    assert [duration(s) for s in (0.123, 12.34, 185, 7800)] == ["0.12 s", "12.3 s", "3 min 5 s", "2 h 10 min"]


def test_runs_are_compared_with_the_last_that_finished(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(lr: float, *, fails: bool = False, quiet: bool = False) -> str:
        exp = lux.Experiment("m/n", {"lr": lr}, code=False, quiet=quiet)
        try:
            with exp:
                exp.log({"loss": lr * 2}, step=0)
                if fails:
                    raise KeyError("x")
        except KeyError:
            pass
        ids.append(exp.id[:5])
        folders.append(exp.folder)
        return capsys.readouterr().err

    ids: list[str] = []
    folders = []
    assert run(0.1).endswith("the first of 'm/n': loss 0.2\n")
    assert run(0.2).endswith(f"against {ids[0]}: lr 0.1 -> 0.2 => loss 0.2 -> 0.4 (+100.0%)\n")
    assert " failed in " in run(0.3, fails=True)
    assert run(0.2).endswith(f"against {ids[1]}: nothing changed => loss 0.4 (same)\n")  # not the failed one
    shutil.rmtree(folders[-1])
    assert "the first of" in run(0.2)  # that run is gone
    assert run(0.1, quiet=True) == ""
    monkeypatch.setenv("LUXMETER_QUIET", "1")
    assert run(0.1) == ""
