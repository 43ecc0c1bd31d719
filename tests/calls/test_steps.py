"""Training steps: found and split in made-up events with known times, and in real loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.calls.kinds import OUTSIDE
from luxmeter.calls.outside import find_outside
from luxmeter.calls.reader import Recording, set_own_work_apart
from luxmeter.calls.records import (
    EVENT_DTYPE,
    INSIDE,
    OWN,
    SECTION,
    SPANNED,
    STEP,
    CallableNames,
    ProcessRecord,
    SiteNames,
)
from luxmeter.calls.steps import CALLED, OPTIMIZERS, evenly, find_steps, split_of
from luxmeter.errors import UsageError

ONE_CORE = "what is traced runs on both cores; the rest are made-up events"

CALLABLES = (
    CallableNames("(luxmeter)"),
    CallableNames("DataLoader.__next__", "next(DataLoader)"),
    CallableNames("torch.nn.Linear", path="Net.a"),
    CallableNames("Tensor.backward"),
    CallableNames("torch.optim.Adam.step", boundary=True),
    CallableNames("torch.add"),
    CallableNames("train", kind=SECTION),
    CallableNames(STEP, kind=SECTION),
)
NEXT, LINEAR, BACKWARD, ADAM, ADD, TRAIN, MARK = range(1, 8)
SITES = (None, SiteNames("a.py", "f", 1), SiteNames("a.py", "f", 2))


def recording(*rows: tuple[int, int, int] | tuple[int, int, int, dict[str, Any]]) -> Recording:
    """(callable, start, duration, more) as they end."""
    columns: dict[str, Any] = {n: np.zeros(len(rows), EVENT_DTYPE[n]) for n in EVENT_DTYPE.names or ()}
    columns["process"] = np.zeros(len(rows), np.uint32)
    for i, (what, start, duration, *more) in enumerate(rows):
        given = {"callable": what, "start_ns": start, "duration_ns": duration, **(more[0] if more else {})}
        for name, value in given.items():
            columns[name][i] = value
    set_own_work_apart(columns)
    processes = tuple(ProcessRecord(n, 1 + n, {}, {}, {0: "MainThread"}) for n in range(2))
    return Recording(columns, (), CALLABLES, (None,), processes, SITES)


def loop(steps: int, *, length: int = 1000) -> list[Any]:
    """Each: 100 for data, 200 forward, 300 backward, 150 of the optimizer, and the rest outside."""
    rows: list[Any] = []
    for n in range(steps):
        at = n * length
        rows += [(NEXT, at, 100), (LINEAR, at + 120, 200), (BACKWARD, at + 340, 300), (ADAM, at + 660, 150)]
    return rows


def test_a_step_splits_into_its_parts() -> None:
    found = find_steps(recording(*loop(4)))
    assert found.by == OPTIMIZERS and [s.number for s in found] == [2, 3, 4]
    for step in found:
        assert step.total_ns == 1000 and step.calls == 4
        assert (step.data_ns, step.forward_ns, step.backward_ns, step.optimizer_ns) == (100, 200, 300, 150)
        assert step.outside_ns == 250 and sum(step.kinds_ns) == step.total_ns
    split = split_of(recording(*loop(4)), found.median)
    assert split is not None and split.total_ns == 1000 and sum(ns for _, ns in split.parts) == 1000


def test_what_the_optimizer_calls_is_the_optimizers() -> None:
    rows = loop(2)
    rows.insert(7, (ADD, 1700, 50, {"depth": 1, "flags": INSIDE}))
    rows[8] = (ADAM, 1660, 150, {"child_ns": 50})
    (step,) = find_steps(recording(*rows))
    assert (step.optimizer_ns, step.forward_ns) == (150, 200)


def test_the_programs_own_word_goes_before_the_optimizer() -> None:
    marks = [(MARK, 950 + 1000 * n, 0, {"flags": OWN | SPANNED}) for n in range(3)]
    found = find_steps(recording(*loop(3), *marks))
    assert found.by == CALLED
    assert [(s.start_ns, s.end_ns) for s in found] == [(950, 1950), (1950, 2950)]


def test_sections_can_be_the_steps() -> None:
    sections = [(TRAIN, 1000 * n, 900, {"flags": SPANNED}) for n in range(3)]
    found = find_steps(recording(*loop(3), *sections), by="train")
    assert [(s.number, s.total_ns, s.outside_ns) for s in found] == [
        (1, 900, 150),
        (2, 900, 150),
        (3, 900, 150),
    ]
    with pytest.raises(UsageError, match="train"):
        find_steps(recording(*loop(3), *sections), by="trian")


def test_two_optimizers_in_turns_make_one_step() -> None:
    """As in a GAN: told apart by the lines that call them."""
    rows: list[Any] = []
    for n in range(4):
        rows += [(ADAM, 1000 * n, 100, {"site": 1}), (ADAM, 1000 * n + 500, 100, {"site": 2})]
    found = find_steps(recording(*rows))
    assert [(s.start_ns, s.total_ns, s.optimizer_ns) for s in found] == [
        (600 + 1000 * n, 1000, 200) for n in range(3)
    ]


def test_sampled_steps_begin_with_their_first_call() -> None:
    rows = [row for n, row in enumerate(loop(9)) if n // 4 % 4 == 0]  # every fourth step
    found = find_steps(recording(*rows), sampled=True)
    assert [s.total_ns for s in found] == [810, 810]


def test_the_slowest_and_the_drift() -> None:
    rng = np.random.default_rng(0)
    rows: list[Any] = []
    at = 0
    for n in range(80):
        length = int((1_000_000 if n < 40 else 1_300_000) * rng.normal(1, 0.01))
        rows += [(LINEAR, at, length // 2), (ADAM, at + length - 1000, 1000)]
        at += length * (10 if n == 17 else 1)
    found = find_steps(recording(*rows))
    assert found.slowest(1)[0].number == 19 and found.drift is not None and found.drift.call == "higher"
    assert any("slower" in line for line in found.lines())
    assert find_steps(recording(*loop(5))).drift is None


def test_no_step_is_no_error() -> None:
    found = find_steps(recording((ADD, 0, 10)))
    assert len(found) == 0 and found.median is None and "no step" in found.text() and not found.slowest()


def bare(t: Any) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(12, 4)), batch_size=2)
    for (x,) in data:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def with_scheduler(t: Any) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()


def accumulated(t: Any) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(12):
        model(torch.ones(2, 4)).sum().backward()
        if n % 2:
            optimizer.step()
            optimizer.zero_grad()


def with_closure(t: Any) -> None:
    """As Lightning trains, and as LBFGS has to be: all of a step happens in the optimizer's."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        return loss

    for n in range(6):
        _ = optimizer.step(closure) if n % 2 else optimizer.step(closure=closure)


