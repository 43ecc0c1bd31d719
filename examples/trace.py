"""Time every torch call of a training step, by API, by module and by section."""

import torch
from torch import nn

import luxmeter as lux


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


net = Net()
optimizer = torch.optim.Adam(net.parameters())
x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))

with lux.trace() as t:
    for _ in range(20):
        with t.section("forward"):
            loss = nn.functional.cross_entropy(net(x), y)
        with t.section("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

print(t)
print(t.table("module"))
print(t.tree())

assert t.table()["torch.nn.Linear"].n == 40
assert {row.name for row in t.table("section")} == {"forward", "backward"}
assert t.sql("select count(*) as n from calls where name = 'torch.relu'")["n"][0].as_py() == 20
