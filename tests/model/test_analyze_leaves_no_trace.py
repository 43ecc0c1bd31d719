"""After analyze the model and the process are what they were."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import nn

import luxmeter as lux

sys.path.insert(0, str(Path(__file__).parent))
from networks import Called, cnn, counting_backend, mlp

torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))  # the first compilation changes torch, too


def state_of(model):
    """Everything that can be seen of a model from outside, values included."""
    return {
        name: (
            type(module), module.training, sorted(module.__dict__),
            {k: id(v) for k, v in module.__dict__.items() if k not in ("training",)},
            {k: (id(v), len(v)) for k, v in module.__dict__.items() if isinstance(v, dict)},
            [(k, id(p), p._version, p.grad is None) for k, p in module._parameters.items() if p is not None],
            [(k, id(b), b.clone().tolist()) for k, b in module._buffers.items() if b is not None],
        )
        for name, module in model.named_modules()
    }  # fmt: skip


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_as_it_was(device, training):
    net = nn.Sequential(cnn(), nn.Dropout(0.5)).train(training)
    net[0][1].eval()  # a part with a mode of its own
    seen = []
    net[0][0].register_forward_hook(lambda *args: seen.append(1))
    before = state_of(net)
    lux.analyze(net, input_size=(2, 3, 16, 16), device=device, backward=True)
    assert state_of(net) == before
    assert seen  # hooks are part of the model and run
    assert all(p.grad is None for p in net.parameters())


def test_gradients_that_were_there_stay():
    net = mlp()
    net(torch.randn(2, 16)).sum().backward()
    before = [(p.grad, p.grad.clone()) for p in net.parameters()]
    for device in ("meta", "cpu"):
        lux.analyze(net, torch.randn(2, 16), device=device, backward=True)
    for p, (same, value) in zip(net.parameters(), before, strict=True):
        assert p.grad is same and torch.equal(p.grad, value)


def test_a_model_that_writes_to_itself():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.cache, self.linear = 0, [], nn.Linear(4, 4)
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.calls += 1
            self.cache.append(x)
            self.total += x.sum(0)
            self.late = x
            return self.linear(x)

    net = Counting()
    for device in ("meta", "cpu"):
        lux.analyze(net, torch.ones(2, 4), device=device, backward=True)
    assert (net.calls, net.cache, net.total.tolist(), hasattr(net, "late")) == (0, [], [0.0] * 4, False)


def test_a_model_that_fails_is_put_back_too():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4)).train()
    before = state_of(net)
    with pytest.raises(lux.errors.UsageError):
        lux.analyze(net, torch.randn(2, 4), backward=True)
    assert state_of(net) == before


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_random_generators_are_untouched(device):
    torch.manual_seed(1)
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    noisy = Called(lambda x: x * torch.rand(1) + random.random() + float(np.random.rand()))
    lux.analyze(nn.Sequential(noisy, nn.Dropout()), torch.randn(4), device=device, backward=True)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


def test_gradient_mode_inputs_and_modes_are_untouched():
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    x = torch.randn(2, 16, requires_grad=True)
    with torch.no_grad():
        lux.analyze(mlp(), x, backward=True)
        assert not torch.is_grad_enabled()
    lux.analyze(mlp(), x, backward=True)
    assert torch.is_grad_enabled() and x.grad is None and not _get_current_dispatch_mode_stack()


class Compilable(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return self.linear(x).relu()


@pytest.mark.parametrize("way", ["whole", "part", "method", "function"])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_compiled_models_are_counted_once_and_stay_compiled(way, device):
    torch._dynamo.reset()
    compiled = []
    backend = counting_backend(compiled)
    x = torch.randn(2, 16)
    inner = Compilable()
    if way == "whole":
        model = torch.compile(inner, backend=backend)
    elif way == "part":
        model = nn.Sequential(nn.Identity(), torch.compile(inner, backend=backend))
    elif way == "method":
        model = inner
        model.compile(backend=backend)
    else:
        model = Called(torch.compile(lambda part, x: part(x), backend=backend), inner)
    wanted = lux.analyze(Compilable(), x, backward=True)
    cost = lux.analyze(model, x, device=device, backward=True)
    assert (cost.macs, cost.flops, cost.backward_flops) == (wanted.macs, wanted.flops, wanted.backward_flops)
    assert not any("_orig_mod" in row.name for row in cost.modules)
    assert len({row.name for row in cost.modules}) == len(cost.modules)
    assert not compiled
    model(x)
    assert len(compiled) == 1  # it compiles now as if nothing had happened
    lux.analyze(model, x, device=device, backward=True)
    model(x)
    assert len(compiled) == 1  # and does not compile again
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
def test_scripted_models_are_put_back():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)))
    before = {k: v.clone() for k, v in scripted.state_dict().items()}
    cost = lux.analyze(scripted, torch.randn(4, 16), backward=True)
    assert cost.macs == 4 * 16 * 8 and cost.params == 16 * 8 + 8 + 16
    assert all(torch.equal(v, before[k]) for k, v in scripted.state_dict().items())
    assert all(p.grad is None for p in scripted.parameters()) and scripted.training


def test_wrapped_models_are_unwrapped():
    net = mlp()
    assert (
        lux.analyze(nn.DataParallel(net), torch.randn(2, 16)).macs
        == lux.analyze(net, torch.randn(2, 16)).macs
    )


class _Heavy(nn.Module):
    """Much work of its own, with next to no parameters."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(16, 16)

    def forward(self, x):
        wide = x.repeat(32, 32)
        for _ in range(8):
            wide = torch.tanh(wide @ wide.mT[:, : wide.shape[0]] @ wide)
        return self.scale(wide[: x.shape[0], :16])


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_compiled_parts_have_their_times_in_their_own_rows(device):
    inner = nn.Sequential(nn.Linear(16, 16), _Heavy(), nn.ReLU())
    model = nn.Sequential(nn.Linear(16, 16), torch.compile(inner, backend="eager"), nn.ReLU())
    cost = lux.analyze(model, torch.randn(4, 16), latency=True, device=device, backward=False)
    names = ["", "0", "1", "1.0", "1.1", "1.1.scale", "1.2", "2"]
    assert [row.name for row in cost.modules] == names  # the shell of torch.compile has no row
    assert [row.kind for row in cost.modules][2:5] == ["Sequential", "Linear", "_Heavy"]
    times = {row.name: (row.time_ns, row.own_time_ns) for row in cost.modules}
    assert all(whole is not None and own is not None for whole, own in times.values())
    assert times[""][0] >= times["1"][0] >= times["1.1"][0] >= times["1.1.scale"][0] > 0
    assert max(times, key=lambda name: times[name][1]) == "1.1"


def test_compiling_is_not_part_of_the_latency_of_a_compiled_model(monkeypatch):
    from luxmeter.model import latency

    compiled, measured = [], []
    real = latency.measure
    monkeypatch.setattr(
        latency, "measure", lambda work, **options: measured.append(1) or real(work, **options)
    )

    def backend(graph, examples):
        compiled.append(len(measured))
        return graph.forward

    model = torch.compile(mlp(), backend=backend, dynamic=False)
    cost = lux.analyze(model, torch.randn(2, 16), latency=[2, 4])
    assert compiled == [0, 1]  # for each batch size, before its times are taken
    assert [b.batch for b in cost.latency.batches] == [2, 4]
