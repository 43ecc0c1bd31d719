"""What a trace of MindSpore says: names, paths, signatures, times, both frameworks in one table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mindspore.dataset as ds
import numpy as np
import pytest
import torch
from mindspore.experimental.optim import SGD as ExperimentalSGD
from test_mindspore_transparent import Net, trained

import luxmeter as lux
import mindspore as ms
from luxmeter.calls import frameworks
from luxmeter.calls.patching import patcher
from luxmeter.calls.targets.mindspore import callables as targets
from luxmeter.calls.targets.torch.classes import subclasses
from luxmeter.errors import LuxmeterWarning, MissingExtraError, forget_warnings
from mindspore import Tensor, mint, nn, ops

ONE_CORE = "MindSpore takes seconds to begin; calls/test_core_frameworks.py holds what each core makes of a framework"

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


@pytest.mark.parametrize("core", ["c", "python"])
def test_a_training_step_is_told_as_the_user_wrote_it(core: str):
    with lux.trace(core=core) as t:
        trained(1)
    table = t.table()
    one = ["mindspore.ops.relu", "mindspore.nn.Linear", "mindspore.nn.Adam", "mindspore.nn.CrossEntropyLoss",
           "mindspore.Tensor.reshape", "mindspore +", "mindspore.grad.backward", "mindspore.value_and_grad"]  # fmt: skip
    assert {name: table[name].n for name in one} == dict.fromkeys(one, 1)
    assert table["mindspore.nn.Dense"].n == 2
    assert {row.framework for row in table if row.name.startswith("mindspore")} == {"mindspore"}
    paths = {row.name: row.detail for row in t.table("module")}
    assert paths["Net.body.0"] == "mindspore.nn.Dense" and paths["Net.last"] == "mindspore.nn.Linear"
    top = {row["name"] for row in t.events().to_pylist() if not row["inside"] and not row["span"]}
    assert "mindspore.ops.relu" in top and "Net" not in top


@pytest.mark.parametrize("core", ["c", "python"])
def test_each_call_knows_the_users_line(core: str):
    """Not MindSpore's own, where a layer calls on: each row is a line of this file."""
    dense, x = nn.Dense(8, 2), Tensor(X)
    first = sys._getframe().f_lineno + 2
    with lux.trace(core=core, inside=True) as t:
        y = ops.relu(dense(x))
        y + 1
        [ops.sin(y) for _ in range(3)]
    lines = {row.name.rpartition("test_mindspore_calls.py:")[2]: row for row in t.table("line")}
    assert set(lines) == {str(first), str(first + 1), str(first + 2)}
    told = {
        (row["name"], row["line"]) for row in t.events().to_pylist() if not row["own"] and not row["inside"]
    }
    assert {
        ("mindspore.nn.Dense", first),
        ("mindspore.ops.relu", first),
        ("mindspore.ops.sin", first + 2),
    } <= told
    assert lines[str(first + 2)].n >= 3 and t.table()["mindspore.ops.sin"].n == 3  # and what these call
    source = str(t.source())
    assert "[ops.sin(y) for _ in range(3)]" in source and "nn/layer" not in source


def test_inside_shows_what_calls_call():
    with lux.trace(inside=True) as t:
        nn.Dense(8, 2)(Tensor(X))
    rows = t.events().to_pylist()
    dense = next(i for i, row in enumerate(rows) if row["name"] == "mindspore.nn.Dense")
    inner = [row for row in rows if row["parent"] == dense and not row["own"]]
    assert inner and all(row["inside"] for row in inner)
    assert "mindspore.ops.MatMul" in [row["name"] for row in inner]


