"""A task: a model of parts, losses that take what they need by name, evaluators; all of it a config, and no loop to write."""

import tempfile

import torch
from torch import Tensor

import luxmeter as lux
from luxmeter.train import DATASETS, LOSSES, Evaluator, TaskTrainer


@DATASETS.register
def rings(count: int, seed: int) -> list[dict[str, Tensor]]:
    """Points of three rings around each other; the label is the ring."""
    generator = torch.Generator().manual_seed(seed)
    labels, angles = torch.arange(count) % 3, torch.rand(count, generator=generator) * 6.28
    points = torch.stack([angles.cos(), angles.sin()], 1) * (labels[:, None] + 1)
    return [{"point": point, "labels": label} for point, label in zip(points, labels, strict=True)]


@LOSSES.register
def radius_error(radius: Tensor, point: Tensor) -> Tensor:
    """Its arguments say what it takes: an output of the model, and an entry of the batch."""
    return (radius.squeeze(1) - point.norm(dim=1)).abs().mean()


class WorstRing(Evaluator):
    """The accuracy on the ring that is seen worst."""

    def eval(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:  # what a batch adds
        hits = labels[logits.argmax(1) == labels]
        return {"hits": hits.bincount(minlength=3), "all": labels.bincount(minlength=3)}

    def compute(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:  # what the sums mean
        return {"worst": (sums["hits"] / sums["all"]).min()}


layers = [{"type": "Linear", "in_features": 2, "out_features": 32}, {"type": "ReLU"}]
task = {
    "type": lux.TaskFlow,
    "sub_module_cfg": {
        "features": {"type": "Sequential", "args": layers, "inputs": "point"},
        "logits": {"type": "Linear", "in_features": "@features.0.out_features", "out_features": 3},
        "radius": {"type": "Linear", "in_features": 32, "out_features": 1, "inputs": "features"},
    },
    "loss_cfg": {
        "ce": {"type": "CrossEntropyLoss", "inputs": {"input": "logits", "target": "labels"}},
        "radius": {"type": "radius_error", "loss_weight": 0.1},
    },
}
data = {
    "train": {"samples": {"type": "rings", "count": 300, "seed": 1}, "batch_size": 20, "shuffle": True},
    "eval": {"samples": {"type": "rings", "count": 150, "seed": 2}, "batch_size": 50},
}
trainer = TaskTrainer(lux.Params(seed=1, epoch=3), task=task, data=data,
                      optimizer={"type": "Adam", "lr": 0.03}, evaluators=["Accuracy", WorstRing()])  # fmt: skip
trainer.initial_exp(tempfile.mkdtemp())
trainer.train()
assert trainer.metric("acc") > 0.9 and trainer.metric("worst") > 0.7
