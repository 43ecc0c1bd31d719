"""A training in which the ranks add up their numbers, and rank 1 may fail: for tests of every launcher."""

from __future__ import annotations

_TRAINER = """\
import os
import signal

import torch

import luxmeter as lux
from luxmeter.train import FakeData, dist

fails = os.environ.get("FAILS", "")


class Shared(lux.Trainer):
    def initial_trainer(self, params):
        self.model = torch.nn.Linear(6, 3)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.regist_databundler(train=torch.utils.data.DataLoader(FakeData(16, (6,), 3), batch_size=4))

    def train_batch(self, eidx, idx, global_step, batch_data, params, device):
        group = dist.current_group()
        rank, total = group.rank, dist.all_reduce(torch.tensor([group.rank + 1.0]))
        print(f"step {global_step} rank {rank} of {group.world_size} by {group.launcher}: {total.item():g}", flush=True)
        if params.fails and rank == 1 and global_step == 1:
            if params.fails == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if params.fails == "stops":
                breakpoint()
            else:
                raise ValueError(f"no such batch on rank {rank}, {total.item():g} in all")
        xs, ys = batch_data
        return torch.nn.functional.cross_entropy(self.model(xs), ys)


"""
# What it fails by is said with fails=raises, or in the variable FAILS: raises, killed, stops (in a debugger).
SHARED_CONFIG = f"{_TRAINER}epoch = 1\ntrainer = dict(type=Shared)\n"
SHARED_SCRIPT = f"{_TRAINER}Shared({{'epoch': 1, 'fails': fails}}).train()\n"