def test_each_name_is_the_one_that_was_called():
    x = Tensor(X)
    with lux.trace() as t:
        ops.relu(x)
        mint.nn.functional.relu(x)
        mint.sin(x)
        ops.sin(x)
        mint.linalg.vector_norm(x)
        mint.special.exp2(x)
        ops.Add()(x, x)
        ops.tensor_add(x, x)
        x.sum()
        x @ x.T
        -x
        x[0]
    counts = {row.name: row.n for row in t.table()}
    assert counts.pop("mindspore.ops.Add") == 2
    assert counts == dict.fromkeys(
        ["mindspore.ops.relu", "mindspore.mint.nn.functional.relu", "mindspore.mint.sin", "mindspore.ops.sin",
         "mindspore.mint.linalg.vector_norm", "mindspore.mint.special.exp2", "mindspore.Tensor.sum", "mindspore @",
         "mindspore.Tensor.T", "mindspore - (unary)", "mindspore []"], 1)  # fmt: skip


@pytest.mark.parametrize("core", ["c", "python"])
def test_signatures_of_tensors_parameters_and_dtypes(core: str):
    x, weight = Tensor(X), ms.Parameter(Tensor(X), name="w")
    with lux.trace(core=core) as t:
        for _ in range(3):
            ops.cast(x, ms.float16)
        ops.cast(x, ms.int32)
        ops.add(x, weight)
        ops.add(x[0], weight)
        ops.concat([x, x], axis=1)
    said = {(row.name, row.detail): row.n for row in t.table("signature")}
    assert said["mindspore.ops.cast", "f32[4,8], float16"] == 3
    assert said["mindspore.ops.cast", "f32[4,8], int32"] == 1
    assert (
        said["mindspore.ops.add", "f32[4,8], f32[4,8]"] == said["mindspore.ops.add", "f32[8], f32[4,8]"] == 1
    )
    assert said["mindspore.ops.concat", "[f32[4,8], f32[4,8]], axis=1"] == 1
    kinds = [spec.kind for name, words in t.result.signatures if name == "mindspore.ops.add"
             for spec in words.signature.tensors()]  # fmt: skip
    assert kinds == ["", "Parameter", "", "Parameter"]


def test_completion_is_more_than_dispatch():
    big = Tensor(np.ones((700, 700), np.float32))
    ops.matmul(big, big).asnumpy()
    with lux.trace() as dispatched:
        ops.matmul(big, big)
    with lux.trace(sync=True) as completed:
        ops.matmul(big, big)
    (short,) = [r for r in dispatched.events().to_pylist() if r["name"] == "mindspore.ops.matmul"]
    (whole,) = [r for r in completed.events().to_pylist() if r["name"] == "mindspore.ops.matmul"]
    assert not short["completed"] and whole["completed"]
    assert short["dispatch_ns"] == short["duration_ns"]
    assert whole["dispatch_ns"] < whole["duration_ns"]
    row = completed.table()["mindspore.ops.matmul"]
    assert row.dispatch_ns is not None and row.dispatch_ns < row.total_ns


def test_both_frameworks_in_one_table(tmp_path: Path):
    x, y = Tensor(X), torch.from_numpy(X)
    with lux.trace() as t:
        for _ in range(2):
            x + x
            y + y
        ops.relu(x)
        torch.relu(y)
    table = t.table()
    assert {row.name: (row.framework, row.n) for row in table} == {
        "mindspore +": ("mindspore", 2), "+": ("torch", 2), "mindspore.ops.relu": ("mindspore", 1), "torch.relu": ("torch", 1),
    }  # fmt: skip
    assert "framework" in str(table).splitlines()[0] and " mindspore " in str(table)
    found = t.sql("select framework, count(*) n from calls where not own group by 1 order by 1").to_pylist()
    assert found == [{"framework": "mindspore", "n": 3}, {"framework": "torch", "n": 3}]
    assert t.live()["mindspore +"].framework == "mindspore"
    events = [row for row in t.events().to_pylist() if not row["own"]]
    assert all(row["completed"] == (row["framework"] == "torch") for row in events)
    saved = lux.load_trace(t.save(tmp_path / "kept"))
    assert [(r.name, r.framework) for r in saved.table()] == [(r.name, r.framework) for r in table]
    lines = (tmp_path / "kept").glob("rank*/words.jsonl")
    told = [json.loads(line) for path in lines for line in path.read_text().splitlines()]
    assert {entry["framework"] for entry in told if "callable" in entry} >= {"torch", "mindspore"}