def said(t: Any) -> None:
    model = nn.Linear(4, 2)
    for _ in range(6):
        model(torch.ones(2, 4)).sum().backward()
        t.step()


@pytest.mark.parametrize("train", [bare, with_scheduler, accumulated, with_closure, said])
def test_real_loops(core_name: str, train: Callable[[Any], None]) -> None:
    with lux.trace() as t:
        train(t)
    found = t.steps()
    assert len(found) == 5 and found.by == (CALLED if train is said else OPTIMIZERS)
    assert all(s.forward_ns > 0 and s.backward_ns > 0 for s in found)
    assert all((s.optimizer_ns > 0) == (train is not said) for s in found)
    assert all((s.data_ns > 0) == (train is bare) for s in found)
    assert all(sum(s.kinds_ns) == s.total_ns for s in found)
    # The mark of a step is the recorder's own: in no table, tree or count.
    assert not any(STEP in row.name for by in ("api", "section") for row in t.table(by))
    assert STEP not in str(t.tree())


def test_a_scaler_steps_its_optimizer(core_name: str) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with lux.trace() as t:
        for _ in range(6):
            scaler.scale(model(torch.ones(2, 4)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert len(t.steps()) == 5


def test_a_slice_of_them_and_what_machines_read() -> None:
    found = find_steps(recording(*loop(5)))
    assert [s.number for s in found[1:3]] == [3, 4] == [s.number for s in found[-3:-1]]
    step = found[0]
    assert step.to_dict() == {
        "step": 2, "start_ns": step.start_ns, "total_ns": 1000, "data_ns": 100, "forward_ns": 200, "backward_ns": 300,
        "optimizer_ns": 150, "communication_ns": 0, "recording_ns": 0, "outside_ns": 250, "calls": 4,
    }  # fmt: skip
    assert step.communication_ns == 0
    shown = found._repr_html_()
    assert "4 steps by" in shown and shown.count("<tr") == 1 + len(found)


def test_of_many_values_some_are_taken_evenly() -> None:
    values = np.arange(1001)
    assert evenly(values, 5).tolist() == [0, 250, 500, 750, 1000]
    assert evenly(values, 1001) is values


def test_the_whole_of_a_trace_without_steps_or_calls() -> None:
    made = recording((ADD, 0, 100), (ADD, 150, 50))
    main = find_outside(made, most=1).main
    split = split_of(made, None, main)
    assert main is not None and split is not None and split.total_ns == main.wall_ns >= 200
    assert dict(split.parts)[OUTSIDE] == main.outside_ns == main.wall_ns - 150
    assert split_of(recording(), None, find_outside(recording(), most=1).main) is None


def test_totals_tell_nothing_of_where_a_stretch_went(core_name: str) -> None:
    with lux.trace(totals=True) as t:
        torch.ones(1)
    assert split_of(t.result.recording, None) is None
