"""Compiled functions are one call, and compile as if nobody looked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luxmeter as lux
import mindspore as ms
from mindspore import Tensor, mint, nn, ops

ONE_CORE = "MindSpore takes seconds to begin; calls/test_core_frameworks.py holds what each core makes of a framework"

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def work(x: Tensor) -> Tensor:
    return ops.relu(x) + x.sum() * mint.sin(x)


@ms.jit
def by_source(x: Tensor) -> Tensor:
    return ops.relu(x) + x.sum() * mint.sin(x)


@ms.jit(capture_mode="bytecode")
def by_bytecode(x: Tensor) -> Tensor:
    return ops.relu(x) + x.sum() * mint.sin(x)


class Plain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)
        self.act = ops.relu

    def construct(self, x: Tensor) -> Tensor:
        return self.act(self.dense(x)).mean()


class Compiled(Plain):
    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        return self.act(self.dense(x)).mean()


@pytest.mark.parametrize("name", ["by_source", "by_bytecode"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_compiled_function_is_one_call(name: str, inside: bool):
    function = globals()[name]
    x = Tensor(X)
    expected = work(x).asnumpy()
    with lux.trace(inside=inside) as t:
        results = [globals()[name](x) for _ in range(3)]
    assert all(np.allclose(r.asnumpy(), expected, atol=1e-5) for r in results)
    assert globals()[name] is function
    row = t.table(inside=False)[f"mindspore.jit({__name__}.{name})"]
    assert row.n == 3
    if not inside:
        assert not any(r.name.startswith(("mindspore.ops", "mindspore.mint")) for r in t.table())


SCRIPT = """
import luxmeter as lux, mindspore as ms, numpy as np
from mindspore import ops, Tensor

@ms.jit(capture_mode="trace")
def by_trace(x):
    return ops.relu(x) + x.sum()

x = Tensor(np.ones((2, 3), np.float32))
with lux.trace() as t:
    results = [by_trace(x).asnumpy() for _ in range(3)]
assert all((r == 7).all() for r in results), results
print(t.table()["mindspore.jit(by_trace)"].n)
"""


def test_a_function_captured_by_running_it(tmp_path: Path):
    """As a script: this way of compiling fails under `python -m`, whose frames have no source."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3"], done.stderr


def test_a_function_compiled_while_tracing():
    x = Tensor(X)
    with lux.trace() as t:
        compiled = ms.jit(work)
        assert np.allclose(compiled(x).asnumpy(), work(x).asnumpy(), atol=1e-5)
        assert np.allclose(ms.jit(ops.sin)(x).asnumpy(), np.sin(X), atol=1e-6)
    assert t.table()[f"mindspore.jit({__name__}.work)"].n == 1
    assert np.allclose(compiled(x).asnumpy(), work(x).asnumpy(), atol=1e-5)


def test_a_compiled_cell_and_its_gradient():
    x, cell = Tensor(X), Compiled()
    expected = cell(x).asnumpy(), ms.grad(cell)(x).asnumpy()
    with lux.trace() as t:
        found = cell(x).asnumpy(), ms.grad(cell)(x).asnumpy()
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
    assert t.table()[f"mindspore.jit({__name__}.Compiled.construct)"].n == 2
    assert "mindspore.nn.Dense" not in t.table()


def test_graph_mode_makes_a_cell_one_call_and_back():
    x, cell = Tensor(X), Plain()
    with lux.trace() as t:
        eager = cell(x).asnumpy()
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            graph = cell(x).asnumpy()
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)
        again = cell(x).asnumpy()
    assert np.allclose(eager, graph, atol=1e-6) and np.array_equal(eager, again)
    table = t.table()
    assert table[f"mindspore.graph({__name__}.Plain)"].n == 1 and table[f"{__name__}.Plain"].n == 2
    assert table["mindspore.nn.Dense"].n == 2


def test_compiling_is_told_apart_with_inside():
    def fresh(x: Tensor) -> Tensor:
        return ops.exp(x) * 3

    with lux.trace(inside=True) as t:
        ms.jit(fresh)(Tensor(X))
    assert t.table()["mindspore.jit.compile"].n == 1


def of_transforms() -> dict[str, Any]:
    def square_sum(x: Tensor) -> Tensor:
        return (x * x).sum()

    class Own(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return ops.exp(x)

        def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
            return (ops.mul(dout, out),)

    x = Tensor(X)
    return {
        "grad": lambda: ms.grad(square_sum)(x),
        "grad of a function of MindSpore": lambda: ms.grad(ops.sin)(x),
        "grad of a compiled function": lambda: ms.grad(by_source)(x),
        "GradOperation": lambda: ops.GradOperation()(square_sum)(x),
        "second derivative": lambda: ms.grad(ms.grad(ops.sin))(x),
        "vmap": lambda: ms.vmap(ops.sin)(x),
        "jvp": lambda: ms.jvp(square_sum, x, x)[1],
        "vjp": lambda: ms.vjp(square_sum, x)[1](Tensor(np.float32(1)))[0],
        "jacrev": lambda: ms.jacrev(square_sum)(x),
        "own bprop": lambda: ms.grad(Own())(x),
        "HyperMap": lambda: ops.HyperMap()(ops.tensor_add, (x,), (x,))[0],
        "clip": lambda: ops.clip_by_global_norm([x, x])[0],
    }


@pytest.mark.parametrize("name", list(of_transforms()))
def test_transforms_give_the_same_result(name: str):
    expected = of_transforms()[name]()
    with lux.trace():
        found = of_transforms()[name]()
    assert np.array_equal(expected.asnumpy(), found.asnumpy())


def test_gradient_functions_are_seen_whenever_they_were_made():
    net, x = Plain(), Tensor(X)
    early = ms.value_and_grad(lambda a: net(a), None, net.trainable_params())
    with lux.trace() as t:
        early(x)
        late = ms.value_and_grad(lambda a: net(a), None, net.trainable_params())
        late(x)
        ms.grad(lambda a: net(a))(x)
    table = t.table()
    assert table["mindspore.value_and_grad"].n == 2 and table["mindspore.grad"].n == 1
    assert table["mindspore.grad.backward"].n == 3 and table["mindspore.nn.Dense"].n == 3