def test_totals_tell_the_frameworks_apart():
    with lux.trace(totals=True) as t:
        Tensor(X) + 1
        torch.ones(2) + 1
    assert {(row.name, row.framework) for row in t.table()} >= {("+", "torch"), ("mindspore +", "mindspore")}


@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_one_framework_alone(framework: str):
    with lux.trace(framework=framework) as t:
        Tensor(X) + 1
        torch.ones(2) + 1
    assert {row.framework for row in t.table()} == {framework}


def test_data_and_checkpoints(tmp_path: Path):
    data = ds.NumpySlicesDataset({"x": X}, shuffle=False).batch(2)
    net = Net()
    path = str(tmp_path / "net.ckpt")
    with lux.trace() as t:
        batches = [batch["x"] for batch in data.create_dict_iterator(num_epochs=1)]
        pairs = list(data)
        ms.save_checkpoint(net, path)
        loaded = ms.load_checkpoint(path)
        ms.load_param_into_net(net, loaded)
    assert len(batches) == len(pairs) == 2
    table = t.table()
    assert (
        table["next(Dataset)"].n == 6 and table["next(Dataset)"].raised == 0
    )  # the end of an iterator is no error
    assert table["iter(Dataset)"].n == 1 and table["mindspore.dataset.Dataset.create_dict_iterator"].n == 1
    for name in ("save_checkpoint", "load_checkpoint", "load_param_into_net"):
        assert table[f"mindspore.{name}"].n == 1


@pytest.mark.parametrize("make", [lambda p: ExperimentalSGD(p, lr=0.1), lambda p: nn.SGD(p, 0.1)])
def test_an_optimizer_ends_a_step(make: Any):
    net = nn.Dense(8, 2)
    optimizer = make(net.trainable_params())
    gradient = ms.grad(lambda x: net(x).sum(), None, net.trainable_params())
    with lux.trace(sample=2) as t:
        for _ in range(4):
            optimizer(gradient(Tensor(X)))
    assert t.table()["mindspore.nn.Dense"].n == 2


def test_every_public_callable_is_seen_or_says_why_not():
    coverage = patcher.coverage("mindspore")
    seen, unseen = set(coverage.seen), {entry.name for entry in coverage.unseen}
    missing = []
    for namespace in targets.NAMESPACES:
        module = sys.modules.get(namespace)
        if not isinstance(module, ModuleType):
            continue
        for name in getattr(module, "__all__", ()):
            value = vars(module).get(name)
            full = f"{namespace}.{name}"
            if name.startswith("_") or not callable(value) or full in seen | unseen:
                continue
            if isinstance(value, type) and issubclass(value, (nn.Cell, ops.Primitive)):
                continue  # seen by its own name, wherever it is offered
            if str(getattr(value, "__module__", "")).startswith("mindspore"):
                missing.append(full)
    assert missing == []
    assert all(entry.reason for entry in coverage.unseen)
    assert len(seen) > 2500 and not seen & unseen
    assert {f"mindspore.Tensor.{m}" for m in ("add", "__matmul__", "sum", "asnumpy", "T")} <= seen


def test_every_function_of_ops_and_mint_can_be_counted():
    """The stand-in of each target is where the target says, and is taken out again (the conftest looks)."""
    with lux.trace():
        for target in targets.listing().targets:
            bound = vars(target.owner).get(target.attribute)
            assert bound is not None and hasattr(bound, "__wrapped__"), target.name


