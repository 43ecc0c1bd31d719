"""Blocks one after another: what comes out, what it costs, and a change of channels passed on."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from luxmeter.model.plainnet.block import PlainNetBasicBlockClass


def chain_resolution(blocks: Sequence[PlainNetBasicBlockClass], resolution: int) -> int:
    """The resolution after these blocks, one after another."""
    for block in blocks:
        resolution = block.get_output_resolution(resolution)
    return resolution


def chain_flops(blocks: Sequence[PlainNetBasicBlockClass], resolution: int) -> int:
    """The multiply-adds of these blocks, one after another."""
    flops = 0
    for block in blocks:
        flops += block.get_FLOPs(resolution)
        resolution = block.get_output_resolution(resolution)
    return flops


def chain_elementwise(blocks: Sequence[PlainNetBasicBlockClass], resolution: int) -> int:
    """The other operations of these blocks, one after another."""
    count = 0
    for block in blocks:
        count += block.get_elementwise(resolution)
        resolution = block.get_output_resolution(resolution)
    return count


def rechain(blocks: Sequence[PlainNetBasicBlockClass], channels: int, *, old: int | None = None) -> int:
    """Let `channels` come in where `old` did, and pass the change on; what comes out at the end."""
    old = blocks[0].in_channels if old is None else old
    for block in blocks:
        if channels == old:
            break
        before = block.out_channels
        block.follow(old, channels)
        old, channels = before, block.out_channels
    return blocks[-1].out_channels


class BlockChain(PlainNetBasicBlockClass):
    """A block that is the blocks of its `module_list` (the name the published checkpoints use), one after another."""

    module_list: nn.ModuleList

    @property
    def block_list(self) -> list[PlainNetBasicBlockClass]:
        """The inner blocks."""
        return list(self.module_list)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block_list:
            x = block(x)
        return x

    def get_output_resolution(self, input_resolution: int) -> int:
        return chain_resolution(self.block_list, input_resolution)

    def get_FLOPs(self, input_resolution: int) -> int:
        return chain_flops(self.block_list, input_resolution)

    def get_elementwise(self, input_resolution: int) -> int:
        return chain_elementwise(self.block_list, input_resolution)

    def get_model_size(self) -> int:
        return sum(block.get_model_size() for block in self.block_list)
