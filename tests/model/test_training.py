"""A cost is a plain value; the training step is counted by an explicit call, and gives what counting at once gives."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import weakref

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.model import compare_models, records, training
from luxmeter.model.records import ModelCost


def net() -> nn.Module:
    inner = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 3)])

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = inner
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[1](self.norm(self.parts[0](x)))

    return Net()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A word for every training step that is run."""
    seen: list[bool] = []
    real = training.run

    def counted(*args, **options):
        seen.append(options["training"])
        return real(*args, **options)

    monkeypatch.setattr(training, "run", counted)
    return seen


def plain(cost: ModelCost) -> dict:
    return {name: value for name, value in cost.to_dict().items() if name != "seconds"}


def test_what_forward_tells_needs_no_training_step(steps: list[bool]) -> None:
    cost = lux.analyze(net(), input_size=(4, 6))
    assert cost.params == 7 * 6 + 7 * 3 + 12
    assert cost.macs == 4 * (36 + 18)
    assert cost.weight_bytes and cost.peak_bytes and cost.activation_bytes and cost.memory.gradient_bytes
    assert [row.macs for row in cost.modules] == [216, 216, 144, 72, 0]
    assert steps == []


@pytest.mark.parametrize(
    "look",
    [
        lambda cost: cost.backward_flops,
        lambda cost: cost.unknown_ops,
        lambda cost: cost.operators,
        lambda cost: cost.notes,
        lambda cost: cost.memory.training_peak_bytes,
        lambda cost: cost.modules[2].backward_macs,
        lambda cost: cost.to_json(),
        lambda cost: cost.to_csv(),
        lambda cost: cost.to_html(),
        lambda cost: compare_models([cost, cost]),
        str,
        repr,
        copy.deepcopy,
        pickle.dumps,
        hash,
    ],
)
def test_looking_changes_nothing(look, steps: list[bool]) -> None:
    cost = lux.analyze(net(), input_size=(4, 6))
    before = dict(vars(cost))
    look(cost)
    assert steps == [] and vars(cost) == before
    assert cost.backward_flops is None and cost.memory.training_peak_bytes is None


def test_counted_later_is_counted_at_once(steps: list[bool]) -> None:
    now = lux.analyze(net(), input_size=(4, 6), backward=True)
    cost = lux.analyze(net(), input_size=(4, 6))
    whole = cost.with_training()
    assert steps == [True, True]
    assert plain(whole) == plain(now) and whole == now != cost
    assert whole.with_training() is whole and now.with_training() is now
    assert steps == [True, True]
    assert whole.backward_macs == 2 * 216 - 4 * 36  # the input has no gradient
    assert whole.module("parts").backward_macs == whole.backward_macs
    assert plain(pickle.loads(pickle.dumps(whole))) == plain(now)
    assert cost.backward_macs is None  # the first one stays as it was


def test_every_record_is_a_plain_frozen_value() -> None:
    cost = lux.analyze(net(), input_size=(4, 6), backward=True)
    kinds = [kind for kind in vars(records).values() if dataclasses.is_dataclass(kind)]
    assert {type(cost), type(cost.memory), type(cost.modules[0])} <= set(kinds)
    for kind in kinds:
        assert kind.__dataclass_params__.frozen and not hasattr(kind, "__getattr__")
    for record in (cost, cost.memory, *cost.modules, *cost.operators):
        assert vars(record).keys() == {field.name for field in dataclasses.fields(record)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        cost.macs = 1


def test_never_is_never(steps: list[bool]) -> None:
    cost = lux.analyze(net(), input_size=(4, 6), backward=False)
    assert cost.with_training() is cost
    assert cost.backward_flops is None and cost.memory.training_peak_bytes is None
    assert {row.backward_flops for row in cost.modules} == {0}
    assert json.loads(cost.to_json())["backward_flops"] is None
    assert steps == []


def test_a_report_says_what_is_not_counted_yet() -> None:
    cost = lux.analyze(net(), input_size=(4, 6))
    assert "with_training()" in str(cost)
    assert "with_training()" not in str(cost.with_training())
    assert "with_training()" not in str(lux.analyze(net(), input_size=(4, 6), backward=False))


def test_the_model_is_let_go_by_whole_costs_and_by_copies() -> None:
    model = net()
    cost = lux.analyze(model, input_size=(4, 6))
    kept = [cost.with_training(), copy.deepcopy(cost), lux.analyze(model, input_size=(4, 6), backward=False)]
    gone = weakref.ref(model)
    del model
    assert gone() is not None
    del cost
    gc.collect()
    assert gone() is None and kept[1].macs == kept[0].macs


def test_a_model_that_was_changed_meanwhile_is_not_counted() -> None:
    model = net()
    cost = lux.analyze(model, input_size=(4, 6))
    model.parts[0].requires_grad_(False)
    whole = cost.with_training()
    assert whole.backward_flops is None
    assert "the model was changed" in " ".join(whole.notes)
    assert whole.macs == 216


def test_notes_of_both_passes_are_kept() -> None:
    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() if x.sum().item() > 0 else x

    whole = lux.analyze(Looks(), torch.ones(2, 3)).with_training()
    assert [note.partition(":")[0] for note in whole.notes] == ["ran for real", "backward is not counted"]


def test_latency_and_training_come_together() -> None:
    cost = lux.analyze(net(), input_size=(4, 6), latency=True)
    whole = cost.with_training()
    assert cost.backward_macs is None and whole.backward_macs and whole.latency == cost.latency
    assert [row.time_ns for row in whole.modules] == [row.time_ns for row in cost.modules]


def test_counting_in_inference_mode_counts_the_same() -> None:
    cost = lux.analyze(net(), input_size=(4, 6))
    with torch.inference_mode():
        assert cost.with_training().backward_macs == 2 * 216 - 4 * 36


def test_a_loss_is_asked_at_once() -> None:
    def wrong(_: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("no loss here")

    cost = lux.analyze(net(), input_size=(4, 6), loss=wrong)
    assert "no loss here" in cost.notes[0]
