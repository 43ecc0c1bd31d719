"""What a training step costs: run and counted when it is first asked for, then part of the result like the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from luxmeter.errors import LuxmeterError
from luxmeter.model.inputs import CallArguments
from luxmeter.model.optimizers import OptimizerCost
from luxmeter.model.passes import Pass, run
from luxmeter.model.records import ModelCost
from luxmeter.model.tree import fill_backward, operator_rows, sums_of, unknown_rows


class TrainingStep(NamedTuple):
    """What is to be run."""

    model: nn.Module
    call: CallArguments
    dtype: torch.dtype | None
    loss: Callable[[Any], torch.Tensor] | None


class Later:
    """Fills what is open in a cost, once, whoever asks first; then it lets go of the model."""

    def __init__(
        self,
        cost: ModelCost,
        forward: Pass,
        training: TrainingStep | None,
        step: OptimizerCost | None,
        notes: list[str],
    ) -> None:
        self._cost = cost
        self._given: tuple[Pass, TrainingStep | None, OptimizerCost | None, list[str]] | None
        self._given = (forward, training, step, notes)
        self._lock = threading.Lock()
        for record in (cost, cost.memory, *cost.modules):
            record.found_by(self)

    def __call__(self) -> None:
        with self._lock:
            if self._given is None:
                return
            forward, training, step, notes = self._given
            notes = list(notes)
            done = None if training is None else _run(training, forward, notes)
            _fill(self._cost, forward, done, step, notes)
            for record in (self._cost, self._cost.memory, *self._cost.modules):
                del record.__dict__["_find"]
            self._given = None


def _fill(
    cost: ModelCost, forward: Pass, training: Pass | None, step: OptimizerCost | None, notes: list[str]
) -> None:
    back = sums_of(training.watch.root, backward=True) if training is not None else None
    memory = cost.memory
    peak = None
    if training is not None:
        at_rest = memory.weight_bytes + memory.buffer_bytes + memory.input_bytes + memory.optimizer_bytes
        stepping = memory.gradient_bytes + (step.step_peak_bytes if step is not None else 0)
        peak = at_rest + max(training.peak_bytes, stepping)
    memory.fill(
        training_activation_bytes=training.saved_bytes if training is not None else None,
        training_peak_bytes=peak,
    )
    fill_backward(cost.modules, back)
    cost.fill(
        backward_macs=back.total[-1][1] if back is not None else None,
        backward_flops=back.total[-1][2] if back is not None else None,
        operators=operator_rows(forward, training),
        unknown_ops=unknown_rows(forward, training),
        notes=tuple(notes),
    )


def _run(step: TrainingStep, forward: Pass, notes: list[str]) -> Pass | None:
    """A training step on the same tensors as the forward pass; in evaluation mode if training mode does not run."""
    options: dict[str, Any] = {
        "training": True, "on_meta": forward.on_meta, "dtype": step.dtype, "loss": step.loss,
    }  # fmt: skip
    try:
        result = run(step.model, step.call, **options)
    except LuxmeterError:
        raise
    except Exception as problem:  # noqa: BLE001 - a user's model may raise anything; it is noted
        try:
            result = run(step.model, step.call, **options, train_mode=False)
        except Exception as second:  # noqa: BLE001 - likewise
            notes.append(f"backward is not counted: {type(second).__name__}: {_first_line(second)}")
            return None
        notes.append(f"backward is counted in evaluation mode: in training mode {_first_line(problem)}")
    if _weights(result) != _weights(forward):
        notes.append("backward is not counted: the model was changed before it was first looked at")
        return None
    if not result.has_gradients:
        notes.append("backward is not counted: no result of the model has a gradient")
        return None
    return result


def _weights(one: Pass) -> dict[str, tuple[Any, ...]]:
    return {name: weight[1:] for name, weight in one.params.items()}


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [""])[0][:160]
