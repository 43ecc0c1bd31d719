"""What analyze counts: parameters, forward and backward, memory; against hand-made numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import luxmeter as lux

sys.path.insert(0, str(Path(__file__).parent))
from networks import Called, Llama, cnn, mlp

# The first optimizer of a class makes torch wrap its step for good: before the tests look at it.
for kind in (torch.optim.SGD, torch.optim.Adam):
    kind([torch.zeros(1)], lr=0.1)


def test_a_network_by_hand():
    cost = lux.analyze(mlp(), torch.randn(2, 16), backward=True)
    assert cost.params == cost.trainable_params == 16 * 32 + 32 + 32 * 4 + 4
    assert cost.macs == 2 * (16 * 32 + 32 * 4)
    assert cost.flops == 2 * cost.macs + 2 * 32 + 2 * 32 + 2 * 4  # biases, relu
    # The first layer needs no gradient of its input: one product there, two in the second.
    assert cost.backward_macs == 2 * 16 * 32 + 2 * (2 * 32 * 4)
    assert cost.weight_bytes == 4 * cost.params
    assert cost.unknown_ops == ()
    assert cost.latency is None
    assert cost.device == "meta"
    assert (cost.batch, cost.input_shapes, cost.output_shapes) == (2, ((2, 16),), ((2, 4),))


def test_backward_is_counted_not_guessed():
    """Frozen layers, a frozen input and recomputation all change it."""
    x = torch.randn(2, 16)

    def backward_macs(model: nn.Module) -> int:
        return lux.analyze(model, x, backward=True).backward_macs

    frozen = mlp()
    frozen[0].requires_grad_(False)
    assert backward_macs(frozen) == 2 * 32 * 4
    again = Called(lambda net, x: checkpoint(net, x, use_reentrant=False), mlp())
    assert backward_macs(again) > backward_macs(mlp())
    x.requires_grad_()
    assert backward_macs(mlp()) == 2 * lux.analyze(mlp(), x).macs
    reentrant = Called(lambda net, x: checkpoint(net, x, use_reentrant=True), mlp())
    assert backward_macs(reentrant) == 3 * lux.analyze(mlp(), x).macs


def test_backward_lands_in_the_module_that_caused_it():
    cost = lux.analyze(mlp(), torch.randn(2, 16), backward=True)
    assert cost.module("0").backward_macs == 2 * 16 * 32
    assert cost.module("2").backward_macs == 2 * (2 * 32 * 4)
    assert cost.module("").backward_flops == cost.backward_flops
    assert sum(o.backward_flops for o in cost.operators) == cost.backward_flops


def test_without_gradients_there_is_no_backward():
    cost = lux.analyze(nn.Softmax(-1), torch.randn(2, 3), backward=True)
    assert cost.backward_flops is None and cost.memory.training_peak_bytes is None
    assert "no result of the model has a gradient" in cost.notes[0]
    assert lux.analyze(mlp(), torch.randn(2, 16), backward=False).backward_flops is None


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_memory_by_hand(device):
    """16 -> 32 -> relu -> 4 on a batch of 2, in float32."""
    cost = lux.analyze(mlp(), torch.randn(2, 16), device=device, optimizer="adamw", backward=True)
    first, last = 2 * 32 * 4, 2 * 4 * 4
    memory = cost.memory
    assert memory.input_bytes == 2 * 16 * 4
    assert cost.activation_bytes == memory.forward_activation_bytes == 2 * first + last
    # The two layers around relu are alive together, then relu's result with the output.
    assert cost.peak_bytes == cost.weight_bytes + memory.input_bytes + 2 * first
    assert (
        memory.training_activation_bytes == first + last
    )  # relu's result and the output (the input is the caller's)
    assert memory.gradient_bytes == cost.weight_bytes
    assert memory.optimizer_bytes == 2 * cost.weight_bytes + 4 * 4  # two moments, and a step counter a tensor
    assert memory.training_peak_bytes >= 4 * cost.weight_bytes + memory.input_bytes


def test_peak_is_what_really_was_alive():
    """Dropping the activations as they come, or keeping all of them, is seen."""
    keep = Called(lambda x: sum([x * i for i in range(10)]))
    drop = Called(lambda x: [x := x * 2 for _ in range(10)][-1])
    inplace = Called(lambda x: (x * 2).mul_(3).add_(1))
    size = 1000 * 4
    x = torch.randn(1000)
    assert lux.analyze(keep, x).peak_bytes - size >= 10 * size
    assert lux.analyze(inplace, x).peak_bytes - size == size
    assert lux.analyze(drop, x).peak_bytes - size == 10 * size  # the list holds them
    views = Called(lambda x: (x * 2).view(10, 100).t()[2:])
    assert lux.analyze(views, x).activation_bytes == size


def test_fused_attention_keeps_no_scores():
    q = torch.empty(1, 1, 4096, 64, device="meta")
    fused = lux.analyze(lambda q: F.scaled_dot_product_attention(q, q, q), q)
    plain = lux.analyze(lambda q: (q @ q.mT).softmax(-1) @ q, q)
    assert fused.macs == plain.macs
    assert plain.peak_bytes > 4096 * 4096 * 4 > fused.peak_bytes


OPTIMIZERS = {
    "sgd": 0, "sgd-momentum": 1, "momentum": 1, "adam": 2, "adamw": 2, torch.optim.RMSprop: 1, "adagrad": 1,
    "adadelta": 2, "adamax": 2, "asgd": 1, "nadam": 2, "radam": 2, "rprop": 2, "adafactor": 0,
    **({"muon": 1} if hasattr(torch.optim, "Muon") else {}),
}  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizer_memory_is_what_the_optimizer_keeps(optimizer, dtype):
    from luxmeter.model.optimizers import factory_of

    bias = optimizer != "muon"  # which takes matrices only
    net = nn.Sequential(nn.Linear(16, 32, bias=bias), nn.ReLU(), nn.Linear(32, 4, bias=bias)).to(dtype)
    cost = lux.analyze(net, torch.randn(2, 16, dtype=dtype), optimizer=optimizer)
    _, make = factory_of(optimizer)
    real = make(net.parameters())
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    real.step()
    held = [v for state in real.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    assert cost.memory.optimizer_bytes == sum(v.numel() * v.element_size() for v in held)
    assert cost.memory.optimizer_bytes // cost.weight_bytes == OPTIMIZERS[optimizer]
    assert cost.optimizer_flops >= cost.params


def test_optimizers_know_all_of_torch():
    from luxmeter.model.optimizers import optimizer_names

    named = {name if isinstance(name, str) else name.__name__.lower() for name in OPTIMIZERS}
    assert set(optimizer_names()) == named | {"lbfgs", "sparseadam"}  # those two are refused, with a reason


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_product_with_a_scaled_sum(device):
    net = Called(
        lambda linear, x: torch.addmm(linear.bias, x, linear.weight, beta=0.5, alpha=2), nn.Linear(4, 4)
    )
    assert lux.analyze(net, torch.randn(3, 4), device=device).macs == 48


@pytest.mark.parametrize("name", ["sgd", "sgd-momentum", "adam", "adamw"])
def test_the_table_of_optimizers_is_what_a_step_does(name):
    from luxmeter.model.optimizers import Weight, cost_of_optimizer, step_on

    weights = [Weight(1, (16, 32), torch.float32, True), Weight(2, (32,), torch.float32, True)]
    quick, real = cost_of_optimizer(weights, name), step_on(weights, name)
    assert quick.state_bytes == real.state_bytes
    assert quick.flops == pytest.approx(real.flops, rel=0.01)


def test_training_memory_by_optimizer_and_type():
    cost = lux.analyze(mlp(), torch.randn(2, 16), optimizer="adamw")
    rows = {(row.optimizer, row.dtype): row for row in cost.training_memory()}
    single = rows["adamw", "float32"]
    assert (single.weight_bytes, single.gradient_bytes) == (cost.weight_bytes, cost.memory.gradient_bytes)
    assert single.optimizer_bytes == cost.memory.optimizer_bytes
    n = cost.params
    assert rows["sgd", "bfloat16"].total_bytes == 4 * n
    assert rows["adamw", "bfloat16 + float32 master"].total_bytes == 16 * n + 4 * 4


def test_shared_parameters_and_modules_count_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)
            self.b = self.a
            self.head = nn.Linear(16, 16, bias=False)
            self.head.weight = self.a.weight

        def forward(self, x):
            for _ in range(3):
                x = self.a(x)
            return self.head(self.b(x))

    cost = lux.analyze(Tied(), torch.randn(2, 16))
    assert cost.params == 16 * 16 + 16
    assert cost.macs == 5 * 2 * 16 * 16
    a = cost.module("a")
    assert (a.calls, a.macs, a.note) == (4, 4 * 2 * 16 * 16, "also b")
    assert [row.name for row in cost.modules] == ["", "a", "head"]


def test_modules_called_in_each_other_and_lists():
    cost = lux.analyze(
        Llama(width=64, heads=4, kv_heads=2, inner=96, layers=3, vocabulary=50), input_size="1,7:int64"
    )
    per_block = 7 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96) + 2 * 4 * 7 * 7 * 16
    assert cost.module("blocks").macs == 3 * per_block
    assert cost.module("blocks.1").macs == per_block
    assert cost.macs == 3 * per_block + 7 * 64 * 50
    assert cost.module("blocks").calls == 0 and cost.module("blocks").note == ""
    assert sum(row.own_flops for row in cost.modules) == cost.flops
    assert sum(o.flops for o in cost.operators) == cost.flops


def test_a_module_that_is_not_called_says_so():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    cost = lux.analyze(Spare(), torch.randn(1, 4))
    assert cost.module("spare").note == "not called"
    assert cost.params == 40 and cost.macs == 16


def test_functional_code_and_plain_functions():
    cost = lux.analyze(lambda x, w: F.linear(x, w).relu(), (torch.randn(2, 3), torch.randn(5, 3)))
    assert cost.macs == 2 * 3 * 5 and cost.params == 0


def test_any_call_signature():
    class Odd(nn.Module):
        def forward(self, x, *, mask=None, options=None, scale=1.0):
            y = x["a"] @ x["b"][0] if isinstance(x, dict) else sum(t.sum() for t in x)
            return {"y": y * scale, "mask": mask}

    a, b = torch.randn(2, 3), torch.randn(3, 4)
    assert lux.analyze(Odd(), {"x": {"a": a, "b": [b]}, "scale": 2.0}).macs == 24
    assert lux.analyze(Odd(), {"a": a, "b": [b]}).macs == 24  # no such keywords: it is the one argument
    assert lux.analyze(Odd(), ({"a": a, "b": (b,)},), kwargs={"mask": a}).macs == 24
    assert lux.analyze(Odd(), [a, b]).flops > 0  # a list that is the one argument
    two = Called(lambda x, y: x @ y)
    assert lux.analyze(two, (a, b)).macs == 24
    assert lux.analyze(two, input_size=[(2, 3), (3, 4)]).macs == 24
    assert lux.analyze(nn.Linear(3, 4), input_size={"input": (2, 3)}).macs == 24


def test_a_loss_is_where_backward_starts():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.other = nn.Linear(4, 4), nn.Linear(4, 400)

        def forward(self, x):
            return {"loss": self.used(x).sum(), "extra": self.other(x)}

    x = torch.randn(1, 4)
    assert lux.analyze(WithLoss(), x, backward=True).backward_macs == 16
    assert lux.analyze(WithLoss(), x, loss=lambda out: out["extra"].sum()).backward_macs == 1600


def test_values_that_code_looks_at():
    """Masks and indices keep their values without computing; what needs real values runs for real and says so."""
    known = Called(lambda x: x * int(torch.arange(5, device=x.device).max()) if torch.ones(3).all() else x)
    assert lux.analyze(known, torch.randn(4)).device == "meta"
    masked = Called(lambda x, m: x[m])
    assert lux.analyze(
        masked, (torch.randn(4, 2), torch.tensor([True, False, True, True]))
    ).output_shapes == ((3, 2),)
    looking = Called(lambda x: x * x.sum().item())
    cost = lux.analyze(looking, torch.randn(4))
    assert cost.device == "cpu" and cost.notes[0].startswith("ran for real")
    with pytest.raises(lux.errors.UsageError, match="input-does-not-fit"):
        lux.analyze(looking, torch.randn(4), device="meta")


def test_training_mode_that_cannot_run_falls_back():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    cost = lux.analyze(
        net, torch.randn(1, 4), backward=True
    )  # one value a channel: batch norm cannot train on it
    assert cost.backward_macs == 16
    assert "evaluation mode" in cost.notes[0]


def test_lazy_modules_are_sized_and_stay_lazy():
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(3))
    cost = lux.analyze(net, torch.randn(1, 3, 8, 8))
    assert cost.params == 4 * 3 * 9 + 4 + 4 * 36 * 3 + 3
    assert isinstance(net[0], nn.LazyConv2d) and net[2].has_uninitialized_params()


def test_half_precision_halves_memory_only():
    single = lux.analyze(cnn(), input_size=(2, 3, 16, 16))
    half = lux.analyze(cnn(), input_size=(2, 3, 16, 16), dtype="bf16")
    assert half.macs == single.macs and half.flops == single.flops
    assert half.weight_bytes * 2 == single.weight_bytes
    assert half.dtype == "bfloat16"
    assert half.memory.optimizer_bytes < single.memory.optimizer_bytes


def test_intensity_is_flops_over_bytes():
    n = 64
    cost = lux.analyze(lambda a, b: a @ b, (torch.randn(n, n), torch.randn(n, n)))
    assert cost.moved_bytes == 3 * n * n * 4
    assert cost.intensity == pytest.approx(2 * n**3 / (3 * n * n * 4))


def test_fake_models_are_counted_too():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = cnn()
        inside = lux.analyze(fake, input_size=(1, 3, 16, 16))
    outside = lux.analyze(fake, input_size=(1, 3, 16, 16))
    assert inside.macs == outside.macs == lux.analyze(cnn(), input_size=(1, 3, 16, 16)).macs


def test_seventy_billion_parameters_without_memory():
    with torch.device("meta"):
        model = Llama()
    cost = lux.analyze(model, input_size="1,4096:int64", dtype="bfloat16", backward=True)
    assert cost.params == 70_553_706_496
    matrices = (
        cost.params - 128256 * 8192 - 161 * 8192
    )  # every weight but the embedding and norms, once a token
    assert cost.macs == 4096 * matrices + 80 * 2 * 64 * 4096 * 4096 * 128
    assert cost.weight_bytes == 2 * cost.params
    assert not cost.unknown_ops and not cost.notes


def test_repeating_gives_the_same():
    net = cnn()
    first = lux.analyze(net, input_size=(1, 3, 16, 16))
    assert (
        first
        == lux.analyze(net, input_size=(1, 3, 16, 16))
        == lux.analyze_model(net, input_size=(1, 3, 16, 16))
    )
