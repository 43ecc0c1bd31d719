"""What a config can name, and what is made of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.train import (
    CALLBACKS,
    DATASETS,
    EVALUATORS,
    LOSSES,
    MODULES,
    OPTIMIZERS,
    SAMPLERS,
    SCHEDULERS,
    TASKS,
    TRAINERS,
    TRANSFORMS,
    build,
)
from luxmeter.train.registries import config_key_of


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for registry in (MODULES, LOSSES, TRANSFORMS):
        monkeypatch.setattr(registry, "_things", dict(registry._things))
        monkeypatch.setattr(registry, "_offered", None)
    yield


def test_all_of_torch_is_there() -> None:
    optimizers = [n for n in torch.optim.__all__ if n[0].isupper() and n != "Optimizer"]
    assert len(optimizers) > 10
    assert set(optimizers) <= set(OPTIMIZERS) and "Optimizer" not in OPTIMIZERS
    schedulers = [n for n in torch.optim.lr_scheduler.__all__ if n != "LRScheduler"]
    assert set(schedulers) <= set(SCHEDULERS) and "Cos" in SCHEDULERS
    modules = {name for name in nn.modules.__all__ if issubclass(getattr(nn, name), nn.Module)}
    assert modules - {"Module"} <= set(MODULES) and len(MODULES) > 100
    assert {"CrossEntropyLoss", "MSELoss", "CTCLoss"} <= set(LOSSES) <= modules | {"NLLLoss2d"}
    assert "Linear" not in LOSSES
    assert {"RandomSampler", "WeightedRandomSampler"} <= set(SAMPLERS) and "TensorDataset" in DATASETS


def test_our_own_are_there() -> None:
    assert TASKS.get("TaskFlow") is TASKS.get("Task") is lux.TaskFlow
    assert {"Trainer", "TaskTrainer"} == set(TRAINERS)
    assert {"ModelCheckpoint", "LRSchedule"} <= set(CALLBACKS)
    assert {"Accuracy", "Confusion", "MeanLoss"} == set(EVALUATORS)


def test_decorators() -> None:
    @MODULES.register
    class Plain(nn.Linear):
        pass

    @MODULES.register()
    class Called(nn.Linear):
        pass

    @MODULES.register("other-name")
    class Named(nn.Linear):
        pass

    assert isinstance(Plain, type) and MODULES.get("Plain") is Plain
    assert MODULES.get("Called") is Called and MODULES.get("other-name") is Named
    with pytest.raises(UsageError, match=r"'Linear' is taken by <class 'torch.nn"):
        MODULES.register("Linear", Plain)
    MODULES.register("Linear", Plain, replace=True)
    assert MODULES.get("Linear") is Plain
    with pytest.raises(UsageError, match="no name of its own"):
        MODULES.register(object())


def test_a_missing_name_lists_near_ones_and_where_it_looked() -> None:
    TRANSFORMS.register("flip", lambda sample: sample)
    with pytest.raises(UsageError) as caught:
        OPTIMIZERS.get("sgd")
    assert "no optimizer called 'sgd'" in str(caught.value)
    assert "(looked at 0 registered, torch.optim, the entry points luxmeter.optimizers)" in str(caught.value)
    assert "Did you mean 'SGD' or 'ASGD'?" in str(caught.value)
    with pytest.raises(UsageError, match="Known: flip"):
        TRANSFORMS.get("zzz")
    with pytest.raises(UsageError, match=r"Known: AdaptiveAvgPool1d, .* and \d+ more\."):
        MODULES.get("zzzzz")


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "lux_modules_for_test-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lux-modules-for-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[luxmeter.modules]\nMirror = lux_modules_for_test:Mirror\n")
    (info.parent / "lux_modules_for_test.py").write_text(
        "from torch import nn\nclass Mirror(nn.Module):\n    def forward(self, x):\n        return x.flip(-1)\n"
    )
    monkeypatch.syspath_prepend(str(info.parent))
    assert build("Mirror", MODULES)(torch.arange(3)).tolist() == [2, 1, 0]
    sys.modules.pop("lux_modules_for_test")


def test_build() -> None:
    made = build({"type": "Linear", "in_features": 2, "out_features": 3}, MODULES)
    assert isinstance(made, nn.Linear) and made.weight.shape == (3, 2)
    assert build(made, MODULES) is made
    assert isinstance(build("ReLU", MODULES), nn.ReLU)
    assert isinstance(build({"type": nn.ReLU}, MODULES), nn.ReLU)
    assert build({"type": "fractions:Fraction", "numerator": 3}, MODULES) == 3
    params = lux.Params({"net": {"type": "Linear", "in_features": 2, "out_features": 3}})
    assert isinstance(build(params.net, MODULES), nn.Linear)


def test_what_is_inside_is_built_first() -> None:
    linear = {"type": "Linear", "in_features": 2, "out_features": 2}
    made = build({"type": "Sequential", "args": [linear, {"type": "ReLU"}]}, MODULES)
    assert [type(one) for one in made] == [nn.Linear, nn.ReLU]
    layer = build({"type": "ModuleDict", "modules": {"a": linear}}, MODULES)
    assert isinstance(layer["a"], nn.Linear)

    def takes(transform: Any, head_cfg: Any, activation: type) -> tuple[Any, Any, type]:
        return transform, head_cfg, activation

    class Shout:
        def __init__(self, loud: str) -> None:
            self.loud = loud

    TRANSFORMS.register("shout", Shout)
    cfg = {
        "type": takes,
        "transform": {"type": "shout", "loud": "hey"},
        "head_cfg": linear,
        "activation": nn.ReLU,
    }
    transform, *others = build(cfg, MODULES)
    assert transform.loud == "hey" and others == [linear, nn.ReLU]


def test_a_function_makes_a_thing_or_is_one() -> None:
    def scaled(logits: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return logits.sum() * factor

    x = torch.ones(3)
    assert build({"type": scaled, "logits": x}, MODULES) == 6
    assert build(scaled, LOSSES) is build({"type": scaled}, LOSSES) is scaled
    assert build({"type": scaled, "factor": 3.0}, LOSSES)(x) == 9
    smooth = build({"type": "torch.nn.functional:cross_entropy", "label_smoothing": 0.1}, LOSSES)
    logits, labels = torch.randn(2, 3), torch.tensor([0, 2])
    assert torch.equal(smooth(logits, labels), nn.CrossEntropyLoss(label_smoothing=0.1)(logits, labels))
    with pytest.raises(UsageError, match=r"scaled takes no argument 'facter'. Did you mean 'factor'\?"):
        build({"type": scaled, "facter": 3.0}, LOSSES)


def test_more_goes_to_those_that_take_it() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    cfg = {
        "type": "SequentialLR",
        "schedulers": [{"type": "LinearLR", "total_iters": 2}, {"type": "StepLR", "step_size": 1}],
        "milestones": [2],
    }
    made = build(cfg, SCHEDULERS, optimizer=optimizer)
    assert made.optimizer is optimizer and all(one.optimizer is optimizer for one in made._schedulers)
    assert build({"type": "Cos", "right": 4}, SCHEDULERS, optimizer=optimizer)(4) == 1.0


LINEAR = {"type": "Linear", "in_features": 2, "out_features": 3}


@pytest.mark.parametrize(
    ("cfg", "text", "key"),
    [
        ({"type": "Linaer"}, "net: There is no module called 'Linaer'", "net"),
        (
            LINEAR | {"biass": True},
            r"net: Linear takes no argument 'biass'. Did you mean 'bias'\?",
            "net.biass",
        ),
        ({"type": "Linear", "in_features": 2}, "net: Linear needs out_features. Add it", "net"),
        (
            {"in_features": 2},
            "net: it has no type, so that no module can be made of it; it has in_features",
            "net",
        ),
        ({"type": 3}, "net: type=3 is no module", "net"),
        ({"type": "torch.nn:Linaer"}, "'torch.nn:Linaer' cannot be imported", "net"),
        ({"type": "no_such_package:X"}, "No module named 'no_such_package'", "net"),
        (
            {"type": "Sequential", "args": [LINEAR, {"type": "Relu"}]},
            "net.args.1: .* mean 'ReLU'",
            "net.args.1",
        ),
    ],
)
def test_what_does_not_fit_is_named(cfg: dict[str, Any], text: str, key: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        build(cfg, MODULES, key="net")
    assert config_key_of(caught.value) == key


def test_an_error_of_a_constructor_says_whose() -> None:
    with pytest.raises(TypeError) as caught:
        build({"type": "Sequential", "args": [{**LINEAR, "in_features": "a"}]}, MODULES, key="net")
    assert caught.value.__notes__ == ["This came of net.args.0: Linear(in_features='a', out_features=3)"]
    assert config_key_of(caught.value) == "net.args.0"
    assert config_key_of(ValueError("other")) == ""
