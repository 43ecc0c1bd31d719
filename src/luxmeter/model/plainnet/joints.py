"""Blocks that hold blocks: one after another, and side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from luxmeter.errors import UsageError
from luxmeter.model.plainnet.block import (
    PLAIN,
    BuildOptions,
    PlainNetBasicBlockClass,
    build_blocks,
    register_block,
    saved_weights,
)
from luxmeter.model.plainnet.chain import BlockChain, chain_resolution, rechain
from luxmeter.model.plainnet.parser import Call, Number, pointed

Blocks = list[PlainNetBasicBlockClass]
PROBE = 1024
"""A resolution that any sensible sequence of strides divides."""


class Joint(BlockChain):
    """A block that is written with blocks in its parentheses."""

    arguments: ClassVar[tuple[str, ...]] = ()
    _branches: Sequence[Blocks]
    _given: int

    def __init__(
        self,
        *values: int,
        branches: Sequence[Blocks],
        options: BuildOptions = PLAIN,
        block_name: str | None = None,
    ) -> None:
        self.__dict__["_branches"] = branches  # before Module.__init__, which lay_out() comes after
        self.__dict__["_given"] = len(values)
        super().__init__(*values, options=options, block_name=block_name)

    @classmethod
    def from_call(cls, call: Call, text: str, options: BuildOptions) -> Self:
        cls.check_call(call, text)
        channels = call.values[0] if call.numbers else None
        branches = []
        for branch in call.branches:
            blocks = build_blocks(branch, text, options, channels=channels)
            branches.append(blocks)
            channels = blocks[0].in_channels  # all branches take the same input
        made = cls(*call.values, branches=branches, options=options, block_name=call.label)
        problem = made.mismatch()
        if problem:
            raise UsageError("structure-arguments", pointed(text, call.start, problem), cls.usage())
        return made

    def mismatch(self) -> str | None:
        """What keeps the inner blocks from working together."""
        return None

    def lay_out(self) -> None:
        (blocks,) = self._branches
        self.module_list = nn.ModuleList(blocks)
        self.in_channels, self.out_channels = blocks[0].in_channels, blocks[-1].out_channels
        self.stride = -(-PROBE // chain_resolution(blocks, PROBE))

    def call(self) -> Call:
        numbers = tuple(Number(int(getattr(self, name))) for name in self.arguments[: self._given])
        inner = tuple(block.call() for block in self.block_list)
        return Call(type(self).__name__, numbers, (inner,), self.block_name)

    def set_input_channels(self, channels: int) -> None:
        if channels == self.in_channels:
            return
        with saved_weights(self):
            rechain(self.block_list, channels)
            self.in_channels, self.out_channels = channels, self.block_list[-1].out_channels
            if not self.options.no_create:
                self.build()


@register_block
class Sequential(Joint):
    """Blocks one after another as one block: Sequential(blocks)."""

    branch_limits = (1, 1)


@register_block
class MultiSumBlock(Joint):
    """Branches side by side, added: MultiSumBlock(blocks;blocks;...)."""

    branch_limits = (1, None)

    def lay_out(self) -> None:
        branches = [
            blocks[0] if len(blocks) == 1 else Sequential(branches=[blocks], options=self.options)
            for blocks in self._branches
        ]
        self.module_list = nn.ModuleList(branches)
        self.in_channels = branches[0].in_channels
        self.out_channels = self._width()
        self.stride = -(-PROBE // branches[0].get_output_resolution(PROBE))

    def call(self) -> Call:
        branches = tuple(
            tuple(inner.call() for inner in block.block_list)
            if type(block) is Sequential
            else (block.call(),)
            for block in self.block_list
        )
        return Call(type(self).__name__, (), branches, self.block_name)

    def mismatch(self) -> str | None:
        if len({block.get_output_resolution(PROBE) for block in self.block_list}) > 1:
            return f"The branches of {type(self).__name__} reduce the resolution differently"
        if len({block.out_channels for block in self.block_list}) > 1:
            given = ", ".join(str(block.out_channels) for block in self.block_list)
            return f"The branches of {type(self).__name__} cannot be added: they give {given} channels"
        return None

    def set_input_channels(self, channels: int) -> None:
        for block in self.block_list:
            block.set_input_channels(channels)
        self.in_channels, self.out_channels = channels, self._width()

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.block_list
        out: Tensor = first(x)
        for block in rest:
            out = out + block(x)
        return out

    def get_output_resolution(self, input_resolution: int) -> int:
        return self.block_list[0].get_output_resolution(input_resolution)

    def get_FLOPs(self, input_resolution: int) -> int:
        return sum(block.get_FLOPs(input_resolution) for block in self.block_list)

    def get_elementwise(self, input_resolution: int) -> int:
        added = (
            (len(self.block_list) - 1) * self.out_channels * self.get_output_resolution(input_resolution) ** 2
        )
        return sum(block.get_elementwise(input_resolution) for block in self.block_list) + added

    def _width(self) -> int:
        return self.block_list[0].out_channels


@register_block
class MultiCatBlock(MultiSumBlock):
    """Branches side by side, concatenated: MultiCatBlock(blocks;blocks;...)."""

    def mismatch(self) -> str | None:
        if len({block.get_output_resolution(PROBE) for block in self.block_list}) > 1:
            return f"The branches of {type(self).__name__} reduce the resolution differently"
        return None

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([block(x) for block in self.block_list], dim=1)

    def get_elementwise(self, input_resolution: int) -> int:
        return sum(block.get_elementwise(input_resolution) for block in self.block_list)

    def _width(self) -> int:
        return sum(block.out_channels for block in self.block_list)
