"""What torch does to itself once a process is done before any test looks."""

from __future__ import annotations

import torch
from torch._subclasses import FakeTensorMode

# The first fake tensor makes torch put a wrapper around its own manual_seed, for good.
with FakeTensorMode():
    torch.empty(1)
