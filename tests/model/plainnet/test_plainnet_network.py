"""Networks from strings: the published ones with their published sizes, and what a network can do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from luxmeter.errors import UsageError
from luxmeter.model.analysis import analyze
from luxmeter.model.plainnet import PlainNet, structure_from_info, with_se

PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())["networks"]
SMALL = "SuperConvK3BNRELU(3,8,2,1)SuperResK3K3(8,16,2,8,1)SuperResIDWE2K3(16,24,2,16,2)SuperConvK1BNRELU(24,32,1,1)"


def test_all_published_structures_are_here() -> None:
    assert len(PUBLISHED) == 12 + 10


@pytest.mark.parametrize("known", PUBLISHED, ids=lambda known: known["name"])
def test_published_networks(known: dict[str, Any]) -> None:
    options = {"num_classes": known["num_classes"], "use_se": known["use_se"]}
    net = PlainNet(known["structure"], no_create=True, **options)
    resolution = known["resolution"]
    assert str(net) == known["structure"]
    assert net.get_model_size() == known["params"]
    # The tables are rounded, count BN and ReLU in with the multiply-adds, and count batch norms variously.
    assert net.get_model_size() == pytest.approx(known["published_params_M"] * 1e6, rel=0.02)
    assert net.get_FLOPs(resolution) == pytest.approx(known["published_flops_M"] * 1e6, rel=0.05)
    with torch.device("meta"):
        built = PlainNet(known["structure"], **options)
    counted = analyze(built, input_size=(1, 3, resolution, resolution), backward=False)
    assert (counted.params, counted.macs, counted.flops) == (
        net.get_model_size(),
        net.get_FLOPs(resolution),
        net.get_total_FLOPs(resolution),
    )


def test_multiply_adds_are_those_torch_counts() -> None:
    """torch's own counter is right for convolutions: a witness from outside."""
    with torch.device("meta"):
        net = PlainNet(PUBLISHED[0]["structure"], num_classes=10).eval()
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(1, 3, 32, 32, device="meta"))
    assert counter.get_total_flops() == 2 * net.get_FLOPs(32)


def test_parameters_have_the_names_of_the_published_checkpoints() -> None:
    net = PlainNet("SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,1,8,1)", num_classes=10)
    names = list(net.state_dict())
    assert names[0] == "module_list.0.module_list.0.netblock.weight"
    assert "module_list.1.module_list.0.module_list.0.netblock.weight" in names
    assert "module_list.1.module_list.0.proj.0.bias" in names
    assert names[-2:] == ["fc_linear.netblock.weight", "fc_linear.netblock.bias"]


def test_forward_and_features() -> None:
    net = PlainNet(SMALL, num_classes=7)
    x = torch.randn(2, 3, 32, 32)
    assert net(x).shape == (2, 7)
    assert net.forward_pre_GAP(x).shape == (2, net.out_channels, 4, 4)
    assert net.get_output_resolution(32) == 4
    assert PlainNet(SMALL)(x).shape == (2, 32, 4, 4)
    assert net.get_num_layers() == 5
    assert {m.eps for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)} == {1e-3}
    assert repr(net) == f"PlainNet({SMALL!r}, num_classes=7)"


