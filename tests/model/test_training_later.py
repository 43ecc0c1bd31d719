"""The training step is counted when it is first looked at, once, and gives what counting at once gives."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.model import training
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
        str,
        repr,
        copy.deepcopy,
        pickle.dumps,
        hash,
    ],
)
def test_any_first_look_counts_it_once(look, steps: list[bool]) -> None:
    now = lux.analyze(net(), input_size=(4, 6), backward=True)
    steps.clear()
    cost = lux.analyze(net(), input_size=(4, 6))
    look(cost)
    assert steps == [True]
    assert plain(cost) == plain(now)
    assert cost == now
    assert steps == [True]
    assert cost.backward_macs == 2 * 216 - 4 * 36  # the input has no gradient
    assert cost.module("parts").backward_macs == cost.backward_macs
    assert plain(pickle.loads(pickle.dumps(cost))) == plain(now)


def test_never_is_never(steps: list[bool]) -> None:
    cost = lux.analyze(net(), input_size=(4, 6), backward=False)
    assert cost.backward_flops is None and cost.memory.training_peak_bytes is None
    assert {row.backward_flops for row in cost.modules} == {0}
    assert json.loads(cost.to_json())["backward_flops"] is None
    assert steps == []


def test_the_model_is_let_go_after_the_first_look() -> None:
    model = net()
    cost = lux.analyze(model, input_size=(4, 6))
    gone = weakref.ref(model)
    del model
    assert cost.backward_flops
    gc.collect()
    assert gone() is None


def test_a_model_that_was_changed_meanwhile_is_not_counted() -> None:
    model = net()
    cost = lux.analyze(model, input_size=(4, 6))
    model.parts[0].requires_grad_(False)
    assert cost.backward_flops is None
    assert "the model was changed" in " ".join(cost.notes)
    assert cost.macs == 216


def test_looking_in_inference_mode_counts_the_same() -> None:
    cost = lux.analyze(net(), input_size=(4, 6))
    with torch.inference_mode():
        assert cost.backward_macs == 2 * 216 - 4 * 36


def test_no_such_attribute() -> None:
    cost = lux.analyze(net(), input_size=(4, 6))
    with pytest.raises(AttributeError, match="backward_flopz"):
        cost.backward_flopz
    assert not hasattr(cost, "_repr_svg_")


def test_a_loss_is_asked_at_once() -> None:
    def wrong(_: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("no loss here")

    cost = lux.analyze(net(), input_size=(4, 6), loss=wrong)
    assert "no loss here" in cost.__dict__["notes"][0]
