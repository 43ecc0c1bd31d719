"""TaskFlow: model, losses and what becomes of the outputs, in one module (lux.TaskFlow)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from luxmeter.errors import UsageError
from luxmeter.train.task.losses import LossCalculator
from luxmeter.train.task.named_arguments import IN_TASK, arguments_of
from luxmeter.train.task.task_model import TaskModel


class TaskFlow(nn.Module):
    """A task is its model, its losses and its postprocess: in training mode a batch gives losses, otherwise predictions.

    `sub_module_cfg`: the parts of the model (TaskModel), or a module. `loss_cfg`: the losses (LossCalculator), or one.
    `postprocess`: a function of outputs by name that returns the predictions; without it they are the model's outputs.
    `batch_names`: what the items of a batch are called that is no mapping. Each method can be overridden.
    """

    def __init__(
        self,
        sub_module_cfg: Mapping[str, Any] | nn.Module | None = None,
        loss_cfg: Any = None,
        postprocess: Callable[..., Any] | None = None,
        *,
        batch_names: Sequence[str] = ("inputs", "labels"),
    ) -> None:
        super().__init__()
        self.batch_names = tuple(batch_names)
        self.model = None if sub_module_cfg is None else TaskModel(sub_module_cfg)
        self.loss = None if loss_cfg is None else LossCalculator(loss_cfg)
        self._postprocess = postprocess
        self._postprocess_takes = (
            None
            if postprocess is None
            else arguments_of(postprocess, who="The postprocess", key=f"{IN_TASK}postprocess")
        )

    def forward(self, batch: Any) -> Any:
        """train_forward or infer_forward, by mode."""
        return self.train_forward(batch) if self.training else self.infer_forward(batch)

    def train_forward(self, batch: Any) -> dict[str, Tensor]:
        """The losses of a batch: `loss`, the sum, and each by its name."""
        model_inputs = self.named(batch)
        return self.compute_loss(self.model_forward(model_inputs), model_inputs)

    def infer_forward(self, batch: Any) -> Any:
        """The predictions for a batch."""
        model_inputs = self.named(batch)
        return self.postprocess(self.model_forward(model_inputs), model_inputs)

    def model_forward(self, model_inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's outputs by name."""
        if self.model is None:
            raise self._lacks("model", "sub_module_cfg", "model_forward")
        outputs: Mapping[str, Any] = self.model(model_inputs)
        return outputs

    def compute_loss(
        self, model_outputs: Mapping[str, Any], model_inputs: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """The losses by name, and `loss`."""
        if self.loss is None:
            raise self._lacks("loss", "loss_cfg", "compute_loss")
        losses: dict[str, Tensor] = self.loss(model_outputs, model_inputs)
        return losses

    def postprocess(self, model_outputs: Mapping[str, Any], model_inputs: Mapping[str, Any]) -> Any:
        """The predictions that the outputs mean."""
        if self._postprocess is None or self._postprocess_takes is None:
            return model_outputs
        entries = {
            **model_inputs,
            **model_outputs,
            "model_outputs": model_outputs,
            "model_inputs": model_inputs,
        }
        return self._postprocess_takes.call(self._postprocess, entries)

    def named(self, batch: Any) -> Mapping[str, Any]:
        """A batch's entries by name."""
        if isinstance(batch, Mapping):
            return batch
        if hasattr(batch, "_asdict"):
            named: Mapping[str, Any] = batch._asdict()
            return named
        items = batch if isinstance(batch, list | tuple) else (batch,)
        if len(items) > len(self.batch_names):
            raise UsageError(
                "batch-names",
                f"A batch has {len(items)} items, and names for {len(self.batch_names)}: {', '.join(self.batch_names)}.",
                f"Name them all: {type(self).__name__}(..., batch_names=[...]), or let the dataset give dicts.",
            )
        return dict(zip(self.batch_names, items, strict=False))

    def _lacks(self, what: str, argument: str, method: str) -> UsageError:
        return UsageError(
            "task-incomplete",
            f"{type(self).__name__} has no {what}.",
            f"Give {argument}, or write {method}.",
        )


Task = TaskFlow
