"""The stacks of the TinyNAS structure files, whose kernel is an argument, and those files as structure strings.

They differ from the ZenNAS families of like names: one bottleneck a sub-layer, shortcuts averaged down before they
are projected, and no shortcut where a depthwise bottleneck changes its channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from luxmeter.errors import UsageError, suggestion
from luxmeter.model.plainnet.block import register_block
from luxmeter.model.plainnet.stacks import PlainNetSuperBlockClass


@register_block
class ConvKXBNRELU(PlainNetSuperBlockClass):
    """Convolution, BN, ReLU: ConvKXBNRELU(in_channels,out_channels,kernel_size,stride)."""

    arguments = ("in_channels", "out_channels", "kernel_size", "stride")
    sub_layers = 1
    kernel_size: int

    def expand(self) -> str:
        conv = self.conv(self.in_channels, self.out_channels, self.kernel_size, self.stride)
        return f"{conv}RELU({self.out_channels})"


class _TinyStack(PlainNetSuperBlockClass):
    arguments = ("in_channels", "out_channels", "stride", "bottleneck_channels", "sub_layers", "kernel_size")
    bottleneck_channels: int
    kernel_size: int
    activation: ClassVar[str] = "RELU"
    first_joint: ClassVar[str] = "ResPool"

    def expand(self) -> str:
        text, source, stride, joint = "", self.in_channels, self.stride, self.first_joint
        for _ in range(self.sub_layers):
            inner = self.inner(source, stride)
            linked = not self.options.no_reslink and (joint or source == self.out_channels)
            text += f"{joint or 'ResPool'}({inner})" if linked else inner
            text += f"{self.activation}({self.out_channels})"
            source, stride, joint = self.out_channels, 1, "ResPool"
        return text

    def inner(self, source: int, stride: int) -> str:
        """The structure of one sub-layer."""
        raise NotImplementedError

    def act(self, channels: int) -> str:
        """The activation between convolutions."""
        return f"{self.activation}({channels})"


@register_block
class SuperResK1KX(_TinyStack):
    """1x1 and kernel X a sub-layer."""

    def inner(self, source: int, stride: int) -> str:
        middle = self.bottleneck_channels
        second = self.conv(middle, self.out_channels, self.kernel_size, stride)
        return self.conv(source, middle, 1) + self.act(middle) + second


@register_block
class TinyResKXKX(_TinyStack):
    """Two convolutions of kernel X a sub-layer."""

    def inner(self, source: int, stride: int) -> str:
        middle, k = self.bottleneck_channels, self.kernel_size
        return (
            self.conv(source, middle, k, stride) + self.act(middle) + self.conv(middle, self.out_channels, k)
        )


@register_block
class TinyResK1KXK1(_TinyStack):
    """1x1, kernel X, 1x1 a sub-layer; the first shortcut is always projected."""

    first_joint = "ResPoolProj"

    def inner(self, source: int, stride: int) -> str:
        middle = self.bottleneck_channels
        return (
            self.conv(source, middle, 1)
            + self.act(middle)
            + self.conv(middle, middle, self.kernel_size, stride)
            + self.act(middle)
            + self.conv(middle, self.out_channels, 1)
        )


@register_block
class SuperResK1DWK1(_TinyStack):
    """1x1, depthwise X, 1x1 a sub-layer; no shortcut where the channels change."""

    first_joint = ""

    def inner(self, source: int, stride: int) -> str:
        middle = self.bottleneck_channels
        return (
            self.conv(source, middle, 1)
            + self.act(middle)
            + self.depthwise(middle, self.kernel_size, stride)
            + self.act(middle)
            + self.excite(middle)
            + self.conv(middle, self.out_channels, 1)
        )

    def excite(self, channels: int) -> str:
        """SE where it is asked for."""
        return f"SESwish({channels})" if self.options.use_se else ""


@register_block
class SuperResK1DWSEK1(SuperResK1DWK1):
    """SuperResK1DWK1 with squeeze and excitation after the depthwise convolution, and Swish for ReLU."""

    activation = "Swish"

    def excite(self, channels: int) -> str:
        return f"SESwish({channels})"


_STACK = ("in", "out", "s", "btn", "L", "k")
_TINY = {
    "ConvKXBNRELU": ("ConvKXBNRELU", ("in", "out", "k", "s")),
    "SuperResK1KX": ("SuperResK1KX", _STACK),
    "SuperResKXKX": ("TinyResKXKX", _STACK),
    "SuperResK1KXK1": ("TinyResK1KXK1", _STACK),
    "SuperResK1DWK1": ("SuperResK1DWK1", _STACK),
    "SuperResK1DWSEK1": ("SuperResK1DWSEK1", _STACK),
}
_SAME_MEANING = {"p", "g", "inner_class", "class"}


def structure_from_info(info: Sequence[Mapping[str, Any]]) -> str:
    """The structure string of a TinyNAS `structure_info`: a list of {"class", "in", "out", "s", "k", ...}."""
    return "".join(_one(block, number) for number, block in enumerate(info, start=1))


def _one(block: Mapping[str, Any], number: int) -> str:
    name = str(block.get("class"))
    if name not in _TINY:
        raise UsageError(
            "structure-info",
            f"Block {number} of the structure has the class {name!r}, which has no string form.",
            suggestion(name, _TINY) or f"Known: {', '.join(_TINY)}.",
        )
    known, fields = _TINY[name]
    values = {"s": 1, **block}
    missing = [key for key in fields if key not in values]
    k = int(values.get("k", 1))
    other = [key for key in values if key not in fields and key not in _SAME_MEANING]
    if int(values.get("p", (k - 1) // 2)) != (k - 1) // 2:
        other.append("p")
    if int(values.get("g", 1)) != 1:
        other.append("g")
    if missing or other:
        what = (
            f"lacks {', '.join(missing)}" if missing else f"has {', '.join(other)}, which a string cannot say"
        )
        raise UsageError(
            "structure-info",
            f"Block {number} ({name}) of the structure {what}.",
            f"Its fields are {', '.join(fields)}.",
        )
    return f"{known}({','.join(str(int(values[key])) for key in fields)})"
