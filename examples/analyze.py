"""What does a model cost? Parameters, FLOPs and memory without computing anything, even for one of 8 billion."""

import torch
from torch import nn

import luxmeter as lux

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
)  # fmt: skip
cost = lux.analyze(net, input_size=(8, 3, 32, 32), backward=True)  # with a training step
print(cost)

# A convolution meets its 3*16*3*3 weights at each of 32*32 positions of 8 images.
assert cost.module("0").macs == 8 * 32 * 32 * 3 * 16 * 3 * 3
assert cost.params == sum(p.numel() for p in net.parameters())
assert cost.unknown_ops == () and net.training

# Backward is counted: the first layer needs no gradient of its input.
assert cost.backward_macs < 2 * cost.macs


class Block(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 32, bias=False, batch_first=True)
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(x)))


with torch.device("meta"):  # no memory is used
    large = nn.Sequential(nn.Embedding(50_000, 4096), *(Block(4096, 4 * 4096) for _ in range(40)))
cost = lux.analyze(large, input_size="1,2048:int64", dtype="bfloat16", optimizer="adamw")
cost = cost.with_training()  # the same, later
print(
    f"{cost.params / 1e9:.1f} billion parameters, training needs {cost.memory.training_peak_bytes / 2**30:.0f} GiB"
)
assert cost.params > 8e9 and cost.memory.optimizer_bytes > 2 * cost.weight_bytes - 1

# `analyze_model` is another name for it.
assert (
    lux.analyze_model(net, input_size=(8, 3, 32, 32)).macs == lux.analyze(net, input_size=(8, 3, 32, 32)).macs
)
