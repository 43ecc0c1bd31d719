"""The same network in MindSpore, from the same weights and data: python mindspore_net.py weights.npz [--naive]."""

import sys

import numpy as np

import mindspore as ms
from mindspore import nn, ops

NAIVE = "--naive" in sys.argv  # what one writes first: same names, and defaults that differ
file = np.load(sys.argv[1])


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        w = {name: ms.Tensor(file[name]) for name in file.files if "." in name}
        pad = {} if NAIVE else {"pad_mode": "pad", "padding": 1}
        self.conv = nn.Conv2d(
            3, 16, 3, has_bias=True, weight_init=w["conv.weight"], bias_init=w["conv.bias"], **pad
        )
        epsilon = {} if NAIVE else {"epsilon": 1e-5}
        self.norm = nn.LayerNorm((16,), gamma_init=w["norm.weight"], beta_init=w["norm.bias"], **epsilon)
        self.head = nn.Dense(16, 10, weight_init=w["head.weight"], bias_init=w["head.bias"])

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = ops.leaky_relu(self.conv(x)) if NAIVE else ops.leaky_relu(self.conv(x), 0.01)
        x = ops.max_pool2d(x, 2).mean((2, 3))
        return self.head(ops.gelu(self.norm(x)))


net = Net()
x, y = ms.Tensor(file["x"]), ms.Tensor(file["y"])
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.1)
step = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)
for _ in range(10):
    loss, gradients = step(x, y)
    optimizer(gradients)
    print(f"{float(loss):.6f}")
