"""A traced MindSpore program does what it did before, and nothing stays behind."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

import luxmeter as lux
import mindspore as ms
from luxmeter.errors import LuxmeterWarning
from mindspore import Tensor, mint, nn, ops

ONE_CORE = "MindSpore takes seconds to begin; calls/test_core_frameworks.py holds what each core makes of a framework"

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


class Net(nn.Cell):
    """Some of everything: layers, a container, a function as an attribute, operators, methods."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(8, 16)
        self.body = nn.SequentialCell(nn.Dense(16, 16), nn.ReLU())
        self.act = ops.relu
        self.last = mint.nn.Linear(16, 2)

    def construct(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        return self.last(self.body(x) + 1).reshape(-1, 2)


def trained(steps: int = 3) -> list[np.ndarray]:
    ms.set_seed(3)
    np.random.seed(3)
    net = Net()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    loss = nn.CrossEntropyLoss()

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return loss(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)
    x, y = Tensor(X), Tensor(np.array([0, 1, 0, 1], np.int32))
    losses = []
    for _ in range(steps):
        value, gradients = gradient(x, y)
        optimizer(gradients)
        losses.append(value.asnumpy())
    return [*losses, *(p.asnumpy() for p in net.trainable_params())]


@pytest.mark.parametrize("core", ["c", "python"])
@pytest.mark.parametrize("settings", [{}, {"inside": True}, {"sync": True}], ids=str)
def test_training_gives_the_same_result(core: str, settings: dict[str, Any]):
    before = trained()
    with lux.trace(core=core, **settings) as t:
        during = trained()
    after = trained()
    # The last bit of a loss differs between two untraced runs too: MindSpore sums in threads.
    assert all(np.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(before, during, strict=True))
    assert all(np.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(before, after, strict=True))
    assert t.table()["mindspore.nn.Adam"].n == 3


def test_exceptions_are_the_users_and_are_counted():
    x = Tensor(X)
    with pytest.raises(TypeError) as plain:
        ops.relu("no tensor")
    with lux.trace() as t, pytest.raises(TypeError) as traced:
        ops.relu("no tensor")
    assert str(traced.value).splitlines()[0] == str(plain.value).splitlines()[0]
    assert t.table()["mindspore.ops.relu"].raised == 1
    with lux.trace(), pytest.raises(AttributeError, match="no_such_thing"):
        _ = x.no_such_thing


def test_threads_have_their_own_nesting():
    x = Tensor(X)

    def work() -> None:
        for _ in range(20):
            ops.relu(x)

    with lux.trace() as t:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert t.table()["mindspore.ops.relu"].n == 60
    assert {row.name: row.n for row in t.table("thread")} == {f"worker {i}": 20 for i in range(3)}


def test_stand_ins_look_like_what_they_stand_for():
    relu, add = ops.relu, Tensor.add
    plain = (repr(relu), relu.__name__, relu.__doc__, relu.__module__, hash(relu))
    with lux.trace():
        assert ops.relu is not relu and ops.relu == relu and mint.nn.functional.relu == relu
        assert (
            repr(ops.relu),
            ops.relu.__name__,
            ops.relu.__doc__,
            ops.relu.__module__,
            hash(ops.relu),
        ) == plain
        assert isinstance(ops.relu, type(relu)) and Tensor.add == add
        assert pickle.loads(pickle.dumps(ops.relu)) == relu and copy.deepcopy(ops.relu) == relu
    assert ops.relu is relu and Tensor.add is add


def test_names_taken_before_and_while_tracing():
    namespace = type(sys)("a_script_of_the_user")
    sys.modules[namespace.__name__] = namespace
    try:
        exec("from mindspore.ops import relu", vars(namespace))
        relu = namespace.relu
        with lux.trace() as t:
            namespace.relu(Tensor(X))
            exec("from mindspore.ops import exp", vars(namespace))
            namespace.exp(Tensor(X))
        assert namespace.relu is relu and namespace.exp is ops.exp
        assert t.table()["mindspore.ops.relu"].n == t.table()["mindspore.ops.exp"].n == 1
    finally:
        del sys.modules[namespace.__name__]


def test_a_cell_that_keeps_a_function_gets_it_back():
    net = Net()
    with lux.trace() as t:
        net(Tensor(X))
        assert net.act is not ops.relu.__wrapped__
    assert net.act is ops.relu and t.table()["mindspore.ops.relu"].n == 1


def test_everything_of_a_failed_start_is_taken_back(monkeypatch: pytest.MonkeyPatch):
    from luxmeter.calls.targets.mindspore.stand_ins import MindSporeFramework

    def broken(self: Any, patcher: Any) -> Any:
        raise MemoryError("in the middle")

    monkeypatch.setattr(MindSporeFramework, "instances", broken)
    with pytest.raises(MemoryError, match="in the middle"):
        lux.trace().start()
    assert not hasattr(ops.relu, "__wrapped__") and "add" not in vars(Tensor)


def test_a_part_that_does_not_fit_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch):
    from luxmeter.calls.targets.mindspore.stand_ins import MindSporeFramework

    def broken(self: Any, patcher: Any) -> Any:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(MindSporeFramework, "instances", broken)
    with pytest.warns(LuxmeterWarning, match="names bound in instances"), lux.trace() as t:
        ops.relu(Tensor(X))
    assert t.table()["mindspore.ops.relu"].n == 1
    assert any("names bound in instances" in note for note in t.result.notes())
    assert not hasattr(ops.relu, "__wrapped__") and "add" not in vars(Tensor)


def test_a_failure_that_only_waiting_shows_is_still_the_users():
    """MindSpore tells of some failures when it is waited for: with sync=True the trace waits, and may not eat them."""
    x, wrong = Tensor(np.arange(4, dtype=np.float32)), Tensor(np.array([7], np.int32))

    def program() -> str:
        try:
            ops.gather(x, wrong, 0).asnumpy()
        except (IndexError, RuntimeError, ValueError) as error:
            return type(error).__name__
        return "no error"

    plain = program()
    with lux.trace(sync=True):
        assert program() == plain
