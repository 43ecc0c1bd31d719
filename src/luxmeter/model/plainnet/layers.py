"""The smallest blocks: one layer each. Attribute names are those of the published checkpoints (`netblock`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from luxmeter.model.plainnet.block import PlainNetBasicBlockClass, register_block


class _Layer(PlainNetBasicBlockClass):
    """A block around one module, `netblock`; by itself it changes no resolution and costs nothing."""

    netblock: nn.Module
    per_element: ClassVar[int] = 0
    """Operations on each element of the output."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.netblock(x)
        return out

    def get_output_resolution(self, input_resolution: int) -> int:
        return input_resolution

    def get_FLOPs(self, input_resolution: int) -> int:
        return 0

    def get_elementwise(self, input_resolution: int) -> int:
        return self.per_element * self.out_channels * self.get_output_resolution(input_resolution) ** 2

    def get_model_size(self) -> int:
        return 0


class _Windowed(_Layer):
    """A layer that slides a window of `kernel_size` with `stride`, padded as if to keep the size."""

    kernel_size: int

    @property
    def padding(self) -> int:
        return (self.kernel_size - 1) // 2

    def get_output_resolution(self, input_resolution: int) -> int:
        return (input_resolution + 2 * self.padding - self.kernel_size) // self.stride + 1


@register_block
class ConvKX(_Windowed):
    """Convolution without bias: ConvKX(in_channels,out_channels,kernel_size,stride)."""

    arguments = ("in_channels", "out_channels", "kernel_size", "stride")
    groups: ClassVar[int] = 1

    @classmethod
    def problem(cls, values: Sequence[int]) -> tuple[int | None, str] | None:
        found = super().problem(values)
        if found:
            return found
        for index in (0, 1):
            if values[index] % cls.groups:
                name = cls.arguments[index]
                return (
                    index,
                    f"{name} of {cls.__name__} is {values[index]}, a multiple of {cls.groups} is needed",
                )
        return None

    def build(self) -> None:
        self.netblock = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            self.kernel_size,
            self.stride,
            self.padding,
            groups=self.groups,
            bias=False,
        )

    def get_FLOPs(self, input_resolution: int) -> int:
        return self.get_model_size() * self.get_output_resolution(input_resolution) ** 2

    def get_model_size(self) -> int:
        return self.in_channels // self.groups * self.out_channels * self.kernel_size**2


@register_block
class ConvKXG2(ConvKX):
    """ConvKX in 2 groups."""

    groups = 2


@register_block
class ConvKXG4(ConvKX):
    """ConvKX in 4 groups."""

    groups = 4


@register_block
class ConvKXG8(ConvKX):
    """ConvKX in 8 groups."""

    groups = 8


@register_block
class ConvKXG16(ConvKX):
    """ConvKX in 16 groups."""

    groups = 16


@register_block
class ConvKXG32(ConvKX):
    """ConvKX in 32 groups."""

    groups = 32


@register_block
class ConvDW(_Windowed):
    """Depthwise convolution without bias: ConvDW(channels,kernel_size,stride)."""

    arguments = ("channels", "kernel_size", "stride")

    def build(self) -> None:
        c = self.in_channels
        self.netblock = nn.Conv2d(c, c, self.kernel_size, self.stride, self.padding, groups=c, bias=False)

    def get_FLOPs(self, input_resolution: int) -> int:
        return self.get_model_size() * self.get_output_resolution(input_resolution) ** 2

    def get_model_size(self) -> int:
        return self.in_channels * self.kernel_size**2


@register_block
class MaxPool(_Windowed):
    """Max pooling: MaxPool(channels,kernel_size,stride)."""

    arguments = ("channels", "kernel_size", "stride")

    def build(self) -> None:
        self.netblock = nn.MaxPool2d(self.kernel_size, self.stride, self.padding)

    def get_elementwise(self, input_resolution: int) -> int:
        return self.out_channels * (self.kernel_size * self.get_output_resolution(input_resolution)) ** 2


@register_block
class BN(_Layer):
    """Batch normalisation: BN(channels)."""

    arguments = ("channels",)
    per_element = 2

    def build(self) -> None:
        self.netblock = nn.BatchNorm2d(self.in_channels)

    def get_model_size(self) -> int:
        return 2 * self.in_channels


@register_block
class RELU(_Layer):
    """ReLU: RELU(channels)."""

    arguments = ("channels",)
    per_element = 1

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


@register_block
class Swish(_Layer):
    """x * sigmoid(x): Swish(channels)."""

    arguments = ("channels",)
    per_element = 1

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


@register_block
class SE(_Layer):
    """Squeeze and excitation through a quarter of the channels: SE(channels)."""

    arguments = ("channels",)
    activation: ClassVar[type[nn.Module]] = nn.ReLU

    @property
    def se_channels(self) -> int:
        """Channels between the two 1x1 convolutions."""
        return max(1, round(self.in_channels * 0.25))

    def build(self) -> None:
        wide, narrow = self.in_channels, self.se_channels
        self.netblock = nn.Sequential(
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Conv2d(wide, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            self.activation(),
            nn.Conv2d(narrow, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.netblock(x)
        return scale * x

    def get_FLOPs(self, input_resolution: int) -> int:
        return 2 * self.in_channels * self.se_channels

    def get_elementwise(self, input_resolution: int) -> int:
        # Pooled and scaled: twice every element. Between: BN and activation, BN and sigmoid.
        return 2 * self.in_channels * input_resolution**2 + 3 * (self.se_channels + self.in_channels)

    def get_model_size(self) -> int:
        return 2 * self.in_channels * self.se_channels + 2 * (self.in_channels + self.se_channels)


@register_block
class SESwish(SE):
    """SE with Swish inside and its narrow channels a multiple of 8: SESwish(channels)."""

    activation = nn.SiLU

    @property
    def se_channels(self) -> int:
        """Channels between the two 1x1 convolutions."""
        return max(1, round(self.in_channels * 0.25) // 8) * 8


@register_block
class AdaptiveAvgPool(_Layer):
    """Average pooling to a fixed size: AdaptiveAvgPool(channels,output_size)."""

    arguments = ("channels", "output_size")
    output_size: int

    def build(self) -> None:
        self.netblock = nn.AdaptiveAvgPool2d(self.output_size)

    def get_elementwise(self, input_resolution: int) -> int:
        return self.in_channels * max(input_resolution, self.output_size) ** 2

    def get_output_resolution(self, input_resolution: int) -> int:
        return self.output_size


@register_block
class Flatten(_Layer):
    """(N,C,H,W) -> (N,channels): Flatten(channels)."""

    arguments = ("channels",)

    def accepts(self, channels: int) -> bool:
        return self.out_channels % channels == 0  # the rest is height x width

    def follow(self, old: int, new: int) -> None:
        self.set_input_channels(self.out_channels // old * new)

    def forward(self, x: Tensor) -> Tensor:
        return torch.flatten(x, 1)

    def get_output_resolution(self, input_resolution: int) -> int:
        return 1


@register_block
class Linear(_Layer):
    """Linear layer on flat features: Linear(in_channels,out_channels,bias), bias 0 or 1."""

    arguments = ("in_channels", "out_channels", "bias")
    bias: int

    def build(self) -> None:
        self.netblock = nn.Linear(self.in_channels, self.out_channels, bias=bool(self.bias))

    def get_FLOPs(self, input_resolution: int) -> int:
        return self.in_channels * self.out_channels

    def get_elementwise(self, input_resolution: int) -> int:
        return self.out_channels if self.bias else 0

    def get_model_size(self) -> int:
        return self.in_channels * self.out_channels + (self.out_channels if self.bias else 0)
