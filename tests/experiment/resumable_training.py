"""A small training with everything that makes a resume hard, told batch by batch: the material of the resume tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import luxmeter as lux

EPOCHS = 2


class Augmented(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Draws from python, numpy and torch for every sample, as augmentations do."""

    def __init__(self, length: int = 14) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        base = torch.full((6,), float(index))
        noise = torch.rand(6) + random.random() + float(np.random.rand())
        return base / 10 + noise, index % 3


class Training:
    """Dropout, batch norm, tied weights, shuffling, Adam, a learning rate schedule, a gradient scaler."""

    def __init__(self, *, workers: int = 0, make_loader: Callable[..., Any] | None = None) -> None:
        lux.random.fix_seed(3)
        self.model = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
        )
        self.optim = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optim, max_lr=0.1, total_steps=100)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        make = make_loader or (
            lambda **options: lux.DataLoader(Augmented(), batch_size=3, shuffle=True, **options)
        )
        self.loader = make(num_workers=workers)
        self.generator = torch.Generator().manual_seed(5)
        self.step = 0

    @property
    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optim": self.optim,
            "schedule": self.schedule,
            "scaler": self.scaler,
            "loader": self.loader,
            "generator": self.generator,
        }

    def run(
        self,
        *,
        epochs: int = EPOCHS,
        each_step: Callable[[Training], None] | None = None,
        max_steps: int | None = None,
    ) -> list[str]:
        """Train to the end; returns a line for every step, exact to the bit."""
        told: list[str] = []
        for _ in range(self.loader.epoch, epochs):
            for inputs, labels in self.loader:
                told.append(self._train(inputs, labels))
                self.step += 1
                if each_step is not None:
                    each_step(self)
                if max_steps is not None and len(told) == max_steps:
                    return told
        return told

    def _train(self, inputs: torch.Tensor, labels: torch.Tensor) -> str:
        inputs = inputs + torch.rand(inputs.shape, generator=self.generator)
        # Three times nothing but a draw from each generator: training itself uses all of them.
        weight = 1 + random.random() * 0.1 + float(np.random.rand()) * 0.1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(inputs), labels) * weight
        self.optim.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optim)
        self.scaler.update()
        self.schedule.step()
        total = sum(float(p.double().sum()) for p in self.model.state_dict().values())
        shown = [loss.item().hex(), total.hex(), float(inputs.double().sum()).hex(), labels.tolist()]
        return " ".join(map(str, [*shown, self.scaler.get_scale(), self.schedule.get_last_lr()]))


def save_every_step(training: Training, folder: Path) -> list[str]:
    """Run to the end with a checkpoint after every step."""
    saver = lux.Saver(folder, max_to_keep=None)
    told = training.run(each_step=lambda now: saver.save_state(now.step, **now.parts))
    saver.close()
    return told


def resumed_at(step: int, folder: Path, training: Training) -> list[str]:
    """Go on with a fresh training from the checkpoint of a step."""
    where = lux.Saver(folder, max_to_keep=None).resume(step, **training.parts)
    training.step = where.step
    assert where.step == step
    return training.run()
