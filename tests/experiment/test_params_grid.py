"""Searches over parameters, and schedules."""

from __future__ import annotations

import math

import pytest
import torch

import luxmeter as lux
from luxmeter import BaseParams, Params
from luxmeter.errors import UsageError
from luxmeter.experiment.params.schedules import (
    ConstSchedule,
    CosSchedule,
    ExpSchedule,
    HalfPeriodCosSchedule,
    LinearSchedule,
    LogSchedule,
    PeriodCosSchedule,
    PowerDecay,
    ScheduleList,
)


def test_grid_search_yields_independent_copies_with_bounds() -> None:
    p = BaseParams(optim={"lr": 0.1}, seed=0)
    p.arange("optim.lr", 0.1, 0, 1)
    found = list(p.grid_search("optim.lr", [0.2, 0.3]))
    assert [v.optim.lr for v in found] == [0.2, 0.3]
    found[0].seed = 9
    assert found[1].seed == p.seed == 0
    assert p.optim.lr == 0.1
    for variant in found:
        with pytest.raises(UsageError):
            variant.optim.lr = 2
    with pytest.raises(UsageError):
        list(p.grid_search("optim.lr", [0.5, 5]))


def test_grid_over_several_names() -> None:
    p = BaseParams(a=0, b=0)
    found = [(v.a, v.b) for v in p.grid_search({"a": [1, 2], "b": ["xy", "z"]})]
    assert found == [(1, "xy"), (1, "z"), (2, "xy"), (2, "z")]
    nested = [v.hash() for a in p.grid_search("a", [1, 2]) for v in a.grid_search("b", range(3))]
    assert len(set(nested)) == 6


def test_grid_of_a_mistyped_name_or_no_list_is_refused() -> None:
    p = Params(lr=0.1)
    with pytest.raises(UsageError, match="Did you mean 'epoch'"):
        list(p.grid_search("epochs", [1]))
    for wrong in ("0.1", 3):
        with pytest.raises(UsageError):
            list(p.grid_search("lr", wrong))  # type: ignore[arg-type]
    assert [v.seed for v in p.grid_search("seed", [1, 2])] == [1, 2]
    assert "seed" not in p


def test_grid_from_locked_parameters() -> None:
    assert [v.lr for v in Params(lr=0.1).lock().grid_search("lr", [1, 2])] == [1, 2]


def test_grid_range() -> None:
    p = BaseParams(lr=0.1)
    assert [v.lr for v in p.grid_range("lr", 0, 1, 5)] == [0, 0.25, 0.5, 0.75, 1]
    assert [v.lr for v in p.grid_range("lr", 0, 8, 3)] == [0, 4, 8]
    logs = [v.lr for v in p.grid_range("lr", 1e-4, 1e-1, 4, log=True)]
    assert logs == [1e-4, 1e-3, 1e-2, 1e-1]
    assert [v.lr for v in p.grid_range("lr", 3, 9, 1)] == [3]
    copies = list(p.grid_range(3))
    assert [v.lr for v in copies] == [0.1] * 3
    copies[0].lr = 1
    assert copies[1].lr == 0.1
    for wrong in ({"count": 0}, {"start": 0, "log": True}):
        with pytest.raises(UsageError):
            list(p.grid_range("lr", **{"start": 1, "stop": 2, "count": 3, **wrong}))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [CosSchedule, LinearSchedule, ExpSchedule, LogSchedule])
def test_schedules_meet_their_ends_and_go_one_way(kind: type[CosSchedule]) -> None:
    schedule = kind(start=0.1, end=0.7, left=10, right=50)
    values = [schedule(step) for step in range(61)]
    assert values[:11] == [0.1] * 11
    assert values[50:] == [0.7] * 11
    assert values == sorted(values)
    down = kind(0.7, 0.1, 10, 50)
    assert [down(s) for s in range(61)] == pytest.approx([0.8 - v for v in values])
    with pytest.raises(UsageError):
        kind(0, 1, 5, 5)


def test_shapes_of_schedules() -> None:
    assert CosSchedule(0, 1, 0, 100)(50) == pytest.approx(0.5)
    assert LinearSchedule(0, 1, 0, 100)(25) == pytest.approx(0.25)
    assert ExpSchedule(0, 1, 0, 100)(50) < 0.2
    assert LogSchedule(0, 1, 0, 100)(50) > 0.8
    assert ConstSchedule(0.3)(5) == 0.3
    assert [PowerDecay(8, 10, 0.5)(s) for s in (0, 9, 10, 25)] == [8, 8, 4, 2]


def test_periodic_schedules() -> None:
    whole = PeriodCosSchedule(1, 0, 0, 10)
    assert [whole(s) for s in (0, 5, 10, 15, 20)] == pytest.approx([1, 0, 1, 0, 1])
    half = HalfPeriodCosSchedule(1, 0, 0, 10)
    assert half(0) == half(10) == half(20) == 1
    assert half(9.99) == pytest.approx(0, abs=1e-4)
    assert half(5) == pytest.approx(0.5)


def test_one_schedule_after_another() -> None:
    chain = ScheduleList([CosSchedule(1, 0, 10, 20), LinearSchedule(0, 1, 0, 10)])
    assert [chain(s) for s in (-1, 0, 5, 10, 15, 20, 99)] == pytest.approx([0, 0, 0.5, 1, 0.5, 0, 0])
    assert (chain.left, chain.right) == (0, 20)
    with pytest.raises(UsageError):
        ScheduleList([])


def test_schedules_move_optimizers() -> None:
    groups = type("Optimizer", (), {"param_groups": [{"lr": 0.2}, {"lr": 0.4}]})()
    schedule = Params.SCHE.Linear(1, 0, 0, 10)
    schedule.scale(groups, 5)
    schedule.scale(groups, 5)
    assert [g["lr"] for g in groups.param_groups] == pytest.approx([0.1, 0.2])
    assert schedule.apply(groups, 9) == pytest.approx(0.1)
    assert [g["lr"] for g in groups.param_groups] == pytest.approx([0.1, 0.1])


def test_schedules_are_values() -> None:
    assert CosSchedule(0, 1, 0, 5) == CosSchedule(0, 1, 0, 5)
    assert CosSchedule(0, 1, 0, 5) != LinearSchedule(0, 1, 0, 5)
    assert repr(LinearSchedule(0, 1, 0, 5)) == "LinearSchedule(start=0, end=1, left=0, right=5)"
    assert not math.isnan(CosSchedule()(0.5))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0), CosSchedule(1, 0, 0, 10)
    )
    assert scheduler.get_last_lr() == [2.0]


def test_schedules_by_the_names_of_thexp() -> None:
    S = lux.Params().SCHE
    assert S.PeriodHalfCos is S.HalfPeriodCos
    line, triangle = S.PeriodLinear(0, 1, 0, 10), S.PeriodTriangle(0, 1, 0, 10)
    assert [line(at) for at in (0, 5, 10, 15)] == [0, 0.5, 0, 0.5]
    assert [triangle(at) for at in (0, 2.5, 5, 7.5, 10)] == [0, 0.5, 1, 0.5, 0]
