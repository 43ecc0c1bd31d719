"""A task: parts, losses, postprocess."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from luxmeter import TaskFlow
from luxmeter.errors import UsageError
from luxmeter.train import LossCalculator, Task, TaskModel
from luxmeter.train.registries import TASKS, build, config_key_of

X, Y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
NET = {
    "backbone": {"type": "Linear", "in_features": 6, "out_features": 8},
    "act": {"type": "ReLU"},
    "head": {
        "type": "Linear",
        "in_features": "@backbone.out_features",
        "out_features": 3,
        "outputs": "logits",
    },
}
CE = {"type": "CrossEntropyLoss", "inputs": {"input": "logits", "target": "labels"}}


class Add(nn.Module):
    """Two arguments."""

    def forward(self, left: Tensor, right: Tensor, scale: float = 1.0) -> Tensor:
        return left + scale * right


def test_training_gives_losses_and_inference_predictions() -> None:
    task = Task(NET, {"ce": CE}, postprocess=lambda logits: {"classes": logits.argmax(1)})
    given = task((X, Y))
    logits = task.model.head(task.model.backbone(X).relu())  # type: ignore[union-attr, operator]
    assert set(given) == {"loss", "ce"} and given["loss"].requires_grad and not given["ce"].requires_grad
    assert torch.equal(given["loss"], nn.functional.cross_entropy(logits, Y))
    task.eval()
    assert torch.equal(task((X, Y))["classes"], logits.argmax(1))
    assert torch.equal(task(X)["classes"], logits.argmax(1))  # a batch without labels
    assert torch.equal(task({"inputs": X})["classes"], logits.argmax(1))
    plain = TaskFlow(NET).eval()(X)
    assert list(plain) == ["backbone", "act", "logits"]


def test_a_module_and_a_function_are_enough() -> None:
    net = nn.Linear(6, 3)
    task = TaskFlow(net, {"type": "CrossEntropyLoss", "inputs": {"input": "output", "target": "labels"}})
    assert torch.equal(task((X, Y))["loss"], nn.functional.cross_entropy(net(X), Y))
    assert "CrossEntropyLoss" in task((X, Y))

    def distance(output: Tensor, labels: Tensor) -> Tensor:
        return (output.sum(1) - labels).abs().mean()

    assert set(TaskFlow(net, distance)((X, Y))) == {"loss", "distance"}


def test_overridden_methods_are_used() -> None:
    class Twice(TaskFlow):
        def train_forward(self, batch: Any) -> dict[str, Tensor]:
            return {"loss": 2 * super().train_forward(batch)["loss"]}

        def postprocess(self, model_outputs: Any, model_inputs: Any) -> Any:
            return model_outputs["logits"].shape

    one, two = TaskFlow(NET, CE), Twice(NET, CE)
    two.load_state_dict(one.state_dict())
    assert torch.equal(two((X, Y))["loss"], 2 * one((X, Y))["loss"])
    assert two.eval()(X) == (4, 3)


def test_what_a_task_lacks_is_said() -> None:
    with pytest.raises(
        UsageError, match=r"TaskFlow has no model\. Give sub_module_cfg, or write model_forward"
    ):
        TaskFlow()(X)
    with pytest.raises(UsageError, match=r"no loss\. Give loss_cfg, or write compute_loss"):
        TaskFlow(NET)((X, Y))
    with pytest.raises(UsageError, match=r"3 items, and names for 2: inputs, labels.*batch_names"):
        TaskFlow(NET)((X, Y, Y))
    assert set(TaskFlow(NET, batch_names=("inputs", "mask", "labels")).named((X, X, Y))) == {
        "inputs",
        "mask",
        "labels",
    }


def test_a_copy_is_a_model_of_its_own() -> None:
    task = TaskFlow(NET, CE)
    other = copy.deepcopy(task)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(other.eval()(X)["logits"], torch.zeros(4, 3))
    assert not torch.equal(task.eval()(X)["logits"], torch.zeros(4, 3))


# -- parts -------------------------------------------------------------------------------------------------------------


def test_parts_take_entries_and_outputs_by_name() -> None:
    made = TaskModel(
        {
            "sum": {"type": Add, "inputs": {"left": "a", "right": "twice", "scale": "factor"}},
            "twice": {"type": Add, "inputs": ["a", "a"]},  # written behind what takes it
            "both": {"type": Add, "inputs": {"left": "sum", "right": "twice"}},
        }
    )
    a = torch.ones(2)
    assert made({"a": a, "factor": 3.0})["both"].tolist() == [1 + 3 * 2 + 2] * 2
    assert [name for name, _ in made.named_children()] == ["sum", "twice", "both"]


def test_arguments_of_several_are_found_by_their_names() -> None:
    made = TaskModel({"left": {"type": "Identity", "inputs": "x"}, "sum": {"type": Add}})
    assert made({"x": torch.ones(1), "right": torch.ones(1)})["sum"].tolist() == [2]
    first = TaskModel({"net": {"type": "Identity"}})  # Identity.forward(input)
    assert first({"other": 1, "input": 2})["net"] == 2
    assert first({"other": 1, "another": 2})["net"] == 1


def test_several_and_named_outputs() -> None:
    class Splits(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x[:1], x[1:]

    class Names(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"low": x - 1, "high": x + 1}

    x = torch.tensor([1.0, 2.0])
    made = TaskModel(
        {"split": {"type": Splits, "outputs": ["a", "b"]}, "sum": {"type": Add, "inputs": ["a", "b"]}}
    )
    assert made({"x": x})["sum"].tolist() == [3]
    named = TaskModel({"split": {"type": Names}, "sum": {"type": Add, "inputs": ["low", "high"]}})
    assert named({"x": x})["sum"].tolist() == [2, 4]
    with pytest.raises(UsageError, match="'split' gave 2 values, but its outputs are a, b, c"):
        TaskModel({"split": {"type": Splits, "outputs": ["a", "b", "c"]}})({"x": x})


def test_references() -> None:
    class Tied(nn.Module):
        def __init__(self, embedding: nn.Embedding) -> None:
            super().__init__()
            self.embedding = embedding

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.embedding.weight.T

    made = TaskModel(
        {
            "decode": {"type": Tied, "embedding": "@embed", "inputs": "embed"},
            "embed": {"type": "Embedding", "num_embeddings": 5, "embedding_dim": 2, "inputs": "tokens"},
        }
    )
    assert made({"tokens": torch.tensor([1])})["decode"].shape == (1, 5)
    assert len(list(made.parameters())) == 1


ONE = {"type": "ReLU"}


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        ({"a": ONE, "b": {"type": "Linear", "in_features": "@aa.x"}}, r"'b' refers to '@aa', which is no part. Did you mean 'a'\?"),
        (
            {**NET, "head": {"type": "Linear", "in_features": "@backbone.out_feature", "out_features": 1}},
            r"Linear has no 'out_feature'. Did you mean 'out_features'",
        ),
        ({"a": {"type": Add, "x": "@b"}, "b": {"type": Add, "x": "@a"}}, "a, b refer to each other in a circle"),
        ({"a": {"type": Add, "inputs": ["b", "b"]}, "b": {"type": Add, "inputs": ["a", "a"]}}, "a, b wait for each"),
        ({"a": {**ONE, "outputs": "x"}, "b": {**ONE, "outputs": "x"}}, "'a' and 'b' both give 'x'"),
        ({"a.b": ONE}, "cannot be called 'a.b'"),
        ({"forward": ONE}, "cannot be called 'forward'"),
        ({"a": {"type": dict}}, "'a' is a dict, no module"),
        ({}, "no parts"),
        ({"a": {"type": Add, "inputs": {"lefty": "x"}}}, r"'a' has no argument 'lefty'.*Did you mean 'left'\?"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit(cfg: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        TaskModel(cfg)


def test_an_entry_that_is_not_there() -> None:
    made = TaskModel({"sum": {"type": Add, "inputs": ["image", "maks"]}})
    with pytest.raises(
        UsageError, match=r"The part 'sum' takes 'maks'.*There are image, mask. Did you mean 'mask'\?"
    ):
        made({"image": X, "mask": X})


def test_a_config_error_says_its_whole_key() -> None:
    cfg = {"type": "TaskFlow", "sub_module_cfg": {"net": {"type": "Linear", "in_feature": 3}}}
    with pytest.raises(
        UsageError, match=r"sub_module_cfg\.net: Linear takes no argument 'in_feature'"
    ) as caught:
        build(cfg, TASKS, key="task")
    assert config_key_of(caught.value) == "task.sub_module_cfg.net.in_feature"


# -- losses ------------------------------------------------------------------------------------------------------------


class Mine(nn.Module):
    """A loss with a name."""

    def __init__(self, name: str, factor: float = 1.0) -> None:
        super().__init__()
        self.name = name
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, model_outputs: Any, model_inputs: Any) -> Tensor:
        return self.factor * (model_outputs["logits"].sum() - model_inputs["labels"].sum())


def test_losses_are_weighted_and_summed() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    losses = LossCalculator(
        {
            "ce": CE | {"loss_weight": 0.5, "label_smoothing": 0.1},
            "mine": {"type": Mine, "factor": 2.0},
            "norm": lambda logits, labels, absent=1.0: logits.norm() * absent,
        }
    )
    given = losses({"logits": logits}, {"labels": Y})
    ce = nn.functional.cross_entropy(logits, Y, label_smoothing=0.1)
    assert torch.equal(given["ce"], 0.5 * ce) and torch.equal(given["mine"], 2 * (logits.sum() - Y.sum()))
    assert torch.equal(given["loss"], 0.5 * ce + 2 * (logits.sum() - Y.sum()) + logits.norm())
    assert list(given) == ["loss", "ce", "mine", "norm"]
    assert [name for name, _ in losses.named_parameters()] == ["mine.factor"]


def test_names_of_losses() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    for cfg, names in (
        ([CE | {"name": "a"}, CE], ["loss", "a", "CrossEntropyLoss"]),
        (Mine("own"), ["loss", "own"]),
        ({**CE, "type": "torch.nn.functional:cross_entropy"}, ["loss", "cross_entropy"]),
        ({**CE, "type": nn.functional.cross_entropy, "label_smoothing": 0.1}, ["loss", "cross_entropy"]),
        ({"type": Mine, "name": "own"}, ["loss", "own"]),
        ({"loss": CE}, ["loss"]),
    ):
        given = LossCalculator(cfg)({"logits": logits}, {"labels": Y})
        assert list(given) == names and given["loss"].requires_grad


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        (
            {"a": {"type": "CrossEntropyLos"}},
            "loss_cfg.a: There is no loss called .* mean 'CrossEntropyLoss'",
        ),
        ([CE, CE], "cannot be called 'CrossEntropyLoss': the name is taken"),
        ({"a.b": CE}, "cannot be called 'a.b'"),
        ({"loss": CE, "b": CE}, "One of several losses is called 'loss'"),
        ({"a": CE | {"loss_weight": "much"}}, "loss_weight='much'"),
        ({"a": 3}, "The loss 'a' is 3"),
        ({}, "no losses"),
        ({"a": CE | {"inputs": {"inputt": "logits"}}}, r"has no argument 'inputt'.*Did you mean 'input'\?"),
    ],
)
def test_losses_that_do_not_fit(cfg: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        LossCalculator(cfg)


def test_a_loss_that_does_not_find_what_it_takes() -> None:
    there: Any = {"logits": torch.randn(4, 3)}, {"inputs": X, "labels": Y}
    with pytest.raises(
        UsageError,
        match=r"'ce' takes 'input', which is not there. There are inputs, labels, logits, and inputs=",
    ):
        LossCalculator({"ce": {"type": "CrossEntropyLoss"}})(*there)
    with pytest.raises(
        UsageError, match=r"takes 'lables'.*There are inputs, labels, logits, .* Did you mean 'labels'\?"
    ):
        LossCalculator({"a": lambda logits, lables: logits.sum()})(*there)
    with pytest.raises(UsageError, match=r"The loss 'a' is of the shape \(4,\)"):
        LossCalculator({"a": CE | {"reduction": "none"}})(*there)
    with pytest.raises(UsageError, match="The loss 'a' is of the shape float"):
        LossCalculator({"a": lambda logits: 1.0})(*there)
