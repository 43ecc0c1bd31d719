"""A training whose loss becomes nan at step 8, for the tests of NaNGuard."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

import luxmeter as lux


class Broken(lux.Trainer):
    """Six batches an epoch. The nan depends on weights, batch and draws: whoever makes the step again needs all of them."""

    def initial_trainer(self, params: Any) -> None:
        lux.random.fix_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        self.optim = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.seen: list[float] = []
        data = torch.arange(48.0).reshape(12, 4)
        if params.kind == "data":
            data[7, 1] = torch.nan
        if params.kind == "infinite data":
            data[7, 1] = torch.inf
        self.regist_databundler(train=lux.DataLoader(data, batch_size=2, shuffle=True))

    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: Any
    ) -> Any:
        out = self.model(batch_data / 48).tanh()
        self.seen.append(float(out.detach().sum()) + random.random() + float(np.random.rand()))
        loss = (out - 2).square().mean()
        if global_step >= 8:
            loss = self.broken(out, params.kind)
        if params.get("steps_itself"):
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            return {"loss": loss.detach()}
        return loss

    def broken(self, out: torch.Tensor, kind: str) -> torch.Tensor:
        if kind == "forward":
            return torch.log(out - 2).square().mean()  # a nan, with a gradient that is one, too
        if kind == "backward":
            return torch.sqrt((out - out.detach()).square()).mean()  # 0, whose gradient is 0 times infinity
        return (1 / (out - out.detach())).mean()  # infinite
