"""Every block: built, run, and its formulas against what really happens."""

from __future__ import annotations

import copy
import pickle
from typing import cast

import pytest
import torch

import luxmeter.model.plainnet as plainnet
from luxmeter.errors import UsageError
from luxmeter.model.analysis import analyze
from luxmeter.model.plainnet import BLOCKS, PlainNetBasicBlockClass, create_blocks_from_str

SAMPLES = {
    "AdaptiveAvgPool": "AdaptiveAvgPool(8,2)",
    "BN": "BN(8)",
    "ConvDW": "ConvDW(8,5,2)",
    "ConvKX": "ConvKX(8,12,3,2)",
    "ConvKXBNRELU": "ConvKXBNRELU(8,12,3,2)",
    "Flatten": "Flatten(8)",
    "Linear": "Linear(8,5,1)",
    "MaxPool": "MaxPool(8,3,2)",
    "MultiCatBlock": "MultiCatBlock(ConvKX(8,4,3,2);MaxPool(8,3,2)BN(8))",
    "MultiSumBlock": "MultiSumBlock(ConvKX(8,4,3,1);ConvDW(8,3,1)ConvKX(8,4,1,1))",
    "RELU": "RELU(8)",
    "ResBlock": "ResBlock(ConvKX(8,8,3,1)BN(8))",
    "ResBlockProj": "ResBlockProj(8,2,ConvKX(8,8,3,2)BN(8))",
    "ResPool": "ResPool(8,ConvKX(8,12,3,2)BN(12))",
    "ResPoolProj": "ResPoolProj(ConvKX(8,8,3,2)BN(8))",
    "SE": "SE(8)",
    "SESwish": "SESwish(8)",
    "Sequential": "Sequential(ConvKX(8,4,3,2)Swish(4))",
    "Swish": "Swish(8)",
    **{f"ConvKXG{g}": f"ConvKXG{g}(32,64,3,2)" for g in (2, 4, 8, 16, 32)},
    **{f"SuperConvK{k}BNRELU": f"SuperConvK{k}BNRELU(8,16,2,2)" for k in (1, 3, 5, 7)},
    **{
        name: f"{name}(8,16,2,12,3,5)"
        for name in ("SuperResK1KX", "TinyResKXKX", "TinyResK1KXK1", "SuperResK1DWK1", "SuperResK1DWSEK1")
    },
    **{
        name + se: f"{name}{se}(8,16,2,12,2)"
        for se in ("", "SE")
        for k in (3, 5, 7)
        for name in (
            f"SuperResK{k}K{k}",
            f"SuperResK1K{k}K1",
            *(f"SuperResIDWE{e}K{k}" for e in (1, 2, 4, 6)),
        )
    },
}
FLAT = {"Flatten", "Linear"}


def test_samples_cover_every_block() -> None:
    assert sorted(SAMPLES) == BLOCKS.names()


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("resolution", [16, 13])
def test_formulas_are_what_happens(text: str, resolution: int) -> None:
    name = text.split("(")[0]
    resolution = 1 if name in FLAT else resolution
    (thought,) = create_blocks_from_str(text, no_create=True)
    assert not list(thought.parameters())
    with torch.device("meta"):
        (block,) = create_blocks_from_str(text)
    block.eval()
    shape = (1, block.in_channels) if name == "Linear" else (1, block.in_channels, resolution, resolution)
    out = block(torch.zeros(shape, device="meta"))
    counted = analyze(block, input_size=shape, backward=False)
    assert not counted.unknown_ops
    for one in (block, thought):
        assert str(one) == text
        assert one.out_channels == out.shape[1]
        assert one.get_output_resolution(resolution) == (out.shape[-1] if out.ndim == 4 else 1)
        assert one.get_FLOPs(resolution) == counted.macs
        assert one.get_total_FLOPs(resolution) == counted.flops
        assert one.get_model_size() == counted.params


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_new_input_channels_give_the_block_of_that_string(text: str) -> None:
    with torch.device("meta"):
        (block,) = create_blocks_from_str(text)
    wider = 64 if "G" in text else 16
    with torch.device("meta"):
        block.set_input_channels(wider)
        (fresh,) = create_blocks_from_str(str(block))
    assert block.in_channels == wider
    sizes = {name: tensor.shape for name, tensor in block.state_dict().items()}
    assert sizes == {name: tensor.shape for name, tensor in fresh.state_dict().items()}
    assert block.get_FLOPs(1) == fresh.get_FLOPs(1)
    assert block.get_model_size() == sum(p.numel() for p in block.parameters())
    if text.split("(")[0] not in FLAT:
        assert block(torch.zeros(2, wider, 8, 8, device="meta")).shape[1] == block.out_channels


