"""What is measured in an evaluation: counted batch by batch, summed over ranks, computed at its end."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from luxmeter.errors import UsageError, warn_once
from luxmeter.nested import tensors_of
from luxmeter.train import calculate
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.registries import EVALUATORS, build, several
from luxmeter.train.task.named_arguments import Arguments, arguments_of

if TYPE_CHECKING:
    from luxmeter.train.task.task_flow import TaskFlow
    from luxmeter.train.trainer import Trainer

COUNT = "count"


class Evaluator:
    """A measure of outputs: `eval` says what a batch adds, `compute` what the sums over all batches and ranks mean.

    `eval(self, outputs, batch)`, or any arguments by name, as `eval(self, logits, labels)`.
    """

    def eval(self, outputs: Any, batch: Any) -> Mapping[str, Any]:
        """What a batch adds: numbers and tensors by name, such as `{"hits": 7, "count": 10}`."""
        raise NotImplementedError

    def compute(self, sums: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """The metrics by name; by default each sum divided by `count`, if that is among them."""
        if COUNT not in sums:
            return sums
        return {name: value.double() / sums[COUNT] for name, value in sums.items() if name != COUNT}


class Accuracy(Evaluator):
    """The share of samples whose label is the highest logit: `acc`; with topk=(1, 5), `acc5` among the five highest, too."""

    def __init__(self, topk: Sequence[int] = (1,)) -> None:
        self.topk = tuple(topk)

    def eval(self, logits: Tensor, labels: Tensor) -> Mapping[str, Any]:
        """The hits in a batch."""
        hits = calculate.topk_hits(logits, labels, self.topk).sum(0)
        found = {f"acc{k}" if k > 1 else "acc": count for k, count in zip(self.topk, hits, strict=True)}
        return {**found, COUNT: len(labels)}


class Confusion(Evaluator):
    """The confusion matrix of `classes` classes: `confusion`, a row for each true class."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def eval(self, logits: Tensor, labels: Tensor) -> Mapping[str, Any]:
        """The matrix of a batch."""
        return {"confusion": calculate.confusion(logits, labels, self.classes)}


class MeanLoss(Evaluator):
    """The losses of the task, averaged over the samples of the evaluation: `loss`, and each by its name.

    What the losses take has to be among what the postprocess returns.
    """

    def __init__(self, task: TaskFlow) -> None:
        self.task = task

    def eval(self, model_outputs: Any, model_inputs: Any) -> Mapping[str, Any]:
        """The losses of a batch, times its samples."""
        size = _size(model_inputs)
        losses = self.task.compute_loss(model_outputs, model_inputs)
        return {**{name: value * size for name, value in losses.items()}, COUNT: size}


@dataclass
class _Member:
    """An evaluator at work."""

    name: str  # that its metrics begin with; empty: nobody gave one
    evaluator: Any
    arguments: Arguments
    is_own: bool  # it says by `eval` what a batch adds; others count themselves
    sums: dict[str, Tensor] = field(default_factory=dict)
    at_first: dict[str, Any] | None = None  # what one without a reset() was like before it counted

    def begin(self, device: torch.device) -> None:
        """Count anew."""
        self.sums = {}
        if not self.is_own:
            if callable(getattr(self.evaluator, "to", None)):
                self.evaluator.to(device)
            if self.at_first is not None:
                vars(self.evaluator).clear()
                vars(self.evaluator).update(copy.deepcopy(self.at_first))
            else:
                self.evaluator.reset()

    def add(self, entries: Mapping[str, Any]) -> None:
        """Count a batch."""
        if not self.is_own:
            self.arguments.call(self.evaluator.update, entries)
            return
        for name, value in self.arguments.call(self.evaluator.eval, entries).items():
            found = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value)
            if found.is_floating_point() and found.device.type != "mps":
                found = found.double()
            self.sums[name] = self.sums[name] + found if name in self.sums else found

    def metrics(self) -> dict[str, Any]:
        """What was counted means."""
        sums = {name: value.cpu() for name, value in self.sums.items()}
        found = self.evaluator.compute(sums) if self.is_own else self.evaluator.compute()
        if not isinstance(found, Mapping):
            return {self.name or type(self.evaluator).__name__: _plain(found)}
        before = f"{self.name}/" if self.name else ""
        return {f"{before}{name}": _plain(value) for name, value in found.items()}


