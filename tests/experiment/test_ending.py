"""The line at the end: what changed against the run before, and what that did."""

from __future__ import annotations

import shutil

import pytest

import luxmeter as lux
from luxmeter.experiment.ending import Facts, against, duration

BEFORE = Facts(
    "aaaaa-1", {"lr": 0.1, "optim.name": "sgd"}, {"train.py": "1", "model.py": "1"}, "t1", {"torch": "2.12"}, {"loss": 0.4}
)  # fmt: skip


def after(**changed: object) -> Facts:
    return Facts(**{**vars(BEFORE), "id": "bbbbb-2", **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (after(), "against aaaaa: nothing changed => loss 0.4 (same)"),
        (
            after(params={"lr": 0.01, "optim.name": "sgd"}, metrics={"loss": 0.3}),
            "against aaaaa: lr 0.1 -> 0.01 => loss 0.4 -> 0.3 (-25.0%)",
        ),
        (after(params={"lr": 0.1}), "against aaaaa: optim.name sgd -> unset => loss 0.4 (same)"),
        (after(files={"train.py": "2", "new.py": "1"}), "against aaaaa: code train.py, +new.py, -model.py => loss 0.4 (same)"),
        (after(tree="t2"), "against aaaaa: code that was not imported => loss 0.4 (same)"),
        (after(environment={"torch": "2.13"}), "against aaaaa: torch 2.12 -> 2.13 => loss 0.4 (same)"),
        (after(metrics={"acc": 0.5}), "against aaaaa: nothing changed => acc 0.5 (new)"),
        (after(metrics={"loss": 0.400001}), "against aaaaa: nothing changed => loss 0.4 (about the same)"),
        (after(metrics={}), "against aaaaa: nothing changed"),
        (after(metrics={"loss": float("nan")}), "against aaaaa: nothing changed => loss 0.4 -> nan"),
        (
            after(params={**BEFORE.params, **{f"p{i}": i for i in range(6)}}, metrics={}),
            "against aaaaa: p0 unset -> 0, p1 unset -> 1, p2 unset -> 2, p3 unset -> 3 and 2 more",
        ),
    ],
)  # fmt: skip
def test_line(now: Facts, line: str) -> None:
    assert against(BEFORE, now, name="mnist") == line


def test_the_first() -> None:
    assert against(None, BEFORE, name="mnist") == "the first of 'mnist': loss 0.4"


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
