"""Models from strings: build one, ask what it costs, add a block of your own, search for a better one."""

import torch
from torch import Tensor, nn

import luxmeter as lux
from luxmeter.model.plainnet import (
    Budget,
    PlainNet,
    PlainNetBasicBlockClass,
    SearchOptions,
    SuperResK3K3,
    register_block,
    search,
)

torch.set_num_threads(1)
structure = "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,2,8,1)SuperConvK1BNRELU(16,32,1,1)"
net = PlainNet(structure, num_classes=10)
assert str(net) == structure
assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)

# What the formulas say is what a count on the built network gives.
cost = lux.analyze(net, input_size=(1, 3, 32, 32), backward=False)
assert (net.get_model_size(), net.get_FLOPs(32)) == (cost.params, cost.macs)
print(f"{net.get_model_size():,} parameters, {net.get_FLOPs(32):,} multiply-adds")

# One block alone, by its string.
block = SuperResK3K3.create_from_str("SuperResK3K3(8,16,2,8,1)")
block.set_input_channels(4)
assert str(block) == "SuperResK3K3(4,16,2,8,1)"
assert block.get_output_resolution(32) == 16


@register_block
class Gated(PlainNetBasicBlockClass):
    """A convolution times its gate: Gated(in_channels,out_channels,stride). Its costs are counted, not written."""

    def build(self) -> None:
        self.value = nn.Conv2d(self.in_channels, self.out_channels, 3, self.stride, 1)
        self.gate = nn.Conv2d(self.in_channels, self.out_channels, 1, self.stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.value(x) * self.gate(x).sigmoid()
        return out


own = PlainNet("SuperConvK3BNRELU(3,8,1,1)Gated(8,16,2)")
assert own.get_model_size() == sum(p.numel() for p in own.parameters())

# The best Zen score within 20,000 parameters, in a few seconds.
options = SearchOptions(population=8, generations=2, input_size=(4, 3, 16, 16))
found = search(structure, budget=Budget(params=20_000), options=options, keep=False, quiet=True)
assert found.best.params <= 20_000
print(f"best of {found.evaluated}: {found.best.structure}")
