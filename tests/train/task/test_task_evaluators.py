"""What is measured in an evaluation: by name, by sums, over ranks."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sklearn.metrics import confusion_matrix, top_k_accuracy_score
from torch import Tensor, nn

from luxmeter import AvgMeter, TaskFlow
from luxmeter.errors import UsageError
from luxmeter.train import Accuracy, Evaluator
from luxmeter.train.task.evaluator import Evaluators

GENERATOR = torch.Generator().manual_seed(1)
XS = torch.randn(50, 6, generator=GENERATOR)
YS = torch.randint(0, 4, (50,), generator=GENERATOR)
TASK = TaskFlow(
    {"logits": {"type": "Linear", "in_features": 6, "out_features": 4}},
    {"ce": {"type": "CrossEntropyLoss", "inputs": {"input": "logits", "target": "labels"}}},
)


def evaluated(cfg: Any, sizes: tuple[int, ...] = (20, 30), task: TaskFlow = TASK) -> dict[str, Any]:
    """What evaluators say of all samples, in batches of these sizes."""
    evaluators, meter = Evaluators(cfg, task), AvgMeter()
    trainer: Any = SimpleNamespace(device=torch.device("cpu"))
    evaluators.before_eval(trainer)
    task.eval()
    with torch.no_grad():
        for xs, ys in zip(XS.split(sizes), YS.split(sizes), strict=True):
            evaluators.add(task((xs, ys)), (xs, ys))
    evaluators.after_eval(trainer, meter)
    return meter.to_dict()


def logits() -> Tensor:
    with torch.no_grad():
        net: Any = TASK.model
        return net.logits(XS)  # type: ignore[no-any-return]


class Distance(Evaluator):
    """Takes all outputs and the batch."""

    def eval(self, outputs: Any, batch: Any) -> Mapping[str, Any]:
        return {"distance": (outputs["logits"].sum(1) - batch[1]).abs().sum(), "count": len(batch[1])}


class Foreign(nn.Module):
    """As metrics of other libraries are: modules, which have an `eval` of another meaning."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self.hits = self.total = 0

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.hits += int((preds.argmax(1) == target).sum())
        self.total += len(target)

    def compute(self) -> Tensor:
        return torch.tensor(self.hits / self.total)


def test_of_uneven_batches() -> None:
    found = evaluated(
        [{"type": "Accuracy", "topk": [1, 3]}, {"type": "Confusion", "classes": 4}, "MeanLoss", Distance()]
    )
    assert found["acc"] == pytest.approx(top_k_accuracy_score(YS, logits(), k=1))
    assert found["acc3"] == pytest.approx(top_k_accuracy_score(YS, logits(), k=3))
    assert found["confusion"].tolist() == confusion_matrix(YS, logits().argmax(1), labels=range(4)).tolist()
    assert found["loss"] == pytest.approx(nn.functional.cross_entropy(logits(), YS).item())
    assert found["ce"] == found["loss"]
    assert found["distance"] == pytest.approx((logits().sum(1) - YS).abs().mean().item())


def test_whatever_has_update_and_compute() -> None:
    cfg = {"type": Foreign, "inputs": {"preds": "logits", "target": "labels"}}
    share = top_k_accuracy_score(YS, logits(), k=1)
    assert evaluated([cfg]) == {"Foreign": pytest.approx(share)}
    assert evaluated({"mine": cfg, "ours": "Accuracy"}) == {
        "mine": pytest.approx(share),
        "ours/acc": pytest.approx(share),
    }
    metric = Foreign()
    task = TaskFlow({"net": {"type": nn.Linear, "in_features": 6, "out_features": 4, "outputs": "preds"}},
                    batch_names=("inputs", "target"))  # fmt: skip
    evaluated({"once": metric}, task=task)
    evaluated({"once": metric}, task=task)
    assert metric.total == 50  # each evaluation counts anew


def test_one_without_a_reset_counts_each_evaluation_alone() -> None:
    class Counts:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def update(self, labels: Tensor) -> None:
            self.seen.append(len(labels))

        def compute(self) -> int:
            return sum(self.seen)

    class Slotted:
        __slots__ = ("seen",)
        update, compute = Counts.update, Counts.compute

    counts = Counts()
    evaluators = Evaluators([counts], TaskFlow(nn.Linear(2, 2)))
    for _ in range(2):
        evaluators.before_eval(SimpleNamespace(device=torch.device("cpu")))  # type: ignore[arg-type]
        evaluators.add({}, (torch.zeros(3, 2), torch.zeros(3)))
        assert evaluators.metrics() == {"Counts": 3} and counts.seen == [3]
    with pytest.raises(UsageError, match=r"has no reset\(\), and would count all evaluations together"):
        Evaluators([Slotted()], TaskFlow(nn.Linear(2, 2)))


def test_counts_that_float32_cannot_add() -> None:
    class Big(Evaluator):
        def eval(self, labels: Tensor) -> Mapping[str, Any]:
            return {"sum": torch.tensor(2.0**24 if len(labels) == 49 else 1.0)}

    assert evaluated([Big()], (49, 1))["sum"] == 2**24 + 1


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        (["Acuracy"], r"evaluators.0: There is no evaluator .* Did you mean 'Accuracy'\?"),
        ([3], "evaluators.0: 3 does not evaluate"),
        (["Accuracy", Accuracy()], "Two evaluators give 'acc'"),
        ([{"type": Foreign}], r"The evaluator Foreign takes 'preds'.*There are inputs, labels, logits"),
        ([{"type": Foreign, "inputs": {"pred": "logits"}}], r"no argument 'pred'.*mean 'preds'"),
    ],
)
def test_evaluators_that_do_not_fit(cfg: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        evaluated(cfg)


RANK_PROGRAM = """
import json, sys, warnings
import torch, torch.distributed as dist
from luxmeter.train import Evaluator, TaskFlow
from luxmeter.train.task.evaluator import Evaluators
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
class Alone:
    def update(self, labels): self.seen = len(labels)
    def compute(self): return self.seen
class OnlyFirst(Evaluator):
    def eval(self, labels): return {"first": int(labels[0])} if rank == 0 else {}
task = TaskFlow({"logits": {"type": "Identity"}})
logits = torch.eye(3)[[0, 1, 2, 0, 0]]
labels = torch.tensor([0, 1, 2, 1, 2])
mine = slice(0, 3) if rank == 0 else slice(3, 5)
evaluators = Evaluators(["Accuracy", {"type": "Confusion", "classes": 3}, OnlyFirst(), Alone()], task)
evaluators.add(task.eval()((logits[mine], labels[mine])), (logits[mine], labels[mine]))
with warnings.catch_warnings(record=True) as said:
    found = evaluators.metrics()
found["confusion"] = found["confusion"].tolist()
print(json.dumps({**found, "said": [str(one.message) for one in said]}))
dist.destroy_process_group()
"""


def test_two_real_ranks() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK_PROGRAM, str(rank), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), said
    first, second = (json.loads(out) for out, _ in said)
    assert first["acc"] == second["acc"] == pytest.approx(3 / 5)
    assert first["confusion"] == second["confusion"] == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    assert first["first"] == second["first"] == 0
    assert (first["Alone"], second["Alone"]) == (3, 2)
    assert "Alone saw the batches of this rank alone" in first["said"][0]
