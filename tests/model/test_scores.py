"""NASWOT, synflow and the gradient norm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from luxmeter.errors import UsageError
from luxmeter.model.plainnet import PlainNet
from luxmeter.model.scores import SCORES, grad_norm_score, naswot_score, synflow_score
from luxmeter.model.zen import zen_score

START = (
    "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,1,8,1)SuperResK3K3(16,32,2,16,1)"
    "SuperResK3K3(32,64,2,32,1)SuperResK3K3(64,64,2,32,1)SuperConvK1BNRELU(64,128,1,1)"
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The networks are small, and two workers of pytest share two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "grad_norm", "naswot"),
    # Given by compute_gradnorm_score and compute_NASWOT_score of github.com/idstcv/ZenNAS (d1d617e) on its MasterNet with
    # num_classes=10, resolution 32, batch 16, after torch.manual_seed(3), with torch 2.13.0 on a CPU.
    [
        ({}, 9.168760299682617, 165.99128141976462),
        ({"no_reslink": True}, 6.848208904266357, 165.80078154687328),
    ],
)
def test_the_values_of_the_published_code(options: dict[str, bool], grad_norm: float, naswot: float) -> None:
    net = PlainNet(START, num_classes=10, **options)
    assert grad_norm_score(net, seed=3) == pytest.approx(grad_norm, rel=1e-4)
    assert naswot_score(net, seed=3) == pytest.approx(naswot, rel=1e-4)


def test_synflow_of_a_network_that_can_be_worked_out() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2, bias=False)
    )
    size = (1, 3, 1, 1)
    torch.manual_seed(5)
    first, second = torch.randn(4, 3, 1, 1).double(), torch.randn(2, 4).double()
    # R = 1 |W2| |W1| 1, and each layer's sum of |w dR/dw| is R again.
    flow = 2 * (second.abs() @ first.flatten(1).abs()).sum()
    assert synflow_score(net, input_size=size, seed=5) == pytest.approx(float(flow.log10()))


def test_naswot_sees_relu_however_it_is_called() -> None:
    class Three(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.relu6(torch.relu(nn.ReLU(inplace=True)(x.clone())))

    x_size = (4, 3, 4, 4)
    torch.manual_seed(0)
    on = (torch.randn(x_size) > 0).flatten(1).double()
    agreement = on @ on.t() + (1 - on) @ (1 - on).t()
    assert naswot_score(Three(), input_size=x_size) == pytest.approx(
        float(torch.logdet(3 * agreement)), rel=1e-6
    )
    with pytest.raises(UsageError, match="no ReLU"):
        naswot_score(nn.Conv2d(3, 3, 1), input_size=x_size)


def test_the_gradient_norm_needs_classes() -> None:
    with pytest.raises(UsageError, match=r"shape \(4, 128, 2, 2\)"):
        grad_norm_score(PlainNet(START), input_size=(4, 3, 16, 16))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_leaves_the_model_alone_and_is_seeded(name: str) -> None:
    net = PlainNet(START, num_classes=10).eval()
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    random_state = torch.get_rng_state()
    size = (4, 3, 16, 16)
    value = SCORES[name](net, input_size=size, seed=1)
    assert math.isfinite(value)
    assert SCORES[name](net, input_size=size, seed=1) == value
    assert SCORES[name](net, input_size=size, seed=2) != value
    assert all(torch.equal(tensor, before[key]) for key, tensor in net.state_dict().items())
    assert not net.training
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_the_zen_score_of_the_search_is_one_repetition() -> None:
    net = PlainNet(START)
    size = (4, 3, 16, 16)
    assert (
        SCORES["zen"](net, input_size=size, seed=1) == zen_score(net, input_size=size, seed=1, repeat=1).value
    )
