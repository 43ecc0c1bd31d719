"""A user's training program: every layer, functional call, backward, optimizer, scheduler, loader, where the user wrote it."""

from __future__ import annotations

import io
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seen import Seen, Witness, bits, is_stand_in, unchanged
from torch import nn

CORES = pytest.mark.parametrize("core", ["c", "python"])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2 * ctx.saved_tensors[0]


square = Square.apply  # the usual way to name one: bound before any trace starts


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.act = F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.layers(self.norm(x))) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class MySGD(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


def program(optimizer_class: Any = torch.optim.Adam, *, steps: int = 3, scheduler: bool = True) -> Any:
    torch.manual_seed(0)
    net = Net()
    optimizer = optimizer_class(net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1) if scheduler else None
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])

    def train() -> Any:
        losses = []
        for _ in range(steps):
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()
            losses.append(loss)
        return losses, list(net.parameters())

    return train


@CORES
def test_a_training_step_shows_what_the_user_wrote(core: str):
    expected = bits(program()())
    train = program()
    with unchanged(), Seen(core) as seen:
        result = train()
    assert bits(result) == expected
    assert seen.calls() == {
        "torch.nn.LayerNorm": 6, "torch.nn.Linear": 9, "torch.nn.ReLU": 6, "torch.nn.functional.gelu": 6, "Tensor.__add__": 6,
        "torch.nn.functional.cross_entropy": 3, "Tensor.backward": 3, "torch.optim.Adam.step": 3, "torch.optim.Adam.zero_grad": 3,
        "torch.optim.lr_scheduler.StepLR.step": 3,
    }  # fmt: skip
    spans = seen.counts() - seen.calls()
    assert spans == {f"{__name__}.Net": 3, f"{__name__}.Block": 6, "torch.nn.Sequential": 6}
    assert seen.by_path()["Net.blocks.1.layers.0"] == ("torch.nn.Linear", 3)
    assert seen.by_path()["Net"] == (f"{__name__}.Net", 3) and seen.by_path()["Net.head"] == (
        "torch.nn.Linear",
        3,
    )


@CORES
def test_inside_shows_what_a_layer_calls(core: str):
    layer = nn.Linear(3, 3)
    with Seen(core, inside=True) as seen:
        layer(torch.ones(2, 3))
    assert seen.counts() == {"torch.nn.Linear": 1, "torch.nn.functional.linear": 1, "torch.ones": 1}


@CORES
def test_everything_made_inside_the_trace(core: str):
    expected = bits(program()())
    with unchanged(), Seen(core) as seen:
        result = program()()
    assert bits(result) == expected
    found = seen.calls()
    assert found["torch.optim.Adam.step"] == 3 and found["torch.optim.lr_scheduler.StepLR.step"] == 3
    assert found["torch.nn.init.kaiming_uniform_"] == 3


@CORES
@pytest.mark.parametrize("scheduler", [True, False])
def test_the_users_own_optimizer_hides_nothing(core: str, scheduler: bool):
    expected = bits(program(MySGD, scheduler=scheduler)())
    train = program(MySGD, scheduler=scheduler)
    with unchanged(), Seen(core) as seen:
        result = train()
    assert bits(result) == expected
    assert seen.counts()[f"{__name__}.MySGD.step"] == 3 and f"{__name__}.MySGD.step" not in seen.calls()
    assert seen.calls()["Tensor.add_"] == 3 * len(list(Net().parameters()))


@CORES
def test_an_optimizer_class_that_is_first_used_inside_the_trace(core: str):
    class Late(torch.optim.SGD):
        pass

    class Later(MySGD):
        def step(self, closure: Any = None) -> None:
            super().step(closure)

    hooks = []
    with Seen(core) as seen:
        for cls in (Late, Later):
            optimizer = cls(Net().parameters()) if cls is Later else cls(Net().parameters(), lr=0.1)
            optimizer.register_step_pre_hook(lambda *_: hooks.append(1))
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
    found = seen.counts()
    assert found[f"{__name__}.Late.step"] == 1 and found[f"{__name__}.Later.step"] == 1
    assert not is_stand_in(vars(Later)["step"]) and not is_stand_in(getattr(Late.step, "__wrapped__", None))
    assert Later.step.hooked  # torch's own hook is on the class, as it would be without a trace
    optimizer.step()
    assert len(hooks) >= 3


@CORES
def test_a_witness_sees_no_call_that_the_trace_does_not(core: str):
    """Whatever a mode sees lies inside a call of ours; the probe would leave an event of its own otherwise."""
    train = program()
    seen = Seen(core)
    probe = seen.recorder.wrap(lambda: None, seen.add("probe"))
    with seen:
        probe()
        witness = Witness(probe)
        with witness:
            train()
    assert len(witness.calls) > 100 and seen.calls()["probe"] == 1


