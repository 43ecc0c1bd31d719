"""A small real training for the tests of the trainer."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import luxmeter as lux
from luxmeter.train import ModelCheckpoint


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples with an augmentation: what is read depends on a random state, too."""

    def __init__(self, length: int = 24) -> None:
        generator = torch.Generator().manual_seed(5)
        self.xs = torch.randn(length, 6, generator=generator)
        self.ys = torch.randint(0, 3, (length,), generator=generator)

    def __len__(self) -> int:
        return len(self.xs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.xs[index] + random.random() * 0.1, self.ys[index]


def small_model() -> nn.Module:
    """With BatchNorm and Dropout: buffers and draws of training's own."""
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


class Small(lux.Trainer):
    """Returns the loss alone: Optimization does the rest. Six batches an epoch."""

    loader: Any = lux.DataLoader
    workers = 0

    def initial_trainer(self, params: Any) -> None:
        lux.random.fix_seed(3)
        self.model = small_model()
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=params.get("lr", 0.01))
        self.cross = nn.CrossEntropyLoss()
        self.losses: list[float] = []
        self.regist_databundler(
            train=self.loader(Noisy(), batch_size=4, shuffle=True, num_workers=self.workers),
            eval=lambda: lux.DataLoader(Noisy(12), batch_size=4),
            test=lambda: lux.DataLoader(Noisy(8), batch_size=4),
        )

    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: Any
    ) -> Any:
        xs, ys = batch_data
        loss = self.cross(self.model(xs), ys)
        self.losses.append(loss.item())
        return loss

    def eval_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: Any
    ) -> Any:
        xs, ys = batch_data
        meter = lux.Meter()
        meter.acc = (self.model(xs).argmax(1) == ys).float().mean()
        meter.percent(meter.acc_)
        return meter


def saving(kind: type[Small]) -> type[Small]:
    """One that saves a checkpoint behind each step."""

    class Saving(kind):  # type: ignore[valid-type,misc]
        def initial_callback(self) -> None:
            super().initial_callback()
            ModelCheckpoint(every_steps=1).hook(self)

    return Saving


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    """The model's state, apart."""
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Bit by bit."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
