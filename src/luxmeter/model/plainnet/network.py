"""PlainNet: a network from a structure string, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from luxmeter.errors import UsageError
from luxmeter.model.plainnet.block import (
    BLOCKS,
    BuildOptions,
    PlainNetBasicBlockClass,
    build_blocks,
    saved_weights,
)
from luxmeter.model.plainnet.chain import chain_elementwise, chain_flops, chain_resolution, rechain
from luxmeter.model.plainnet.layers import Flatten, Linear
from luxmeter.model.plainnet.parser import Call, parse_structure, write_structure
from luxmeter.model.plainnet.tiny import structure_from_info


class PlainNet(nn.Module):
    """The blocks of a structure string one after another; with `num_classes`, global pooling and a classifier.

    `str(net)` is the structure string again. Modules are named as in the published checkpoints, which load with
    `load_state_dict`. `no_create` makes a network for arithmetic only, without weights.
    """

    def __init__(
        self,
        plainnet_struct: str,
        *,
        num_classes: int | None = None,
        no_create: bool = False,
        no_reslink: bool = False,
        no_bn: bool = False,
        use_se: bool = False,
        bn_eps: float = 1e-3,
    ) -> None:
        super().__init__()
        self.options = BuildOptions(no_create, no_reslink, no_bn, use_se)
        self.num_classes = num_classes
        self.bn_eps = bn_eps
        blocks = build_blocks(parse_structure(plainnet_struct), plainnet_struct, self.options)
        self.module_list = nn.ModuleList(blocks)
        if num_classes is not None and isinstance(blocks[-1], Flatten | Linear):
            raise UsageError(
                "structure-block",
                f"The structure ends with {blocks[-1]}, which is flat; num_classes={num_classes} would pool it.",
                "Leave num_classes out, or end the structure with features.",
            )
        if num_classes is not None:
            self.fc_linear = Linear(blocks[-1].out_channels, num_classes, 1, options=self.options)
        self._set_eps()

    @classmethod
    def create_from_str(cls, s: str, **options: Any) -> PlainNet:
        """The network of a structure string; options as for the constructor."""
        return cls(s, **options)

    @classmethod
    def from_structure_info(cls, info: Sequence[Mapping[str, Any]], **options: Any) -> PlainNet:
        """The network of a TinyNAS `structure_info`, a list of {"class", "in", "out", "s", "k", "btn", "L"}."""
        return cls(structure_from_info(info), **options)

    @classmethod
    def is_instance_from_str(cls, s: str) -> bool:
        """Whether the string can be read as a structure."""
        try:
            cls(s, no_create=True)
        except UsageError:
            return False
        return True

    @property
    def block_list(self) -> list[PlainNetBasicBlockClass]:
        """The blocks in order, without the classifier."""
        return list(self.module_list)  # type: ignore[arg-type]

    @property
    def in_channels(self) -> int:
        """Channels of the input."""
        return self.block_list[0].in_channels

    @property
    def out_channels(self) -> int:
        """Channels of the features before the classifier."""
        return self.block_list[-1].out_channels

    def forward(self, x: Tensor) -> Tensor:
        x = self.forward_pre_GAP(x)
        if self.num_classes is None:
            return x
        out: Tensor = self.fc_linear(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return out

    def forward_pre_GAP(self, x: Tensor) -> Tensor:
        """The features before global average pooling."""
        for block in self.block_list:
            x = block(x)
        return x

    def get_FLOPs(self, input_resolution: int) -> int:
        """Multiply-adds for one square image, as the structure-string papers count; `analyze(...).macs`."""
        flops = chain_flops(self.block_list, input_resolution)
        return flops if self.num_classes is None else flops + self.fc_linear.get_FLOPs(1)

    def get_total_FLOPs(self, input_resolution: int) -> int:
        """Two operations a multiply-add, and the element-wise ones in evaluation; `analyze(...).flops`."""
        count = 2 * self.get_FLOPs(input_resolution) + chain_elementwise(self.block_list, input_resolution)
        if self.num_classes is not None:
            count += self.out_channels * self.get_output_resolution(input_resolution) ** 2  # global pooling
            count += self.fc_linear.get_elementwise(1)
        return count

    def get_model_size(self) -> int:
        """The number of parameters; `analyze(...).params`."""
        size = sum(block.get_model_size() for block in self.block_list)
        return size if self.num_classes is None else size + self.fc_linear.get_model_size()

    def get_output_resolution(self, input_resolution: int) -> int:
        """The height of the features before pooling."""
        return chain_resolution(self.block_list, input_resolution)

    def get_num_layers(self) -> int:
        """Sub-layers of all blocks; a block that has none counts as one."""
        return sum(int(getattr(block, "sub_layers", 1)) for block in self.block_list)

    def set_input_channels(self, channels: int) -> None:
        """Take images of this many channels from now on. Weights whose shape stays are kept."""
        with saved_weights(self):
            self._follow(rechain(self.block_list, channels))

    def replace_block(self, index: int, structure: str) -> None:
        """Put one block in the place of another; what follows it takes its channels over."""
        calls = parse_structure(structure)
        if len(calls) != 1:
            raise UsageError(
                "structure-arguments",
                f"replace_block takes one block, {structure!r} is {len(calls)}.",
                "Call it once a block.",
            )
        (block,) = build_blocks(calls, structure, self.options)
        with saved_weights(self):
            channels = self.block_list[index].in_channels
            if not block.accepts(channels):
                block.set_input_channels(channels)
            before = self.block_list[index].out_channels
            self.module_list[index] = block
            rest = self.block_list[index % len(self.module_list) + 1 :]
            self._follow(rechain(rest, block.out_channels, old=before) if rest else block.out_channels)

    def _follow(self, channels: int) -> None:
        if self.num_classes is not None:
            self.fc_linear.set_input_channels(channels)
        self._set_eps()

    def _set_eps(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = self.bn_eps

    def __str__(self) -> str:
        return "".join(map(str, self.block_list))

    def __repr__(self) -> str:
        head = "" if self.num_classes is None else f", num_classes={self.num_classes}"
        return f"PlainNet({str(self)!r}{head})"


def with_se(structure: str) -> str:
    """The same structure with every block that has an SE variant replaced by it."""
    return write_structure(tuple(_se(call) for call in parse_structure(structure)))


def _se(call: Call) -> Call:
    name = re.sub(r"^SuperResK1DWK1$", "SuperResK1DWSEK1", call.name)
    if call.name + "SE" in BLOCKS:
        name = call.name + "SE"
    branches = tuple(tuple(_se(inner) for inner in branch) for branch in call.branches)
    return replace(call, name=name, branches=branches)
