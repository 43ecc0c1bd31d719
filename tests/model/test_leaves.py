"""Layers that were seen before are not run again: every number must be what the ordinary way finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import luxmeter as lux
from luxmeter.model import leaves

sys.path.insert(0, str(Path(__file__).parent))
from networks import Called, Llama, cnn


def found(model, **options):
    """All that an analysis says, but how long it took."""
    said = lux.analyze(model, **{"backward": True, **options}).to_dict()
    said.pop("seconds")
    return said


def ordinary(model, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setattr(leaves, "ENABLED", False)
        return found(model, **options)


def runs_of(kind, monkeypatch):
    """Counts how often forwards of a kind of layer run; the patch itself is known to the shortcut as the usual one."""
    ran = []
    real = kind.forward

    def forward(self, x):
        ran.append(self)
        return real(self, x)

    monkeypatch.setattr(kind, "forward", forward)
    layer = leaves._LAYERS[kind]
    methods = tuple((h, n, forward if n == "forward" else was) for h, n, was in layer.methods)
    monkeypatch.setitem(leaves._LAYERS, kind, layer._replace(methods=methods))
    return ran


@pytest.fixture(autouse=True)
def nothing_seen():
    leaves._seen.clear()
    yield
    leaves._seen.clear()


class Residual(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return F.relu(x + self.parts(x), inplace=True)


class Doubled(nn.Conv2d):
    """A layer of torch with a forward of its own."""

    def forward(self, x):
        return super().forward(x) + super().forward(x)


def residual(width=8):
    return Residual(
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width),
    )  # fmt: skip


def shared():
    conv, act = nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
    tied = nn.Conv2d(8, 8, 3, padding=1)
    tied.weight = conv.weight
    return nn.Sequential(nn.Conv2d(3, 8, 1), conv, act, conv, act, tied, conv, act)


def other_shapes():
    """One module called many times, each time with another shape, layout and type."""

    def function(conv, norm, x):
        total = 0
        for size in (8, 8, 6, 5):
            y = x[..., :size, :size]
            total = (
                total
                + norm(conv(y)).sum()
                + norm(conv(y.contiguous(memory_format=torch.channels_last))).sum()
            )
            total = total + norm(conv(y.contiguous())).sum() + norm(conv(y[:, :, 1:, :])).mean()
        return total

    return Called(function, nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8))


def weight_normed():
    from torch.nn.utils import parametrizations, weight_norm

    with pytest.warns(FutureWarning):
        old = weight_norm(nn.Conv2d(8, 8, 3, padding=1))
    new = parametrizations.weight_norm(nn.Conv2d(8, 8, 3, padding=1))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), old, nn.Conv2d(8, 8, 3, padding=1), new, old)


def patched_on_the_instance():
    net = nn.Sequential(*[nn.Conv2d(3, 3, 3, padding=1) for _ in range(3)])
    net[1]._conv_forward = lambda x, weight, bias: F.conv2d(
        F.pad(x, (1, 1, 1, 1), mode="circular"), weight, bias
    )
    net[2].forward = lambda x: F.conv2d(x, net[2].weight) + 1
    return net


def every_layer():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"), nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), nn.SiLU(),
        nn.GroupNorm(2, 8), nn.ReLU6(), nn.Hardswish(inplace=True), nn.Conv2d(8, 8, 3, 2, 1, dilation=2), nn.GELU(),
        nn.GELU("tanh"), nn.Hardsigmoid(), nn.LeakyReLU(), nn.ELU(), nn.Dropout(0.5), nn.Sigmoid(), nn.Tanh(),
        nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, ceil_mode=True), nn.BatchNorm2d(8, affine=False),
        nn.BatchNorm2d(8, track_running_stats=False), nn.AdaptiveAvgPool2d((1, None)), nn.Flatten(2),
        nn.BatchNorm1d(8), nn.Conv1d(8, 8, 1), nn.LazyLinear(5), nn.LayerNorm(5),
        nn.LayerNorm(5, elementwise_affine=False), nn.Linear(5, 5, bias=False), nn.ReLU(),
    )  # fmt: skip


def frozen_norm_in_training():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8, momentum=None), nn.Dropout(0.1)
    )
    net[1].eval()
    return net.train()


def switches_itself_to_training():
    def function(norm, x):
        first = norm(x)
        norm.train()
        second = norm(x)
        norm.eval()
        return first + second + norm(x)

    return Called(function, nn.BatchNorm2d(3))


def with_gradients_inside():
    def function(conv, x):
        a = conv(x)
        with torch.enable_grad():
            b = conv(x)
            (slope,) = torch.autograd.grad(b.sum(), conv.weight)
        return a + conv(x) + slope.sum()

    return Called(function, nn.Conv2d(3, 3, 3, padding=1))


def mapped():
    def function(linear, x):
        return linear(x[0, 0]) + torch.vmap(linear)(x[0, 0]) + torch.vmap(torch.vmap(linear))(x[0]).sum(0)

    return Called(function, nn.Linear(16, 16))


def swapped_weights():
    def function(conv, x):
        narrow = {"weight": conv.weight[:2], "bias": None}
        return conv(x).sum() + torch.func.functional_call(conv, narrow, (x,)).sum() + conv(x).sum()

    return Called(function, nn.Conv2d(3, 8, 3))


NETWORKS = {
    "convolutions": cnn,
    "residual": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), *[residual() for _ in range(4)], nn.Flatten(), nn.LazyLinear(4)),
    "own forward": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), Doubled(8, 8, 3), nn.Conv2d(8, 8, 3), Doubled(8, 8, 3)),
    "shared": shared,
    "other shapes": other_shapes,
    "weight norm": weight_normed,
    "patched": patched_on_the_instance,
    "every layer": every_layer,
    "frozen norm": frozen_norm_in_training,
    "changes its mode": switches_itself_to_training,
    "gradients inside": with_gradients_inside,
    "vmap": mapped,
    "swapped weights": swapped_weights,
    "transformer": lambda: Called(
        lambda embed, body, x: body(embed(x.flatten(2).transpose(1, 2))), nn.Linear(3, 16),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3, enable_nested_tensor=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_every_number_is_the_same(name, dtype, monkeypatch):
    net = NETWORKS[name]()
    options = {"input_size": (2, 3, 16, 16), "backward": True, "dtype": dtype}
    expected = ordinary(net, monkeypatch, **options)
    assert not leaves._seen
    assert found(net, **options) == expected  # while they are learned
    assert found(net, **options) == expected  # and when all are known
    # A network built on meta runs on its own weights, not on stand-ins.
    with torch.device("meta"):
        built = NETWORKS[name]()
    expected = ordinary(built, monkeypatch, **options)
    assert found(built, **options) == found(built, **options) == expected


def test_a_language_model_and_its_backward_pass(monkeypatch):
    with torch.device("meta"):
        net = Llama(width=64, heads=4, kv_heads=2, inner=96, layers=3, vocabulary=50)
    options = {"inputs": torch.zeros(2, 7, dtype=torch.long), "backward": True}
    assert found(net, **options) == found(net, **options) == ordinary(net, monkeypatch, **options)


def test_layers_seen_before_do_not_run(monkeypatch):
    assert leaves.ENABLED  # all that it needs of torch is there
    ran = runs_of(nn.Conv2d, monkeypatch)
    net = nn.Sequential(*[nn.Conv2d(4, 4, 3, padding=1) for _ in range(10)])
    lux.analyze(net, input_size=(1, 4, 8, 8), backward=False)
    assert len(ran) == 1
    lux.analyze(net, input_size=(1, 4, 8, 8), backward=False)
    assert len(ran) == 1
    lux.analyze(net, input_size=(2, 4, 8, 8), backward=False)
    assert len(ran) == 2


def test_hooks_run_on_every_module_every_time():
    net = nn.Sequential(*[nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)])
    called = []
    for number, layer in enumerate(net):
        layer.register_forward_pre_hook(lambda *_, number=number: called.append(("before", number)))
        layer.register_forward_hook(
            lambda m, x, out, number=number: called.append(("after", number)) or out * 2
        )
    for _ in range(2):
        called.clear()
        cost = lux.analyze(net, input_size=(1, 4, 8, 8), backward=False)
        assert called == [(when, number) for number in range(3) for when in ("before", "after")]
        assert {o.name: o.calls for o in cost.operators} == {"aten::convolution": 3, "aten::mul": 3}


def test_hooks_on_all_modules_run(monkeypatch):
    net, called = cnn(), []
    expected = ordinary(net, monkeypatch, input_size=(1, 3, 8, 8))
    lux.analyze(net, input_size=(1, 3, 8, 8))
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: called.append(type(module)))
    try:
        assert found(net, input_size=(1, 3, 8, 8), backward=False)["macs"] == expected["macs"]
    finally:
        handle.remove()
    assert called == [*(type(m) for m in net), nn.Sequential]


def test_modes_inside_a_model_see_its_operators():
    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    for mode, name in ((Functions, "conv2d"), (Operators, "aten.convolution.default")):

        def function(conv, x, mode=mode):
            with mode():
                return conv(x)

        net = Called(function, nn.Conv2d(4, 4, 3))
        for _ in range(2):
            seen: list[str] = []
            lux.analyze(net, input_size=(1, 4, 8, 8), backward=False)
            assert name in seen


def test_a_patched_class_or_function_is_run(monkeypatch):
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU())
    plain = lux.analyze(net, input_size=(1, 4, 8, 8)).macs
    with monkeypatch.context() as patch:
        patch.setattr(nn.Conv2d, "_conv_forward", lambda self, x, w, b: F.conv2d(x, w) + F.conv2d(x, w))
        assert lux.analyze(net, input_size=(1, 4, 8, 8)).macs == 2 * plain
    real = F.conv2d
    with monkeypatch.context() as patch:
        patch.setattr(F, "conv2d", lambda *args: real(*args) + real(*args) + real(*args))
        assert lux.analyze(net, input_size=(1, 4, 8, 8)).macs == 3 * plain
    assert lux.analyze(net, input_size=(1, 4, 8, 8)).macs == plain


def test_a_new_formula_counts_at_once():
    net = nn.Sequential(nn.ReLU(), nn.ReLU())
    assert lux.analyze(net, input_size=(2, 8)).flops == 32
    lux.flops_of("aten::relu")(lambda x, out=None: 1000)
    try:
        assert lux.analyze(net, input_size=(2, 8)).flops == 2000
    finally:
        lux.flops.forget("aten::relu")
    assert lux.analyze(net, input_size=(2, 8)).flops == 32


def test_operators_without_a_formula_are_listed_every_time():
    net = nn.Sequential(nn.Tanh(), nn.Tanh())

    @lux.flops_of("aten::tanh")
    def failing(x):
        raise KeyError("no")

    try:
        for _ in range(2):
            (unknown,) = lux.analyze(net, input_size=(2, 8)).unknown_ops
            assert (unknown.name, unknown.calls, unknown.modules) == ("aten::tanh", 2, ("0", "1"))
    finally:
        lux.flops.forget("aten::tanh")


def test_what_does_not_fit_is_said_as_before():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(9, 2))
    lux.analyze(net[:2], input_size=(1, 3, 8, 8))
    with pytest.raises(lux.errors.UsageError, match=r"2.*Linear"):
        lux.analyze(net, input_size=(1, 3, 8, 8))


def test_nothing_is_held_on_to():
    import gc
    import weakref

    net = cnn()
    gc.collect()
    gc.disable()
    try:
        cost = lux.analyze(net, input_size=(1, 3, 8, 8), backward=False)
        gone = weakref.ref(net)
        del net, cost
        assert gone() is None  # without the collector: no cycle is left behind
    finally:
        gc.enable()
