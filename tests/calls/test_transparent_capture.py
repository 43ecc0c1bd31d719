"""Programs that are captured (compile, fx, export, ONNX, jit) never meet a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seen import FASTEST, Seen, bits, is_stand_in, torch_is_untouched, unchanged
from torch import cos as early_cos
from torch import nn

from compiler import compiler_works

CORES = pytest.mark.parametrize("core", ["c", "python"])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.act = nn.Linear(4, 4), nn.Linear(4, 2), F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(self.act(self.first(x)) + torch.sin(x))).reshape(-1) * early_cos(x).sum()


def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.relu(torch.sin(x) @ w + x.sum()).T + F.gelu(x).mean() * early_cos(w)


class Backend:
    """Counts graphs, as given to a compiler."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        assert not any(is_stand_in(node.target) for node in graph.graph.nodes)
        return graph.forward


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()
    assert torch_is_untouched()


@pytest.fixture
def backend() -> Backend:
    return Backend()


X, W = torch.randn(4, 4), torch.randn(4, 4)
compiled_early = torch.compile(function, backend="eager")
torch.compile(Net(), backend="eager")(
    X
)  # at its first compilation torch replaces Module.__init__: not during a test


class TestCompile:
    """Each runs bare once or never, traced, bare again: always one graph and one compilation."""

    @CORES
    def test_compiled_inside_the_trace(self, core: str, backend: Backend):
        expected = bits(function(X, W))
        with unchanged(), Seen(core) as seen:
            compiled = torch.compile(function, backend=backend, fullgraph=True)
            results = [compiled(X, W) for _ in range(3)]
        assert bits(results) == [expected] * 3
        assert (
            seen.calls()["torch.compile(function)"] == 3
            and not {"torch.sin", "Tensor.__add__", "Tensor.size"} & seen.counts().keys()
        )
        assert bits(compiled(X, W)) == expected and backend.graphs == 1

    @CORES
    @pytest.mark.parametrize("first", ["bare", "traced"])
    def test_a_compiled_module_across_the_start_and_the_end(self, core: str, backend: Backend, first: str):
        net = Net()
        expected = bits(net(X))
        compiled = torch.compile(net, backend=backend, fullgraph=True)
        if first == "bare":
            compiled(X)
        for _ in range(2):
            with unchanged(), Seen(core) as seen:
                results = [compiled(X), compiled(X)]
            assert bits(results) == [expected] * 2
            assert seen.counts() == {f"torch.compile({__name__}.Net)": 2}
            assert bits(compiled(X)) == expected
        assert backend.graphs == 1

    @CORES
    @pytest.mark.parametrize("first", ["bare", "traced"])
    def test_a_module_compiled_in_place(self, core: str, backend: Backend, first: str):
        net = Net()
        expected = bits(net(X))
        net.compile(backend=backend, fullgraph=True)
        if first == "bare":
            net(X)
        for _ in range(2):
            with unchanged(), Seen(core) as seen:
                results = [net(X), net(X)]
            assert bits(results) == [expected] * 2
            assert seen.counts() == {f"torch.compile({__name__}.Net)": 2}
            assert bits(net(X)) == expected
        assert backend.graphs == 1

    @CORES
    def test_compile_in_place_inside_the_trace(self, core: str, backend: Backend):
        net = Net()
        with Seen(core) as seen:
            net.compile(backend=backend, fullgraph=True)
            results = [net(X), net(X)]
        assert seen.counts()[f"torch.compile({__name__}.Net)"] == 2
        assert bits(net(X)) == bits(results[0]) and backend.graphs == 1

    @CORES
    def test_in_place_of_torchs_own_module(self, core: str, backend: Backend):
        """Dynamo skips its forward (torch 2.15 wraps it and compiles it, too); what records the calls inside it is never compiled."""
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        net.compile(backend=backend)
        wrapped = hasattr(net._compiled_call_impl._torchdynamo_orig_callable, "__wrapped__")
        with warnings.catch_warnings(), Seen(core) as seen:
            warnings.simplefilter("error")
            net(X)
        assert seen.counts() == {"torch.compile(torch.nn.Sequential)": 1} and backend.graphs == wrapped

    @CORES
    def test_a_compiled_function_at_module_level(self, core: str):
        expected = bits(compiled_early(X, W))
        with unchanged(), Seen(core) as seen:
            result = compiled_early(X, W)
        assert bits(result) == expected
        assert seen.counts() == {"torch.compile(function)": 1}

    @CORES
    def test_new_shapes_compile_as_often_as_without(self, core: str):
        def run(net: Any) -> None:
            for rows in (1, 2, 3, 4, 2, 3):
                net(torch.ones(rows, 4))

        def graphs(*, trace: bool) -> int:
            torch._dynamo.reset()
            backend = Backend()
            net = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend=backend)
            if trace:
                with Seen(core):
                    run(net)
            run(net)
            return backend.graphs

        assert graphs(trace=True) == graphs(trace=False) > 1

    @CORES
    def test_graph_breaks_are_the_users_own(self, core: str):
        def broken(x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(x)
            torch._dynamo.graph_break()
            return F.relu(y)

        def graphs(trace: bool) -> int:
            torch._dynamo.reset()
            backend = Backend()
            compiled = torch.compile(broken, backend=backend)
            compiled(X)
            if trace:
                with Seen(core):
                    torch.compile(broken, backend=backend)(X)
            else:
                torch.compile(broken, backend=backend)(X)
            compiled(X)
            return backend.graphs

        assert graphs(True) == graphs(False)

    @CORES
    def test_training_a_compiled_module(self, core: str, backend: Backend):
        def train(net: Any) -> Any:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                net(X).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            return list(net.parameters())

        nets = []
        for _ in range(2):
            torch.manual_seed(0)
            nets.append(Net())
        expected = bits(train(torch.compile(nets[0], backend="eager")))
        torch._dynamo.reset()
        with unchanged(), Seen(core) as seen:
            result = train(torch.compile(nets[1], backend=backend))
        assert bits(result) == expected and backend.graphs == 1
        assert seen.calls()["Tensor.backward"] == 3 and seen.calls()["torch.optim.SGD.step"] == 3

    @CORES
    def test_a_compiled_function_that_only_a_local_variable_knows(self, core: str, backend: Backend):
        """Not found: then Dynamo looks through the stand-ins. Right results, no graph break, at most one more compilation."""
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        expected = bits(compiled(X, W))
        for _ in range(3):
            with unchanged(), Seen(core):
                assert bits(compiled(X, W)) == expected
        assert backend.graphs <= 2

    @pytest.mark.one_core("compiling takes seconds; the tests above have both cores")
    @pytest.mark.slow
    @pytest.mark.skipif(
        not compiler_works("g++"), reason="inductor needs a C++ compiler, and none works here"
    )
    def test_with_inductor(self):
        expected = function(X, W)
        with unchanged(), Seen(FASTEST) as seen:
            result = torch.compile(function)(X, W)
        torch.testing.assert_close(result, expected)
        assert seen.calls()["torch.compile(function)"] == 1


def nodes(graph: torch.fx.Graph) -> list[Any]:
    return [
        (node.op, node.target if isinstance(node.target, str) else id(node.target)) for node in graph.nodes
    ]


@CORES
def test_fx(core: str):
    net = Net()
    expected = nodes(torch.fx.symbolic_trace(net).graph)
    with unchanged(), Seen(core) as seen:
        net(X)
        traced = torch.fx.symbolic_trace(net)
        other = torch.fx.Tracer().trace(net)
        made = torch.fx.experimental.proxy_tensor.make_fx(function)(X, W)
        result = traced(X)
    assert (
        nodes(traced.graph) == nodes(other) == expected and bits(result) == bits(net(X)) and made is not None
    )
    assert seen.calls()["torch.fx.symbolic_trace"] == 1


@CORES
def test_export(core: str):
    net = Net().eval()
    expected = torch.export.export(net, (X,)).graph_module.code
    with unchanged(), Seen(core) as seen:
        net(X)
        exported = torch.export.export(net, (X,))
        strict = torch.export.export(net, (X,), strict=True)
    assert exported.graph_module.code == expected and bits(strict.module()(X)) == bits(net(X))
    assert seen.calls()["torch.export.export"] == 2 and seen.calls()["torch.nn.Linear"] == 2


@CORES
def test_jit(core: str, tmp_path: Path):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))
    expected = torch.jit.script(net).code
    x = torch.ones(2, 4)
    with unchanged(), Seen(core) as seen:
        scripted, traced = torch.jit.script(net), torch.jit.trace(net, (x,))
        same = torch.jit.script(scriptable)
        assert bits(traced(x)) == bits(scripted(x)) == bits(net(x)) and bits(same(x)) == bits(scriptable(x))
    assert scripted.code == expected
    assert seen.calls()["torch.jit.script"] == 2 and seen.calls()["torch.jit.trace"] == 1
    assert any(name.startswith("torch.jit(") for name in seen.calls())
    torch.jit.save(scripted, str(tmp_path / "x.pt"))


