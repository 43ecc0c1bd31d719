"""Blocks around a shortcut: what they hold is added to what came in."""

from __future__ import annotations

from torch import Tensor, nn

from luxmeter.model.plainnet.block import register_block
from luxmeter.model.plainnet.joints import PROBE, Joint


@register_block
class ResBlock(Joint):
    """Blocks plus a shortcut, projected where shapes differ: ResBlock([in_channels,[stride,]]blocks)."""

    arguments = ("in_channels", "stride")
    optional = 2
    branch_limits = (1, 1)
    proj: nn.Module | None
    proj_bias = True

    @property
    def projects(self) -> bool:
        """Whether the shortcut has a 1x1 convolution and a BN."""
        return self.stride > 1 or self.in_channels != self.out_channels

    @property
    def proj_stride(self) -> int:
        """The stride of that convolution."""
        return self.stride

    def lay_out(self) -> None:
        given_stride = self.stride if self._given == 2 else None
        super().lay_out()
        self.given_stride = given_stride

    def build(self) -> None:
        self.proj = self.make_proj() if self.projects else None

    def make_proj(self) -> nn.Module:
        """The 1x1 convolution and BN of the shortcut."""
        conv = nn.Conv2d(self.in_channels, self.out_channels, 1, self.proj_stride, bias=self.proj_bias)
        return nn.Sequential(conv, nn.BatchNorm2d(self.out_channels))

    def mismatch(self) -> str | None:
        name = type(self).__name__
        if self.given_stride not in (None, self.stride):
            return (
                f"stride of {name} is {self.given_stride}, but its blocks together have stride {self.stride}"
            )
        for size in (PROBE, PROBE - 1):
            if self.get_output_resolution(size) != -(-size // self.stride):
                return f"The blocks of {name} change the resolution in a way its shortcut cannot follow"
        return None

    def shortcut(self, x: Tensor) -> Tensor:
        """What is added to the blocks' output."""
        return x if self.proj is None else self.proj(x)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shortcut(x)

    def get_FLOPs(self, input_resolution: int) -> int:
        flops = super().get_FLOPs(input_resolution)
        if self.projects:
            flops += self.in_channels * self.out_channels * self.get_output_resolution(input_resolution) ** 2
        return flops

    def get_elementwise(self, input_resolution: int) -> int:
        # The addition; the projection's bias and BN.
        per_element = 1 + (self.proj_bias + 2 if self.projects else 0)
        elements = self.out_channels * self.get_output_resolution(input_resolution) ** 2
        return super().get_elementwise(input_resolution) + per_element * elements

    def get_model_size(self) -> int:
        size = super().get_model_size()
        if self.projects:
            size += self.out_channels * (self.in_channels + 2 + self.proj_bias)
        return size


@register_block
class ResBlockProj(ResBlock):
    """ResBlock whose shortcut is always projected."""

    @property
    def projects(self) -> bool:
        return True


@register_block
class ResPool(ResBlock):
    """ResBlock whose shortcut is averaged down first and projected (without bias) where channels differ."""

    proj_bias = False

    @property
    def projects(self) -> bool:
        return self.in_channels != self.out_channels

    @property
    def proj_stride(self) -> int:
        return 1

    def shortcut(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            # ceil_mode: an odd size gives what a padded convolution of this stride gives
            x = nn.functional.avg_pool2d(x, self.stride, self.stride, ceil_mode=True)
        return super().shortcut(x)

    def get_elementwise(self, input_resolution: int) -> int:
        pooled = self.in_channels * (self.stride * self.get_output_resolution(input_resolution)) ** 2
        return super().get_elementwise(input_resolution) + (pooled if self.stride > 1 else 0)


@register_block
class ResPoolProj(ResPool):
    """ResPool whose shortcut is always projected."""

    @property
    def projects(self) -> bool:
        return True
