"""A moving average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.optimization import Optimization

if TYPE_CHECKING:
    from luxmeter.train.sharding import ShardedAverage
    from luxmeter.train.trainer import Trainer


class EMAUpdate(Callback):
    """Averages the weights of all models after each step (torch's AveragedModel); evaluations are made with the averages."""

    priority = 30

    def __init__(self, decay: float = 0.999, *, in_evaluation: bool = True) -> None:
        if not isinstance(decay, float) or not 0 < decay < 1:
            raise UsageError("ema-decay", f"decay={decay!r} averages nothing.", "Give one such as 0.999.")
        self.decay = decay
        self.in_evaluation = in_evaluation
        self.averaged: dict[str, AveragedModel | ShardedAverage] = {}
        self._models: dict[str, torch.nn.Module] = {}
        self._optimization: Optimization | None = None
        self._steps = 0

    def setup(self, trainer: Trainer) -> None:
        """Copy the weights."""
        self._optimization = trainer.callbacks.find(Optimization)
        if self.averaged:
            return
        self._models = {name: model for name, model in trainer.models.items() if list(model.parameters())}
        average = get_ema_multi_avg_fn(self.decay)  # type: ignore[no-untyped-call]
        if trainer._training.shards is not None:
            shards = trainer._training.shards
            self.averaged = {name: shards.averaged(model, average) for name, model in self._models.items()}
        else:
            self.averaged = {
                name: AveragedModel(model, multi_avg_fn=average) for name, model in self._models.items()
            }
        if self.in_evaluation:
            trainer.evaluating_with(self.swapped)

    def before_train(self, trainer: Trainer) -> None:
        """Count steps from here."""
        self._steps = self._optimization.steps if self._optimization is not None else 0

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Average, if there was a step."""
        if self._optimization is None:
            self._update()
        elif self._optimization.steps != self._steps:
            self._steps = self._optimization.steps
            self._update()

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Average, if the last batches were a step of their own."""
        if self._optimization is not None:
            self.after_batch(trainer, None)

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the models have the averaged weights."""
        pairs = [
            (own, average)
            for name, model in self._models.items()
            if isinstance(averaged := self.averaged[name], AveragedModel)
            for own, average in zip(_tensors(model), _tensors(averaged.module), strict=True)
        ]
        self._swap(pairs)
        try:
            yield
        finally:
            self._swap(pairs)

    def state_dict(self) -> dict[str, Any]:
        """The averages."""
        return {name: averaged.state_dict() for name, averaged in self.averaged.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        for name, averaged in self.averaged.items():
            averaged.load_state_dict(state[name])

    def _swap(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for own, average in pairs:
            own.data, average.data = average.data, own.data
        for averaged in self.averaged.values():
            if not isinstance(averaged, AveragedModel):
                averaged.swap()

    def _update(self) -> None:
        for name, model in self._models.items():
            self.averaged[name].update_parameters(model)


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]
