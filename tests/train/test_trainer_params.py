"""Trainers compose: each class of a chain declares a group of parameters of its own, and a clash is an error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import luxmeter as lux
from luxmeter.errors import UsageError


class Mixup(lux.Trainer):
    class Params(lux.BaseParams):
        alpha: float = 0.2

    def mix(self) -> float:
        return float(self.params.mixup.alpha)


class Distill(lux.Trainer):
    group = "teacher"

    class Params(lux.BaseParams):
        temperature: float = 4.0
        alpha: float = 0.9


class Both(Mixup, Distill):
    class Params(lux.BaseParams):
        steps: int = 3


def test_each_class_has_its_own_group() -> None:
    trainer = Both({"lr": 0.1}, quiet=True)
    assert trainer.params.mixup.alpha == 0.2 == trainer.mix()
    assert trainer.params.teacher.to_dict() == {"temperature": 4.0, "alpha": 0.9}
    assert trainer.params.both.steps == 3 and trainer.params.lr == 0.1
    assert not hasattr(Mixup({}, quiet=True).params, "teacher")


def test_groups_are_set_from_outside_and_checked() -> None:
    params = lux.Params()
    params.from_args(["--mixup.alpha=0.5", "--teacher.temperature", "2", "--both.steps=7"])
    trainer = Both(params, quiet=True)
    assert trainer.params is params and params.mixup.alpha == 0.5
    assert (
        params.teacher.temperature == 2.0
        and type(params.teacher.temperature) is float
        and params.both.steps == 7
    )
    assert Both(params, quiet=True).params.mixup.alpha == 0.5  # the same parameters for another trainer
    with pytest.raises(UsageError, match="alpha"):
        Both({"mixup": {"alpha": "much"}})
    with pytest.raises(UsageError, match="Did you mean 'alpha'"):
        Both({"mixup": {"alpah": 0.1}})


def test_groups_are_in_the_run() -> None:
    class Small(Both):
        def initial_trainer(self, params: Any) -> None:
            self.regist_databundler(train=[1])

        def train_batch(self, *given: Any) -> Any:
            return {"alpha": self.mix()}

    with Small({"epoch": 1, "mixup": {"alpha": 0.75}}, quiet=True, checkpoint=False) as trainer:
        trainer.train()
    run = trainer.run
    assert run.params.mixup.alpha == 0.75 and run.params["teacher.temperature"] == 4.0
    assert run.metric("train/alpha").values.tolist() == [0.75]


def test_two_trainers_that_claim_one_parameter() -> None:
    class Other(lux.Trainer):
        group = "mixup"

        class Params(lux.BaseParams):
            beta: float = 1.0

    class Clash(Mixup, Other):
        pass

    with pytest.raises(UsageError) as caught:
        Clash({})
    assert "Other and Mixup both claim the parameters 'mixup'." in str(caught.value)
    assert 'Give one of them another group: `group = "..."` in its class.' in str(caught.value)


def test_a_slip_in_a_group_names_the_class() -> None:
    with pytest.raises(UsageError, match=r"alhpa \(from Mixup\.Params\) is not a parameter, but alpha is"):
        Both({"mixup": {"alhpa": 1.0}})


def test_a_parameter_where_a_group_should_be() -> None:
    with pytest.raises(
        UsageError, match=r"The parameter 'mixup' is 0\.3, but Mixup keeps its own parameters under that name"
    ):
        Both({"mixup": 0.3})

    class Epoch(lux.Trainer):
        class Params(lux.BaseParams):
            x: int = 1

    with pytest.raises(UsageError, match="The parameter 'epoch' is 10, but Epoch keeps"):
        Epoch()

    class NoClass(lux.Trainer):
        Params = {"alpha": 1}  # type: ignore[assignment]

    with pytest.raises(UsageError, match=r"NoClass\.Params is \{'alpha': 1\}.*Make it a class"):
        NoClass()


def test_the_page_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "trainer.md").read_text(encoding="utf-8")
    [(code, shown)] = re.findall(r"```python\n([^`]*)```\n```text\n([^`]*)```", page)
    exec(code, {"__name__": "page"})
    assert capsys.readouterr().out == shown
