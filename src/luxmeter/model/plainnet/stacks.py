"""Blocks that repeat a pattern of smaller ones: the families of the ZenNAS structure strings.

A family spells its pattern as a structure string of smaller blocks. The kernel (and for IDW the expansion) stands
in the name of a member: SuperResK5K5, SuperResIDWE6K3. A name that ends in SE has squeeze and excitation inside,
which `use_se=True` gives to all of them.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from luxmeter.errors import UsageError
from luxmeter.model.plainnet.block import build_blocks
from luxmeter.model.plainnet.chain import BlockChain
from luxmeter.model.plainnet.parser import parse_structure


class PlainNetSuperBlockClass(BlockChain):
    """A block that is written out as a structure of smaller blocks by `expand()`."""

    arguments: ClassVar[tuple[str, ...]] = ("in_channels", "out_channels", "stride", "sub_layers")
    sub_layers: int

    def expand(self) -> str:
        """The structure string this block stands for."""
        raise UsageError(
            "block-not-usable",
            f"{type(self).__name__} does not say what it stands for.",
            "Give it an expand() that returns a structure string.",
        )

    def lay_out(self) -> None:
        text = self.expand()
        blocks = build_blocks(parse_structure(text), text, self.options, channels=self.in_channels)
        if blocks[-1].out_channels != self.out_channels:
            raise UsageError(
                "structure-channels",
                f"{type(self).__name__} says it gives {self.out_channels} channels, but what it expands to gives "
                f"{blocks[-1].out_channels}: {text}.",
                "Correct its expand().",
            )
        self.module_list = nn.ModuleList(blocks)

    # The words families are spelled with.

    def conv(self, source: int, target: int, kernel_size: int, stride: int = 1) -> str:
        """A convolution and its BN."""
        return f"ConvKX({source},{target},{kernel_size},{stride})" + self.norm(target)

    def depthwise(self, channels: int, kernel_size: int, stride: int = 1) -> str:
        """A depthwise convolution and its BN."""
        return f"ConvDW({channels},{kernel_size},{stride})" + self.norm(channels)

    def norm(self, channels: int) -> str:
        """A BN, unless the network is built without."""
        return "" if self.options.no_bn else f"BN({channels})"


class SuperConvKXBNRELU(PlainNetSuperBlockClass):
    """Convolution, BN, ReLU, `sub_layers` times; the first has the stride."""

    kernel_size: ClassVar[int]

    def expand(self) -> str:
        text, source, stride = "", self.in_channels, self.stride
        for _ in range(self.sub_layers):
            text += (
                self.conv(source, self.out_channels, self.kernel_size, stride) + f"RELU({self.out_channels})"
            )
            source, stride = self.out_channels, 1
        return text


class _Residual(PlainNetSuperBlockClass):
    """Residual bottlenecks: the first shortcut is projected, the later ones where shapes differ."""

    arguments = ("in_channels", "out_channels", "stride", "bottleneck_channels", "sub_layers")
    bottleneck_channels: int
    kernel_size: ClassVar[int]
    se: ClassVar[bool] = False

    def expand(self) -> str:
        text, source, stride = "", self.in_channels, self.stride
        for layer in range(self.sub_layers):
            for part, (inner, target) in enumerate(self.parts(source, stride)):
                if not self.options.no_reslink:
                    inner = f"{'ResBlock' if layer or part else 'ResBlockProj'}({inner})"
                text += f"{inner}RELU({target})"
            source, stride = self.out_channels, 1
        return text

    def parts(self, source: int, stride: int) -> list[tuple[str, int]]:
        """The inner structures of one sub-layer, each with its output channels."""
        raise NotImplementedError

    def excite(self, channels: int) -> str:
        """ReLU, and SE where it is asked for."""
        return f"RELU({channels})" + (f"SE({channels})" if self.se or self.options.use_se else "")


class SuperResKXKX(_Residual):
    """Two convolutions of kernel X a sub-layer."""

    def parts(self, source: int, stride: int) -> list[tuple[str, int]]:
        k, middle, target = self.kernel_size, self.bottleneck_channels, self.out_channels
        return [
            (
                self.conv(source, middle, k, stride) + self.excite(middle) + self.conv(middle, target, k),
                target,
            )
        ]


class SuperResK1KXK1(_Residual):
    """Two bottlenecks a sub-layer, each of kernels 1, X, 1."""

    def parts(self, source: int, stride: int) -> list[tuple[str, int]]:
        target = self.out_channels
        return [(self._bottleneck(source, stride), target), (self._bottleneck(target, 1), target)]

    def _bottleneck(self, source: int, stride: int) -> str:
        middle = self.bottleneck_channels
        return (
            self.conv(source, middle, 1)
            + f"RELU({middle})"
            + self.conv(middle, middle, self.kernel_size, stride)
            + self.excite(middle)
            + self.conv(middle, self.out_channels, 1)
        )


class SuperResIDWEXKX(_Residual):
    """Two inverted depthwise bottlenecks a sub-layer, to the bottleneck's channels and to the output's.

    Each is 1x1, depthwise X, 1x1, with the middle `expansion` times as wide as its output, in multiples of 8.
    """

    expansion: ClassVar[int]

    def parts(self, source: int, stride: int) -> list[tuple[str, int]]:
        middle, target = self.bottleneck_channels, self.out_channels
        return [(self._inverted(source, middle, stride), middle), (self._inverted(middle, target, 1), target)]

    def _inverted(self, source: int, target: int, stride: int) -> str:
        wide = max(8, round(target * self.expansion / 8) * 8)
        return (
            self.conv(source, wide, 1)
            + f"RELU({wide})"
            + self.depthwise(wide, self.kernel_size, stride)
            + self.excite(wide)
            + self.conv(wide, target, 1)
        )
