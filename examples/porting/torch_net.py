"""A small network, trained for a few steps: the one to port. Its weights and data go into weights.npz."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(self.conv(x))
        x = F.max_pool2d(x, 2).mean(dim=(2, 3))
        return self.head(F.gelu(self.norm(x)))


net = Net()
x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
if len(sys.argv) > 1:
    values = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    np.savez(Path(sys.argv[1]), x=x.numpy(), y=y.numpy(), **values)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