class Evaluators(Callback):
    """The evaluators of a task: they count over each evaluation, and what they compute comes into its averages.

    `evaluators`: configs, names or objects, in a list or by the name that their metrics begin with. In a config, beside
    `type`: `inputs`, argument -> entry. Anything with update and compute is one (torchmetrics); before each evaluation it is
    reset(), or, where it has none, as it was when it was given.
    """

    priority = 15  # before the averages are logged

    def __init__(self, evaluators: Any, task: TaskFlow) -> None:
        self.task = task
        self._members = [_member(*one, task) for one in several(evaluators, "evaluators")]

    def __len__(self) -> int:
        return len(self._members)

    def add(self, outputs: Any, batch: Any) -> None:
        """Count what the task gave for a batch."""
        model_inputs = self.task.named(batch)
        entries = {
            **model_inputs,
            **(outputs if isinstance(outputs, Mapping) else {}),
            "outputs": outputs,
            "batch": batch,
            "model_outputs": outputs,
            "model_inputs": model_inputs,
        }
        for member in self._members:
            member.add(entries)

    def before_eval(self, trainer: Trainer) -> None:
        """Count anew."""
        for member in self._members:
            member.begin(trainer.device)

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """Compute."""
        meter.update(self.metrics())

    before_test, after_test = before_eval, after_eval

    def metrics(self) -> dict[str, Any]:
        """What all of them computed, over all ranks."""
        self._sum_over_ranks()
        found: dict[str, Any] = {}
        for member in self._members:
            for name, value in member.metrics().items():
                if name in found:
                    raise UsageError(
                        "evaluator-names",
                        f"Two evaluators give {name!r}.",
                        'Name them: evaluators={"first": {...}, "second": {...}}.',
                    )
                found[name] = value
        return found

    def _sum_over_ranks(self) -> None:
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        mine = [{name: value.cpu() for name, value in member.sums.items()} for member in self._members]
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, mine)
        for number, member in enumerate(self._members):
            if member.is_own:
                member.sums = _summed(rank[number] for rank in ranks)
            elif not hasattr(member.evaluator, "sync"):  # torchmetrics goes over the ranks itself
                warn_once(
                    "evaluator-one-rank",
                    f"{type(member.evaluator).__name__} saw the batches of this rank alone, and has no sync().",
                    "Write it as an Evaluator, whose sums are added up over ranks.",
                )


def _summed(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """A rank may have had no batch, and so no names."""
    total: dict[str, Tensor] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


def _member(name: str, cfg: Any, key: str, task: TaskFlow) -> _Member:
    inputs = None
    if isinstance(cfg, Mapping):
        inputs = cfg.get("inputs")
        cfg = {one: value for one, value in cfg.items() if one != "inputs"}
    evaluator = build(cfg, EVALUATORS, key=key, task=task)
    # Every module of torch has an eval(), metrics of torchmetrics among them.
    is_own = isinstance(evaluator, Evaluator) or not hasattr(evaluator, "update")
    method = getattr(evaluator, "eval" if is_own else "update", None)
    if not callable(method) or not callable(getattr(evaluator, "compute", None)):
        raise UsageError(
            "evaluator-kind",
            f"{key}: {evaluator!r} does not evaluate.",
            "Give an Evaluator, or anything with update and compute.",
        )
    at_first = None
    if not is_own and not callable(getattr(evaluator, "reset", None)):
        if not hasattr(evaluator, "__dict__"):
            raise UsageError(
                "evaluator-kind",
                f"{key}: {evaluator!r} has no reset(), and would count all evaluations together.",
                "Write reset(), which begins to count anew.",
            )
        at_first = copy.deepcopy(vars(evaluator))
    who = f"The evaluator {name or type(evaluator).__name__}"
    return _Member(name, evaluator, arguments_of(method, inputs, who=who, key=key), is_own, at_first=at_first)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _size(value: Any) -> int:
    """How many samples the tensors of a batch hold."""
    return next((len(tensor) for tensor in tensors_of(value) if tensor.ndim), 1)
