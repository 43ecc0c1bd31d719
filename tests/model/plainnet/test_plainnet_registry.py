"""Blocks of one's own: registered, from entry points, counted without formulas."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from luxmeter.errors import UsageError
from luxmeter.model.plainnet import (
    BLOCKS,
    PlainNet,
    PlainNetBasicBlockClass,
    PlainNetSuperBlockClass,
    SuperResK3K3,
    register_block,
)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(BLOCKS, "_things", dict(BLOCKS._things))
    monkeypatch.setattr(BLOCKS, "_offered", None)
    yield


def test_a_block_of_ones_own_needs_no_formulas() -> None:
    @register_block
    class Gated(PlainNetBasicBlockClass):
        arguments = ("in_channels", "out_channels", "stride")

        def build(self) -> None:
            self.value = nn.Conv2d(self.in_channels, self.out_channels, 3, self.stride, 1)
            self.gate = nn.Conv2d(self.in_channels, self.out_channels, 1, self.stride)

        def forward(self, x: Tensor) -> Tensor:
            return self.value(x) * self.gate(x).sigmoid()

    text = "SuperConvK3BNRELU(3,8,2,1)Gated(8,16,2)SuperConvK1BNRELU(16,8,1,1)"
    net = PlainNet(text, num_classes=4)
    thought = PlainNet(text, num_classes=4, no_create=True)
    assert str(net) == text
    assert net(torch.zeros(2, 3, 16, 16)).shape == (2, 4)
    for one in (net, thought):
        gated = one.block_list[1]
        assert gated.get_FLOPs(8) == (8 * 16 * 9 + 8 * 16) * 4 * 4
        assert gated.get_elementwise(8) == (2 + 1 + 1) * 16 * 4 * 4  # two biases, sigmoid, product
        assert gated.get_model_size() == 8 * 16 * 9 + 16 + 8 * 16 + 16
        assert gated.get_output_resolution(7) == 4
    assert net.get_model_size() == sum(p.numel() for p in net.parameters())
    with pytest.raises(UsageError, match="Did you mean 'Gated'"):
        PlainNet("Gatd(8,16,2)")


def test_a_super_block_of_ones_own_is_a_string() -> None:
    @register_block
    class Twice(PlainNetSuperBlockClass):
        def expand(self) -> str:
            first = f"ConvKX({self.in_channels},{self.out_channels},3,{self.stride})RELU({self.out_channels})"
            return first + f"SuperResK3K3({self.out_channels},{self.out_channels},1,8,{self.sub_layers})"

    net = PlainNet("Twice(3,16,2,2)")
    assert net(torch.zeros(2, 3, 8, 8)).shape == (2, 16, 4, 4)
    assert net.get_model_size() == sum(p.numel() for p in net.parameters())


def test_a_taken_name_and_a_wrong_thing() -> None:
    class SuperResK3K3(PlainNetBasicBlockClass):  # the name of a block there is
        pass

    with pytest.raises(UsageError, match="taken"):
        register_block(SuperResK3K3)
    assert register_block(replace=True)(SuperResK3K3) is SuperResK3K3
    with pytest.raises(UsageError, match="PlainNetBasicBlockClass"):
        register_block(nn.Linear)  # type: ignore[type-var]


def test_blocks_from_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    info = site / "lux_blocks_for_test-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lux-blocks-for-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[luxmeter.plainnet_blocks]\nMirror = lux_blocks_for_test:Mirror\n"
    )
    (site / "lux_blocks_for_test.py").write_text(
        "from luxmeter.model.plainnet import PlainNetBasicBlockClass\n"
        "class Mirror(PlainNetBasicBlockClass):\n"
        "    arguments = ('channels',)\n"
        "    def forward(self, x):\n"
        "        return x.flip(-1)\n"
    )
    monkeypatch.syspath_prepend(str(site))
    x = torch.arange(12.0).reshape(1, 3, 2, 2)
    assert torch.equal(PlainNet("Mirror(3)")(x), x.flip(-1))
    assert "Mirror" in BLOCKS.names()
    sys.modules.pop("lux_blocks_for_test")


def test_the_registry_of_this_test_is_its_own() -> None:
    assert BLOCKS.get("SuperResK3K3") is SuperResK3K3
    assert "Mirror" not in BLOCKS