def test_cells_of_the_user_are_transparent_and_packages_can_be_calls():
    net = Net()
    with lux.trace(framework="mindspore") as t:
        net(Tensor(X))
    assert t.table()[f"{Net.__module__}.Net"].n == 1 and "mindspore.nn.Dense" in t.table()
    assert all(cls.__module__ for cls in subclasses(nn.Cell))
    for name, is_one in ((Net.__module__, True), (Net.__module__[:-1], False)):
        with lux.trace(also=[name], framework="mindspore") as t:
            net(Tensor(X))
        assert ("mindspore.nn.Dense" not in t.table()) == is_one


def test_a_cell_with_a_call_of_its_own():
    class Twice(nn.Cell):
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(super().__call__(x))

        def construct(self, x: Tensor) -> Tensor:
            return ops.relu(x)

    with lux.trace() as t:
        Twice()(Tensor(X))
    assert t.table()["mindspore.ops.relu"].n == 2
    [name] = (row.name for row in t.table() if "Twice" in row.name)
    assert t.table()[name].n >= 1


def test_filters_know_the_names_of_mindspore():
    with lux.trace(only=["mindspore.ops.*"]) as t:
        ops.relu(Tensor(X))
        torch.ones(2)
        Tensor(X) + 1
    assert [row.name for row in t.table()] == ["mindspore.ops.relu"]


LATE = """
import luxmeter as lux, sys
with lux.trace(**{settings}) as t:
    assert "mindspore" not in sys.modules
    import numpy as np
    import mindspore as ms
    from mindspore import ops
    x = ops.relu(ms.Tensor(np.ones((2, 3), np.float32))) + 1
    import torch
    torch.ones(2) + 1
assert "__wrapped__" not in dir(ms.ops.relu) and ops.relu is ms.ops.relu
print(sorted((row.name, row.framework, row.n) for row in t.table() if row.name in ("+", "mindspore +", "mindspore.ops.relu")))
print([row["completed"] for row in t.events().to_pylist() if row["name"] == "mindspore.ops.relu"])
"""


@pytest.mark.parametrize("sync", [False, True])
def test_mindspore_imported_while_tracing(tmp_path: Path, sync: bool):
    script = tmp_path / "late.py"
    script.write_text(LATE.replace("{settings}", repr({"sync": sync})))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == str(
        [("+", "torch", 1), ("mindspore +", "mindspore", 1), ("mindspore.ops.relu", "mindspore", 1)]
    )
    assert lines[1] == str([sync])


def test_an_import_that_fails_is_told_in_one_line(tmp_path: Path):
    (tmp_path / "mindspore").mkdir()
    (tmp_path / "mindspore" / "__init__.py").write_text(
        "raise ImportError('numpy.core.multiarray\\nfailed to import')"
    )
    code = "import luxmeter as lux\ntry:\n    lux.trace(framework='mindspore')\nexcept ImportError as e:\n    print(e.slug)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert done.stdout.split() == ["mindspore-broken"], done.stderr


def test_a_numpy_that_is_too_new_is_named(monkeypatch: pytest.MonkeyPatch):
    """MindSpore's import succeeds with numpy 2; what it is asked to do first fails. It is not asked."""
    monkeypatch.setattr(np, "__version__", "2.4.6")
    with pytest.raises(MissingExtraError, match="mindspore-numpy") as caught:
        lux.trace(framework="mindspore").start()
    assert f"MindSpore {ms.__version__} needs numpy 1" in str(caught.value)
    assert "numpy 2.4.6" in str(caught.value) and "numpy<2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_with_the_wrong_numpy_torch_is_traced_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(np, "__version__", "2.4.6")
    forget_warnings()
    with pytest.warns(LuxmeterWarning, match="MindSpore are not timed.*numpy 2.4.6.*framework-not-traced"):
        trace = lux.trace().start()
    ops.relu(Tensor(X))
    torch.relu(torch.ones(2))
    trace.stop()
    assert {row.framework for row in trace.table()} == {"torch"}


def test_a_mindspore_of_tomorrow_may_take_numpy_2(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(np, "__version__", "2.4.6")
    monkeypatch.setattr(ms, "__version__", "2.11.0")
    assert frameworks.import_mindspore() is ms
