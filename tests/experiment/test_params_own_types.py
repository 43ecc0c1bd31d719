"""Files of parameters: read by the name they were written with, our own values among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from luxmeter import BaseParams, Experiment, Params
from luxmeter.errors import UsageError

S = BaseParams.SCHE
OWN: list[Any] = [
    S.Cos(0.1, 0.0, 0, 100), S.Linear(0, 1, 0, 10), S.Log(0, 1, 0, 10), S.Exp(0, 1, 0, 10), S.Power(1.0, 10, 0.5),
    S.Const(0.5), S.PeriodCos(0, 1, 0, 10), S.HalfPeriodCos(0, 1, 0, 10),
    S.List([S.Linear(0, 1, 0, 10), S.Cos(1, 0, 10, 100)]), [S.Cos(0, 1, 0, 2), {"deep": S.Const(1.0)}],
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["p", "p.json", "p.params", "p.yaml", "p.toml", "p.JSON"])
def test_from_json_reads_what_to_json_wrote(name: str) -> None:
    p = BaseParams(a=1, b={"c": [1, 2]}, s=S.Cos(0, 1, 0, 10))
    p.to_json(name)
    assert BaseParams().from_json(name) == p == BaseParams.from_json(name)


@pytest.mark.parametrize("suffix", ["yaml", "yml", "toml", "json"])
@pytest.mark.parametrize("value", OWN, ids=lambda v: type(v).__name__)
def test_our_own_values_come_back(suffix: str, value: Any) -> None:
    p = BaseParams(v=value, inner={"v": value})
    p.to_file(f"p.{suffix}")
    again = BaseParams().from_file(f"p.{suffix}")
    assert again == p and again.v == value and type(again.inner.v) is type(value)
    Path(f"p.{suffix}").rename("bare")
    assert getattr(BaseParams(), f"from_{suffix.replace('yml', 'yaml')}")("bare") == p


@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_an_optimizer_can_be_built_from_a_file(suffix: str) -> None:
    p = Params(lr=0.1)
    p.create_optim("SGD", lr=0.25, momentum=0.5)
    p.to_file(f"p.{suffix}")
    again = Params().from_file(f"p.{suffix}")
    assert again.optim == p.optim
    built = again.optim.build([torch.nn.Parameter(torch.ones(1))])
    assert isinstance(built, torch.optim.SGD) and built.param_groups[0]["lr"] == 0.25
    held = Params()
    held.create_optim("Adam", lr=1.0)
    assert held.from_file(f"p.{suffix}").optim.name == "SGD" and held.optim.lr == 0.25


def test_what_only_looks_like_our_mark_stays_what_it_is() -> None:
    held = {"$type": "CosSchedule", "$$type": 2, "start": 0}
    BaseParams(d=held, other={"$type": "SomebodyElse"}).to_file("p.json")
    assert BaseParams().from_file("p.json").to_dict() == {"d": held, "other": {"$type": "SomebodyElse"}}


def test_a_type_of_somebody_else_and_a_damaged_one() -> None:
    Path("p.yaml").write_text("a: {$type: os.system, x: 1}\n")
    assert BaseParams().from_file("p.yaml").to_dict() == {"a": {"$type": "os.system", "x": 1}}
    for text in ("a: {$type: CosSchedule, wrong: 1}", "a: {$type: CosSchedule, left: 3, right: 1}"):
        Path("p.yaml").write_text(text + "\n")
        p = BaseParams(a=5)
        with pytest.raises(UsageError, match="a is no CosSchedule"):
            p.from_file("p.yaml")
        assert p.a == 5


def test_the_parameters_a_run_keeps_can_be_read_again(tmp_path: Path) -> None:
    p = BaseParams(s=S.Cos(0, 1, 0, 10), lr=0.1)
    with Experiment("x", p, lab=tmp_path / "lab", quiet=True, code=False) as exp:
        pass
    assert BaseParams().from_json(exp.folder / "params.json") == p


def test_neither_kind_is_told_from_the_first() -> None:
    Path("p").write_text("not: [json")
    with pytest.raises(UsageError) as caught:
        BaseParams().from_json("p")
    assert caught.value.slug == "params-file-damaged"
    with pytest.raises(UsageError) as caught:
        BaseParams().from_file("p")
    assert caught.value.slug == "params-file-kind"