class Slots:
    __slots__ = ("train",)


@CORES
def test_an_optimizer_out_of_reach_is_seen_from_its_first_zero_grad(core: str):
    hidden = Slots()
    hidden.train = program()
    with Seen(core) as seen:
        hidden.train()
    assert seen.counts()["torch.optim.Adam.step"] == 2  # its scheduler had hidden the first of three


@pytest.mark.parametrize("core", ["c", "python"])
def test_looking_for_optimizers_keeps_no_tensor_alive(core: str):
    def program() -> tuple[bool, dict[str, Any]]:
        tensor = torch.ones(3)
        gone = weakref.ref(tensor)
        with Seen(core):
            pass
        del tensor
        return gone() is None, locals()

    def keeper() -> dict[str, Any]:
        mine = 1
        kept = locals()
        with Seen(core):
            pass
        return kept

    assert program()[0]
    assert keeper()["mine"] == 1  # what locals() gave is the user's


@CORES
def test_autograd_functions_of_the_user_are_transparent(core: str):
    x = torch.ones(3, requires_grad=True)
    with unchanged(), Seen(core) as seen:
        Square.apply(x).sum().backward()
        square(x)
    assert seen.counts()[f"{__name__}.Square.apply"] == 2
    assert seen.calls()["Tensor.__mul__"] == 2 and seen.calls()["Tensor.backward"] == 1
    assert torch.equal(x.grad, torch.full((3,), 2.0))


@CORES
def test_operators_in_place_and_reflected(core: str):
    x = torch.arange(4.0)
    with Seen(core) as seen:
        y = 1 + x
        y = 2 - y
        y = 3 * y
        y = 6 / y
        y = y**2
        y = 2**y
        y = y // 1
        y = y % 5
        y += 1
        y -= 1
        y *= 2
        y /= 2
        _ = (y == x) & (y < x) | ~(y >= x)
        _ = y[1:]
        y[0] = 1
        _ = -y @ x
        _ = x.reshape(2, 2).T
        _ = x.real
    assert seen.calls() == {
        "Tensor.__radd__": 1, "Tensor.__rsub__": 1, "Tensor.__rmul__": 1, "Tensor.__rtruediv__": 1, "Tensor.__pow__": 1, "Tensor.__rpow__": 1,
        "Tensor.__floordiv__": 1, "Tensor.__mod__": 1, "Tensor.__iadd__": 1, "Tensor.__isub__": 1, "Tensor.__imul__": 1,
        "Tensor.__itruediv__": 1, "Tensor.__eq__": 1, "Tensor.__lt__": 1, "Tensor.__ge__": 1, "Tensor.__and__": 1, "Tensor.__or__": 1,
        "Tensor.__invert__": 1, "Tensor.__getitem__": 1, "Tensor.__setitem__": 1, "Tensor.__neg__": 1, "Tensor.__matmul__": 1,
        "Tensor.reshape": 1, "Tensor.T": 1, "Tensor.real": 1,
    }  # fmt: skip


@CORES
def test_waiting_for_data_is_a_cost(core: str):
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    with Seen(core) as seen:
        batches = [batch for (batch,) in loader]
    assert len(batches) == 3
    found = seen.counts()
    assert found["DataLoader.__iter__"] == 1 and found["DataLoader.__next__"] == 4  # the fourth finds the end
    assert (
        found["Tensor.__getitem__"] == 10 and "DataLoader.__next__" not in seen.calls() and not seen.raised()
    )


@CORES
def test_saving_and_loading(core: str, tmp_path: Path):
    net = Net()
    state = net.state_dict()
    with Seen(core) as seen:
        torch.save(state, tmp_path / "x.pt")
        loaded = torch.load(tmp_path / "x.pt")
        stream = io.BytesIO()
        torch.save(net, stream)
    assert bits(loaded) == bits(state)
    assert seen.counts() == {"torch.save": 2, "torch.load": 1}
    assert isinstance(torch.load(io.BytesIO(stream.getvalue()), weights_only=False), Net)


@CORES
def test_modules_with_parametrizations_and_lazy_ones_are_layers(core: str):
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    lazy = nn.LazyLinear(2)
    with Seen(core) as seen:
        lazy(normed(torch.ones(1, 3)))
    assert seen.calls()["torch.nn.Linear"] >= 1 and seen.counts().keys() - {"torch.ones"} <= {
        "torch.nn.Linear",
        "torch.nn.LazyLinear",
    }


@CORES
def test_two_models_keep_their_paths_apart(core: str):
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x)

    net, other = Net(), Other()
    with Seen(core) as seen:
        net(torch.ones(1, 8))
        other(torch.ones(1, 8))
    assert {"Net.head", "Other.head"} <= seen.by_path().keys()