def scriptable(x: torch.Tensor) -> torch.Tensor:
    return F.relu(torch.sin(x)) + x.sum()


@CORES
@pytest.mark.slow
def test_onnx(core: str, tmp_path: Path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    x = torch.ones(2, 4)

    def export(path: Path) -> list[str]:
        torch.onnx.export(net, (x,), str(path), dynamo=True, verbose=False)
        return [node.op_type for node in onnx.load(path).graph.node]

    expected = export(tmp_path / "bare.onnx")
    with unchanged(), Seen(core) as seen:
        result = export(tmp_path / "traced.onnx")
    assert result == expected and seen.calls().total() <= 2


FIRST_COMPILATION = """
import torch, luxmeter as lux
from torch.fx.experimental.proxy_tensor import make_fx

weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.LBFGS([weight])
x = torch.ones(2)
bare = [vars(torch.optim.LBFGS)["step"], torch.jit.trace, torch.fx.Tracer.trace]

def program(x):
    return torch.sin(x) + 1

def closure():
    optimizer.zero_grad()
    loss = (weight * weight).sum()
    loss.backward()
    return loss

with lux.trace() as t:
    torch.compile(program, backend="eager")(x)
    graphs = make_fx(program)(x), torch.jit.trace(program, x), torch.fx.symbolic_trace(program)
    optimizer.step(closure)
assert all(torch.equal(graph(x), program(x)) for graph in graphs)
now = [vars(torch.optim.LBFGS)["step"], torch.jit.trace, torch.fx.Tracer.trace]
for before, after in zip(bare, now):  # as Dynamo leaves them without a trace
    assert after is not before and after._torchdynamo_orig_callable is before, (before, after)
print(sorted((row.name, row.n) for row in t.table()))
"""


@CORES
def test_what_torch_replaces_at_its_first_compilation_is_still_timed_and_steps_aside(core: str):
    """Dynamo binds functions of its own over torch.jit.trace, Tracer.trace and some optimizers' step, once a process."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_COMPILATION],
        capture_output=True, text=True, env={**os.environ, "LUXMETER_CORE": core}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(
        [
            ("*", 3), ("Tensor.backward", 3), ("Tensor.sum", 3),  # of the closure, which is the program's own
            ("torch.compile(program)", 1), ("torch.fx.Tracer.trace", 1), ("torch.fx.experimental.proxy_tensor.make_fx", 1),
            ("torch.fx.symbolic_trace", 1), ("torch.jit.trace", 1), ("torch.optim.LBFGS.step", 1),
            ("torch.optim.LBFGS.zero_grad", 3),
        ]
    )  # fmt: skip