def test_from_string_and_back() -> None:
    assert str(PlainNet.create_from_str(SMALL, num_classes=3)) == SMALL
    assert PlainNet.is_instance_from_str(SMALL)
    assert not PlainNet.is_instance_from_str(SMALL + "Nothing(1)")
    spaced = SMALL.replace(")", ")\n  ").replace(",", ", ")
    assert str(PlainNet(spaced)) == SMALL
    # One whole network written in basic blocks, its head too.
    text = "ConvKX(a|3,8,3,2)BN(8)RELU(8)ResBlock(8,1,ConvKX(8,8,3,1)BN(8))AdaptiveAvgPool(8,2)Flatten(32)Linear(32,5,0)"
    net = PlainNet(text)
    assert str(net) == text
    assert net(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


def test_set_input_channels_of_a_network() -> None:
    net = PlainNet(SMALL, num_classes=7)
    kept = net.fc_linear.netblock.weight.detach().clone()  # type: ignore[union-attr, operator]
    net.set_input_channels(1)
    assert str(net) == SMALL.replace("(3,", "(1,", 1)
    assert net(torch.zeros(2, 1, 32, 32)).shape == (2, 7)
    assert torch.equal(net.state_dict()["fc_linear.netblock.weight"], kept)
    assert net.get_model_size() == sum(p.numel() for p in net.parameters())


def test_new_channels_go_through_pooling_and_flatten() -> None:
    net = PlainNet("MaxPool(8,3,2)BN(8)AdaptiveAvgPool(8,2)Flatten(32)Linear(32,5,1)")
    net.set_input_channels(16)
    assert str(net) == "MaxPool(16,3,2)BN(16)AdaptiveAvgPool(16,2)Flatten(64)Linear(64,5,1)"
    assert net(torch.zeros(2, 16, 9, 9)).shape == (2, 5)
    net.replace_block(2, "AdaptiveAvgPool(16,2)")
    net.replace_block(1, "ConvKX(1,4,1,1)")
    assert str(net) == "MaxPool(16,3,2)ConvKX(16,4,1,1)AdaptiveAvgPool(4,2)Flatten(16)Linear(16,5,1)"
    assert net(torch.zeros(2, 16, 9, 9)).shape == (2, 5)


def test_a_flat_end_needs_no_classifier() -> None:
    with pytest.raises(UsageError, match="which is flat"):
        PlainNet("AdaptiveAvgPool(8,1)Flatten(8)", num_classes=10)


def test_replace_block_passes_channels_on() -> None:
    net = PlainNet(SMALL, num_classes=7)
    net.replace_block(1, "SuperResK1K5K1(8,40,2,8,1)")
    assert str(net).startswith("SuperConvK3BNRELU(3,8,2,1)SuperResK1K5K1(8,40,2,8,1)SuperResIDWE2K3(40,24")
    net.replace_block(-1, "SuperConvK1BNRELU(1,64,1,1)")
    assert str(net).endswith("SuperConvK1BNRELU(24,64,1,1)")
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert {m.eps for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)} == {1e-3}
    with pytest.raises(UsageError, match="one block"):
        net.replace_block(0, SMALL)


def test_with_se_writes_into_the_string_what_use_se_builds() -> None:
    text = SMALL + "SuperResK1DWK1(32,32,1,64,1,3)"
    spelled = with_se(text)
    assert spelled.count("SE(") == 2
    assert "SuperResK1DWSEK1" in spelled
    assert PlainNet(with_se(SMALL)).get_model_size() == PlainNet(SMALL, use_se=True).get_model_size()


def test_tinynas_structure_info() -> None:
    info = [
        {"class": "ConvKXBNRELU", "in": 3, "k": 3, "out": 16, "s": 2},
        {
            "class": "SuperResK1KXK1",
            "inner_class": "ResK1KXK1",
            "L": 2,
            "btn": 8,
            "in": 16,
            "k": 5,
            "out": 32,
            "s": 2,
        },
    ]
    assert structure_from_info(info) == "ConvKXBNRELU(3,16,3,2)TinyResK1KXK1(16,32,2,8,2,5)"
    assert PlainNet.from_structure_info(info, num_classes=5)(torch.zeros(2, 3, 16, 16)).shape == (2, 5)
    for wrong, message in (
        ({**info[1], "class": "SuperQuantResK1KXK1"}, "SuperQuantResK1KXK1"),
        ({key: value for key, value in info[1].items() if key != "btn"}, "lacks btn"),
        ({**info[1], "nbitsA": [8] * 6}, "nbitsA"),
        ({**info[1], "g": 4}, "has g"),
        ({**info[0], "p": 0}, "has p"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            structure_from_info([info[0], wrong])
        assert "Block 2" in str(caught.value)


def test_the_numbers_of_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "models-from-strings.md").read_text(encoding="utf-8")
    (text,) = re.findall(r'^net = PlainNet\("([^"]+)", num_classes=10\)$', guide, re.MULTILINE)
    net = PlainNet(text, num_classes=10)
    for method in ("get_model_size()", "get_FLOPs(32)", "get_total_FLOPs(32)", "get_output_resolution(32)"):
        (told,) = re.findall(rf"^net\.{re.escape(method)} +# (\d+)", guide, re.MULTILINE)
        name, argument = method.rstrip(")").split("(")
        assert getattr(net, name)(*map(int, argument.split())) == int(told), method
