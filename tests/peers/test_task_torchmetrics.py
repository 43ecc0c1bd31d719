"""A metric of torchmetrics is an evaluator of a task as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from luxmeter import AvgMeter, TaskFlow
from luxmeter.train.task.evaluator import Evaluators

pytestmark = pytest.mark.peers


def test_it_counts_as_ours_does() -> None:
    pytest.importorskip("torchmetrics")
    generator = torch.Generator().manual_seed(1)
    xs = torch.randn(50, 4, generator=generator)
    ys = torch.randint(0, 4, (50,), generator=generator)
    task = TaskFlow({"logits": {"type": "Identity"}}).eval()
    theirs = {
        "type": "torchmetrics.classification:MulticlassAccuracy",
        "num_classes": 4,
        "average": "micro",
        "inputs": {"preds": "logits", "target": "labels"},
    }
    evaluators = Evaluators({"theirs": theirs, "ours": "Accuracy"}, task)
    trainer: Any = SimpleNamespace(device=torch.device("cpu"))
    found = AvgMeter()
    for _ in range(2):  # each evaluation counts anew
        found.reset()
        evaluators.before_eval(trainer)
        for batch in zip(xs.split((20, 30)), ys.split((20, 30)), strict=True):
            evaluators.add(task(batch), batch)
        evaluators.after_eval(trainer, found)
    share = (xs.argmax(1) == ys).float().mean().item()
    assert found.to_dict() == {"theirs": pytest.approx(share), "ours/acc": pytest.approx(share)}
