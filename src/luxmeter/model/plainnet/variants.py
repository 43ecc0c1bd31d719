"""The members of the families by name: kernel, expansion and SE are part of the name."""

from __future__ import annotations

from luxmeter.model.plainnet.block import register_block
from luxmeter.model.plainnet.stacks import SuperConvKXBNRELU, SuperResIDWEXKX, SuperResK1KXK1, SuperResKXKX

# One class a name, so that each can be imported, pickled and found by a type checker.


@register_block
class SuperConvK1BNRELU(SuperConvKXBNRELU):
    """Convolution 1x1, BN, ReLU: (in_channels,out_channels,stride,sub_layers)."""

    kernel_size = 1


@register_block
class SuperConvK3BNRELU(SuperConvKXBNRELU):
    """Convolution 3x3, BN, ReLU: (in_channels,out_channels,stride,sub_layers)."""

    kernel_size = 3


@register_block
class SuperConvK5BNRELU(SuperConvKXBNRELU):
    """Convolution 5x5, BN, ReLU: (in_channels,out_channels,stride,sub_layers)."""

    kernel_size = 5


@register_block
class SuperConvK7BNRELU(SuperConvKXBNRELU):
    """Convolution 7x7, BN, ReLU: (in_channels,out_channels,stride,sub_layers)."""

    kernel_size = 7


@register_block
class SuperResK3K3(SuperResKXKX):
    """Residual 3x3, 3x3."""

    kernel_size = 3


@register_block
class SuperResK5K5(SuperResKXKX):
    """Residual 5x5, 5x5."""

    kernel_size = 5


@register_block
class SuperResK7K7(SuperResKXKX):
    """Residual 7x7, 7x7."""

    kernel_size = 7


@register_block
class SuperResK1K3K1(SuperResK1KXK1):
    """Residual bottlenecks 1x1, 3x3, 1x1."""

    kernel_size = 3


@register_block
class SuperResK1K5K1(SuperResK1KXK1):
    """Residual bottlenecks 1x1, 5x5, 1x1."""

    kernel_size = 5


@register_block
class SuperResK1K7K1(SuperResK1KXK1):
    """Residual bottlenecks 1x1, 7x7, 1x1."""

    kernel_size = 7


@register_block
class SuperResIDWE1K3(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 1, depthwise 3x3."""

    kernel_size = 3
    expansion = 1


@register_block
class SuperResIDWE2K3(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 2, depthwise 3x3."""

    kernel_size = 3
    expansion = 2


@register_block
class SuperResIDWE4K3(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 4, depthwise 3x3."""

    kernel_size = 3
    expansion = 4


@register_block
class SuperResIDWE6K3(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 6, depthwise 3x3."""

    kernel_size = 3
    expansion = 6


@register_block
class SuperResIDWE1K5(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 1, depthwise 5x5."""

    kernel_size = 5
    expansion = 1


@register_block
class SuperResIDWE2K5(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 2, depthwise 5x5."""

    kernel_size = 5
    expansion = 2


@register_block
class SuperResIDWE4K5(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 4, depthwise 5x5."""

    kernel_size = 5
    expansion = 4


@register_block
class SuperResIDWE6K5(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 6, depthwise 5x5."""

    kernel_size = 5
    expansion = 6


@register_block
class SuperResIDWE1K7(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 1, depthwise 7x7."""

    kernel_size = 7
    expansion = 1


@register_block
class SuperResIDWE2K7(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 2, depthwise 7x7."""

    kernel_size = 7
    expansion = 2


@register_block
class SuperResIDWE4K7(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 4, depthwise 7x7."""

    kernel_size = 7
    expansion = 4


@register_block
class SuperResIDWE6K7(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 6, depthwise 7x7."""

    kernel_size = 7
    expansion = 6


@register_block
class SuperResK3K3SE(SuperResKXKX):
    """Residual 3x3, 3x3 with SE."""

    kernel_size = 3
    se = True


@register_block
class SuperResK5K5SE(SuperResKXKX):
    """Residual 5x5, 5x5 with SE."""

    kernel_size = 5
    se = True


@register_block
class SuperResK7K7SE(SuperResKXKX):
    """Residual 7x7, 7x7 with SE."""

    kernel_size = 7
    se = True


@register_block
class SuperResK1K3K1SE(SuperResK1KXK1):
    """Residual bottlenecks 1x1, 3x3, 1x1 with SE."""

    kernel_size = 3
    se = True


@register_block
class SuperResK1K5K1SE(SuperResK1KXK1):
    """Residual bottlenecks 1x1, 5x5, 1x1 with SE."""

    kernel_size = 5
    se = True


@register_block
class SuperResK1K7K1SE(SuperResK1KXK1):
    """Residual bottlenecks 1x1, 7x7, 1x1 with SE."""

    kernel_size = 7
    se = True


@register_block
class SuperResIDWE1K3SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 1, depthwise 3x3 with SE."""

    kernel_size = 3
    expansion = 1
    se = True


@register_block
class SuperResIDWE2K3SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 2, depthwise 3x3 with SE."""

    kernel_size = 3
    expansion = 2
    se = True


@register_block
class SuperResIDWE4K3SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 4, depthwise 3x3 with SE."""

    kernel_size = 3
    expansion = 4
    se = True


@register_block
class SuperResIDWE6K3SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 6, depthwise 3x3 with SE."""

    kernel_size = 3
    expansion = 6
    se = True


@register_block
class SuperResIDWE1K5SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 1, depthwise 5x5 with SE."""

    kernel_size = 5
    expansion = 1
    se = True


@register_block
class SuperResIDWE2K5SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 2, depthwise 5x5 with SE."""

    kernel_size = 5
    expansion = 2
    se = True


@register_block
class SuperResIDWE4K5SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 4, depthwise 5x5 with SE."""

    kernel_size = 5
    expansion = 4
    se = True


@register_block
class SuperResIDWE6K5SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 6, depthwise 5x5 with SE."""

    kernel_size = 5
    expansion = 6
    se = True


@register_block
class SuperResIDWE1K7SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 1, depthwise 7x7 with SE."""

    kernel_size = 7
    expansion = 1
    se = True


@register_block
class SuperResIDWE2K7SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 2, depthwise 7x7 with SE."""

    kernel_size = 7
    expansion = 2
    se = True


@register_block
class SuperResIDWE4K7SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 4, depthwise 7x7 with SE."""

    kernel_size = 7
    expansion = 4
    se = True


@register_block
class SuperResIDWE6K7SE(SuperResIDWEXKX):
    """Inverted bottlenecks, expansion 6, depthwise 7x7 with SE."""

    kernel_size = 7
    expansion = 6
    se = True