def test_new_input_channels_keep_what_fits() -> None:
    block = plainnet.SuperResK3K3.create_from_str("SuperResK3K3(8,16,1,8,2)").double().eval()
    before = {name: tensor.clone() for name, tensor in block.state_dict().items()}
    block.set_input_channels(4)
    after = block.state_dict()
    assert not block.training
    assert {tensor.dtype for tensor in after.values() if tensor.is_floating_point()} == {torch.float64}
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"module_list.0.module_list.0.netblock.weight", "module_list.0.proj.0.weight"}


@pytest.mark.parametrize(
    "text", ["ConvKX(8,12,3,2)", "SuperResK1K3K1SE(8,16,2,12,2)", "ResBlock(ConvKX(8,8,3,1))"]
)
def test_blocks_can_be_copied_and_pickled(text: str) -> None:
    (block,) = create_blocks_from_str(text)
    x = torch.randn(2, 8, 8, 8)
    block.eval()
    for twin in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert str(twin) == text
        assert torch.equal(twin(x), block(x))


def test_names_are_importable_and_families_are_classes() -> None:
    for name in BLOCKS.names():
        assert getattr(plainnet, name) is BLOCKS.get(name)
        assert issubclass(BLOCKS.get(name), PlainNetBasicBlockClass)
    assert issubclass(plainnet.SuperResK5K5SE, plainnet.SuperResKXKX)
    assert issubclass(plainnet.SuperResK1K3K1, plainnet.SuperResK1KXK1)
    assert issubclass(plainnet.SuperResIDWE6K7, plainnet.SuperResIDWEXKX)
    assert issubclass(plainnet.SuperConvK7BNRELU, plainnet.SuperConvKXBNRELU)
    assert set(BLOCKS.names()) <= set(plainnet.__all__)


def test_options_change_what_is_built() -> None:
    text = "SuperResK3K3(8,8,1,8,2)"
    kinds = {}
    for options in ({}, {"no_reslink": True}, {"no_bn": True}, {"use_se": True}):
        (block,) = create_blocks_from_str(text, **options)
        assert str(block) == text
        names = [type(module).__name__ for module in block.modules()]
        kinds[next(iter(options), "")] = (names.count("BN"), names.count("SE"), "ResBlockProj" in names)
    assert kinds == {
        "": (4, 0, True),
        "no_reslink": (4, 0, False),
        "no_bn": (0, 0, True),
        "use_se": (4, 2, True),
    }


def test_a_super_block_that_lies_about_its_output() -> None:
    class Liar(plainnet.PlainNetSuperBlockClass):
        def expand(self) -> str:
            return f"ConvKX({self.in_channels},5,1,1)"

    with pytest.raises(UsageError, match="says it gives 8 channels, but what it expands to gives 5"):
        Liar(3, 8, 1, 1)


def test_labels_are_kept() -> None:
    (block,) = create_blocks_from_str("ConvKX(stem|3,8,3,1)")
    assert cast(str, block.block_name) == "stem"
    assert str(block) == "ConvKX(stem|3,8,3,1)"
