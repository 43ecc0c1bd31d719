"""What torch changes in itself the first time it is used: done now, so that no test seems to have changed torch."""

from __future__ import annotations

import torch
import torch._dynamo  # wraps torch.manual_seed and others
import torch._inductor.config
from torch import nn

# The first optimizer of a class wraps the class's step.
for _optimizer in (torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW):
    _optimizer([nn.Parameter(torch.ones(1))], lr=0.1)
