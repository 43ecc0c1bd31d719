"""Which difference plausibly explains another: ranked, with evidence, and honest about chance."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from made_runs import ENVIRONMENT, make_run

from luxmeter.errors import UsageError
from luxmeter.experiment.compare.diff import RunDiff
from luxmeter.experiment.compare.explain import Explanation, diff_runs
from luxmeter.store import Lab, Run
from luxmeter.view.text.run_diff import write_diff

CODE = {"train.py": "import model\nlr = 1\n", "model.py": "size = 1\n"}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.open(tmp_path / "lab")


def run(lab: Lab, acc: float, *, code: dict[str, str] | None = None, **params: Any) -> Run:
    return make_run(lab, params={"lr": 0.1, "seed": 0, **params}, metrics={"acc": [acc]}, code=code or CODE)


def why(a: Run, b: Run, metric: str = "") -> Explanation:
    _, found = diff_runs(a, b, metric=metric)
    assert found is not None
    return found


def test_the_only_difference(lab: Lab) -> None:
    found = why(run(lab, 0.5), run(lab, 0.9, lr=0.01))
    assert [c.what for c in found.candidates] == ["lr 0.1 -> 0.01"]
    assert "the only difference that can plausibly explain it" in found.conclusion
    assert "cannot tell" in found.conclusion and found.chance.p is None  # one run a side is no proof


def test_nothing_but_the_seed(lab: Lab) -> None:
    found = why(run(lab, 0.50), run(lab, 0.52, seed=1))
    assert "Only the seed differs" in found.conclusion and "span 0.02" in found.chance.words


def test_nothing_at_all(lab: Lab) -> None:
    assert "Nothing that is recorded differs" in why(run(lab, 0.50), run(lab, 0.52)).conclusion
    assert "nothing to explain" in why(run(lab, 0.5), run(lab, 0.5, lr=9.0)).conclusion
    assert "not a number" in why(run(lab, 0.5), run(lab, float("nan"), lr=9.0)).conclusion


def test_what_cannot_matter_is_not_blamed(lab: Lab) -> None:
    other = {**CODE, "model.py": "# a comment\nsize   =   1\n"}
    found = why(run(lab, 0.5, log_dir="a"), run(lab, 0.9, log_dir="b", code=other))
    assert "Nothing differs that can plausibly change acc" in found.conclusion
    assert {c.name: c.why for c in found.candidates}["model.py"] == "comments or layout only"


def test_several_things_are_ranked_and_not_told_apart(lab: Lab) -> None:
    packages = {**ENVIRONMENT["packages"], "torch": "2.12.0", "pip": "25.0"}  # type: ignore[dict-item]
    b = make_run(
        lab, params={"lr": 0.01, "seed": 3, "num_workers": 4}, metrics={"acc": [0.9]}, code={**CODE, "model.py": "size = 2\n"},
        environment={**ENVIRONMENT, "packages": packages},
    )  # fmt: skip
    found = why(run(lab, 0.5), b)
    assert [c.name for c in found.candidates] == ["lr", "model.py", "torch", "seed", "num_workers", "pip"]
    assert (
        "cannot tell them apart" in found.conclusion and "beginning with lr 0.1 -> 0.01" in found.conclusion
    )


def test_a_run_that_differs_in_one_of_them_is_evidence(lab: Lab) -> None:
    changed = {**CODE, "model.py": "size = 2\n"}
    a, b = run(lab, 0.50), run(lab, 0.90, lr=0.01, code=changed)
    between = run(lab, 0.88, lr=0.01)
    found = why(a, b)
    assert found.candidates[0].name == "lr" and between.id in found.candidates[0].evidence
    assert "moved by +0.38 of +0.4" in found.conclusion and "explains it best" in found.conclusion


def test_evidence_also_acquits(lab: Lab) -> None:
    a, b = run(lab, 0.50), run(lab, 0.90, lr=0.01, code={**CODE, "model.py": "size = 2\n"})
    run(lab, 0.51, lr=0.01)
    assert [c.name for c in why(a, b).candidates] == ["model.py", "lr"]


def test_repeats_say_whether_it_is_more_than_chance(lab: Lab) -> None:
    low = [run(lab, 0.50 + 0.01 * s, seed=s) for s in range(4)]
    high = [run(lab, 0.80 + 0.01 * s, seed=s, lr=0.01) for s in range(4)]
    near = [run(lab, 0.51 + 0.01 * s, seed=s, lr=0.02) for s in range(4)]
    sure = why(low[0], high[0])
    assert sure.chance.may_be_chance is False and "4 and 4 seeds" in sure.chance.words
    assert "cannot tell" not in sure.conclusion and "lr" in sure.conclusion
    unsure = why(low[0], near[0])
    assert unsure.chance.may_be_chance is True and unsure.conclusion.startswith(
        "The difference may be chance"
    )


def test_one_run_against_repeats(lab: Lab) -> None:
    low = [run(lab, 0.50 + 0.01 * s, seed=s) for s in range(4)]
    inside, outside = run(lab, 0.53, lr=0.01), run(lab, 0.9, lr=0.02)
    assert why(low[0], inside).chance.may_be_chance is True
    assert why(low[0], outside).chance.may_be_chance is False
    assert why(outside, low[0]).chance.may_be_chance is False


def test_everything_that_differs(lab: Lab) -> None:
    a = make_run(
        lab,
        params={"lr": 1, "only": True, "flag": True},
        code=CODE,
        argv=("train.py", "--lr=1"),
        metrics={"m": [1.0]},
    )
    b = make_run(
        lab, params={"lr": 1.0, "flag": 1, "new": (1, 2)}, code={"train.py": "import model\nlr = 2\n", "other.py": ""},
        argv=("train.py",), metrics={"m": [3.0], "n": [1.0]}, environment={**ENVIRONMENT, "variables": {}},
    )  # fmt: skip
    found = RunDiff(a, b)
    assert [(c.name, str(c.a), c.b) for c in found.params][:2] == [
        ("only", "True", found.params[0].b),
        ("flag", "True", 1),
    ]
    assert [c.name for c in found.params] == ["only", "flag", "new"]  # 1 and 1.0 are the same number
    assert [(f.path, f.kind) for f in found.code] == [
        ("model.py", "only in A"), ("other.py", "only in B"), ("train.py", "changed")
    ]  # fmt: skip
    assert "-lr = 1\n+lr = 2" in found.code[2].text and (found.code[2].added, found.code[2].removed) == (1, 1)
    assert [(c.kind, c.name) for c in found.environment] == [("variable", "OMP_NUM_THREADS")]
    assert [(c.name, c.a) for c in found.command] == [("arguments", "--lr=1")]
    m, n = found.metrics
    assert (m.difference, m.relative, n.a, n.difference) == (2.0, 2.0, None, None)


def test_a_metric_nobody_has(lab: Lab) -> None:
    a = run(lab, 0.5)
    with pytest.raises(UsageError, match="'acc'"):
        diff_runs(a, a, metric="ac")


def test_validation_is_looked_at_first(lab: Lab) -> None:
    values = {"train/loss": [1.0], "val/loss": [1.0], "val/acc": [1.0], "system/cpu_percent": [1.0]}
    a, b = make_run(lab, metrics=values), make_run(lab, metrics=values)
    assert why(a, b).metric == "val/acc"
    assert why(a, b, "train/loss").metric == "train/loss"


def test_a_metric_that_differs_is_looked_at_before_one_that_does_not(lab: Lab) -> None:
    nan = float("nan")
    a = make_run(lab, metrics={"val/acc": [1.0], "val/f1": [nan], "train/loss": [0.5], "other": [2.0]})
    b = make_run(lab, metrics={"val/acc": [1.0], "val/f1": [nan], "train/loss": [0.4], "other": [3.0]})
    assert why(a, b).metric == "train/loss" and why(a, b).differs
    assert "nothing to explain" not in why(a, b).conclusion
    for same in ("val/acc", "val/f1"):  # asked for by name
        found = why(a, b, same)
        assert (
            not found.differs
            and found.conclusion == f"{same} is the same in both: there is nothing to explain."
        )
    out = io.StringIO()
    write_diff(*diff_runs(a, b), out)
    assert "why train/loss differs" in out.getvalue()
    again = make_run(lab, metrics={"val/acc": [1.0]})
    out = io.StringIO()
    write_diff(*diff_runs(a, again), out)
    assert "differs" not in out.getvalue() and "val/acc is the same in both" in out.getvalue()
