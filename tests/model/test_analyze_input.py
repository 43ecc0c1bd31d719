"""Bad input: which module wanted what and got what, and every other way to be told what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.errors import UsageError

sys.path.insert(0, str(Path(__file__).parent))
from networks import Called, cnn, mlp

CASES = [
    (lambda: nn.Sequential(nn.Linear(16, 4), nn.Linear(5, 2)), (2, 16), r"Module '1' \(Linear\) wanted a last dimension of 5 and got \(2, 4\) float32"),
    (cnn, (1, 4, 8, 8), r"Module '0' \(Conv2d\) wanted 3 channels in dimension 1 .* got \(1, 4, 8, 8\)"),
    (lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(5)), (1, 3, 8, 8), r"Module '1' \(BatchNorm2d\) wanted 5 channels"),
    (lambda: nn.LayerNorm(8), (2, 7), r"The model \(LayerNorm\) wanted last dimensions \(8\) and got \(2, 7\)"),
    (lambda: nn.LSTM(8, 4), (3, 2, 7), r"LSTM\) wanted a last dimension of 8 and got \(3, 2, 7\)"),
    (lambda: nn.GroupNorm(2, 4), (1, 6, 3), r"GroupNorm\) wanted 4 channels"),
    (lambda: nn.MultiheadAttention(8, 2), ((3, 1, 6),) * 3, r"MultiheadAttention\) wanted a last dimension of 8"),
    (lambda: nn.Bilinear(2, 3, 4), ((1, 2), (1, 4)), r"Bilinear\) wanted last dimensions of 2 and 3"),
]  # fmt: skip


@pytest.mark.parametrize("device", ["auto", "meta", "cpu"])
@pytest.mark.parametrize(("make", "size", "message"), CASES)
def test_says_which_module_wanted_what(make, size, message, device):
    with pytest.raises(UsageError, match=message) as caught:
        lux.analyze(make(), input_size=size, device=device)
    assert caught.value.slug == "input-does-not-fit"
    assert "torch said" in str(caught.value)


def test_embeddings_want_whole_numbers():
    net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    with pytest.raises(
        UsageError, match=r"Module '0' \(Embedding\) wanted whole numbers .* below 10.*input_dtype='int64'"
    ):
        lux.analyze(net, input_size=(1, 7))
    assert lux.analyze(net, input_size=(1, 7), input_dtype="int64").macs == 7 * 8
    assert lux.analyze(net, input_size="1,7:long").macs == 7 * 8


def test_a_call_that_does_not_bind_is_told():
    with pytest.raises(UsageError, match="input-does-not-fit"):
        lux.analyze(mlp())
    with pytest.raises(UsageError, match=r"Sequential.*TypeError"):
        lux.analyze(mlp(), (torch.randn(2, 16), torch.randn(2, 16)))


def test_an_error_of_the_model_itself_names_its_module():
    def broken(x):
        raise RuntimeError("the cat is out")

    net = nn.Sequential(nn.Identity(), Called(broken))
    with pytest.raises(
        UsageError, match=r"Module '1' \(Called\) got \(2, 3\) float32 and stopped.*the cat is out"
    ):
        lux.analyze(net, torch.randn(2, 3))


@pytest.mark.parametrize(
    ("kwargs", "slug"),
    [
        ({"inputs": torch.zeros(2, 16), "input_size": (2, 16)}, "inputs-twice"),
        ({"input_size": 16}, "bad-input-size"),
        ({"input_size": "1,x,3"}, "bad-input-size"),
        ({"input_size": (2, -16)}, "bad-input-size"),
        ({"input_size": "2,16:flaot32"}, "no-such-dtype"),
        ({"input_size": (2, 16), "dtype": "bf61"}, "no-such-dtype"),
        ({"input_size": (2, 16), "optimizer": "adamm"}, "no-such-optimizer"),
        ({"input_size": (2, 16), "optimizer": "sparseadam"}, "optimizer-does-not-step"),
        ({"inputs": torch.zeros(2, 16), "input_dtype": "float16"}, "input-dtype-without-size"),
        ({"input_size": (2, 16), "loss": 3}, "bad-loss"),
        ({"input_size": (2, 16), "loss": torch.sum, "backward": False}, "bad-loss"),
        ({"input_size": (2, 16), "latency": 3}, "bad-batch-size"),
        ({"input_size": (2, 16), "latency": [0]}, "bad-batch-size"),
        ({"input_size": (2, 16), "latency": True, "device": "meta"}, "latency-without-data"),
        ({"input_size": (2, 16), "optimizer": "lbfgs"}, "optimizer-needs-data"),
        ({"input_size": (2, 16), "device": "gpu"}, "bad-device"),
    ],
)
def test_other_bad_input(kwargs, slug):
    with pytest.raises(UsageError) as caught:
        lux.analyze(mlp(), **kwargs)
    assert caught.value.slug == slug


def test_near_names_are_suggested():
    with pytest.raises(UsageError, match="Did you mean 'adam'"):
        lux.analyze(mlp(), input_size=(2, 16), optimizer="adamm")
    with pytest.raises(UsageError, match="unknown-module"):
        lux.analyze(mlp(), input_size=(2, 16)).module("9")


@pytest.mark.parametrize("thing", [nn.Linear, 5, "resnet"])
def test_what_is_no_model(thing):
    with pytest.raises(UsageError, match="not-a-model"):
        lux.analyze(thing, torch.zeros(1))


def test_latency_on_meta_is_refused():
    with torch.device("meta"):
        net = mlp()
    with pytest.raises(UsageError, match="latency-without-data"):
        lux.analyze(net, input_size=(2, 16), latency=True)


def test_a_fault_of_the_model_is_not_called_a_wrong_size():
    def function(linear, x):
        return linear(x).no_such_thing

    with pytest.raises(UsageError, match=r"It raised AttributeError.*no_such_thing.*may be right") as caught:
        lux.analyze(Called(function, torch.nn.Linear(4, 4)), input_size=(1, 4))
    assert "Check the size" not in str(caught.value)


def test_a_size_as_text_takes_the_type_beside_it():
    net = nn.Embedding(10, 4)
    for options in (
        {"input_size": "2,7", "input_dtype": "int64"},
        {"input_size": "2,7:int64", "input_dtype": "float32"},
    ):
        assert lux.analyze(net, **options).output_shapes == ((2, 7, 4),)
