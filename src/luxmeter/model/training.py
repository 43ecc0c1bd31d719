"""What a training step costs: run and counted by an explicit call, since it takes longer than all the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from luxmeter.errors import LuxmeterError
from luxmeter.model.inputs import CallArguments
from luxmeter.model.optimizers import OptimizerCost
from luxmeter.model.passes import Pass, run
from luxmeter.model.records import ModelCost
from luxmeter.model.tree import operator_rows, sums_of, unknown_rows, with_backward


@dataclass(frozen=True)
class TrainingStep:
    """What is to be run, and what the forward pass counted before."""

    model: nn.Module
    call: CallArguments
    dtype: torch.dtype | None
    loss: Callable[[Any], torch.Tensor] | None
    forward: Pass
    optimizer: OptimizerCost | None

    def __call__(self, cost: ModelCost) -> ModelCost:
        """`cost` with the step counted; without it, and a note why, where there is none."""
        notes: list[str] = []
        step = self._run(notes)
        cost = replace(cost, notes=(*cost.notes, *notes), training_step=None)
        if step is None:
            return cost
        back = sums_of(step.watch.root, backward=True)
        _, macs, flops, _ = back.total[-1]
        memory = cost.memory
        at_rest = memory.weight_bytes + memory.buffer_bytes + memory.input_bytes + memory.optimizer_bytes
        stepping = memory.gradient_bytes + (self.optimizer.step_peak_bytes if self.optimizer else 0)
        return replace(
            cost,
            backward_macs=macs,
            backward_flops=flops,
            memory=replace(
                memory,
                training_activation_bytes=step.saved_bytes,
                training_peak_bytes=at_rest + max(step.peak_bytes, stepping),
            ),
            modules=with_backward(cost.modules, back),
            operators=operator_rows(self.forward, step),
            unknown_ops=unknown_rows(self.forward, step),
        )

    def _run(self, notes: list[str]) -> Pass | None:
        """A training step on the same tensors as the forward pass; in evaluation mode if training mode does not run."""
        options: dict[str, Any] = {
            "training": True, "on_meta": self.forward.on_meta, "dtype": self.dtype, "loss": self.loss,
        }  # fmt: skip
        try:
            result = run(self.model, self.call, **options)
        except LuxmeterError:
            raise
        except Exception as problem:  # noqa: BLE001 - a user's model may raise anything; it is noted
            try:
                result = run(self.model, self.call, **options, train_mode=False)
            except Exception as second:  # noqa: BLE001 - likewise
                notes.append(f"backward is not counted: {type(second).__name__}: {_first_line(second)}")
                return None
            notes.append(f"backward is counted in evaluation mode: in training mode {_first_line(problem)}")
        if _weights(result) != _weights(self.forward):
            notes.append("backward is not counted: the model was changed after its forward pass was")
            return None
        if not result.has_gradients:
            notes.append("backward is not counted: no result of the model has a gradient")
            return None
        return result


def _weights(one: Pass) -> dict[str, tuple[Any, ...]]:
    return {name: weight[1:] for name, weight in one.params.items()}


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [""])[0][:160]
