"""What cannot be described is unknown and counted: no argument, module or tensor ends a trace."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from typer.testing import CliRunner

import luxmeter as lux
from luxmeter.calls import load_trace
from luxmeter.operators.case import case_from_json, case_to_json
from luxmeter.operators.work import bench_one
from luxmeter.signature import Opaque
from luxmeter.view.cli import build_app

pytestmark = pytest.mark.usefixtures("core_name")

LAZY = sorted(name for name in dir(nn) if name.startswith("Lazy"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lazy(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A lazy module with settings that are no defaults, and what it can be called with."""
    dims = int(name[-2]) if name.endswith("d") else 0
    if "Conv" in name:
        return getattr(nn, name)(4, 3, bias=False, stride=2), torch.rand(2, 6, *[9] * dims)
    if "Norm" in name:
        return getattr(nn, name)(eps=0.125, momentum=0.5), torch.rand(2, 6, *[9] * dims)
    return getattr(nn, name)(4, bias=False), torch.rand(2, 3)


def ragged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_module_is_recorded_and_replays(name: str, tmp_path: Path) -> None:
    module, x = lazy(name)
    with lux.trace(keep=tmp_path / "t") as trace:
        for _ in range(3):
            module(x)
    rows = [row for row in trace.table().rows if row.name == f"torch.nn.{name}"]
    assert [row.n for row in rows] == [3]
    for result in (trace, load_trace(tmp_path / "t")):
        first, later = sorted(
            (c for c in result.operators() if c.op == f"torch.nn.{name}"), key=lambda c: c.count
        )
        assert (first.count, later.count) == (1, 2)
        spec, made = first.signature.args[0], later.signature.args[0]
        assert spec.name == f"torch.nn.{name}" and any(isinstance(t, Opaque) for _, t in spec.tensors)
        assert (
            made.name == f"torch.nn.{name.removeprefix('Lazy')}"
            and dict(spec.settings).items() - {("dtype", dict(spec.settings)["dtype"])}
            <= dict(made.settings).items()
        )
        assert case_from_json(json.loads(json.dumps(case_to_json(first)))) == first
        assert str(first)
    for case in (first, later):
        for dtype in ("recorded", "bf16"):
            row = bench_one(case_to_json(case), dtype=dtype, backend="eager", backward=False, threads=1, budget_s=0.01, target_ci=0.5)  # fmt: skip
            assert row["status"] in ("ok", "doubtful"), row


def test_two_modules_of_one_class_are_two_operators() -> None:
    x = torch.ones(3, 3)
    layers = [nn.Linear(3, 4), nn.Linear(3, 5, bias=False), nn.Linear(3, 4)]
    with lux.trace() as trace:
        for layer in layers:
            layer(x)
    found = {str(c.signature.args[0]): c.count for c in trace.operators() if c.op == "torch.nn.Linear"}
    assert found == {
        "Linear(in_features=3, out_features=4, bias=True)": 2,
        "Linear(in_features=3, out_features=5, bias=False)": 1,
    }


def test_training_and_evaluation_are_two_operators() -> None:
    x, module = torch.ones(3, 3), nn.Dropout(0.25)
    with lux.trace() as trace:
        module(x)
        module.eval()
        module(x), module(x)
    found = {c.signature.args[0].training: c.count for c in trace.operators() if c.op == "torch.nn.Dropout"}
    assert found == {True: 1, False: 2}


def changed() -> dict[str, Any]:
    """Modules of torch.nn that no settings would give, and a word of the reason."""
    modules: dict[str, Any] = {
        "there only in the recorded": nn.Linear(3, 4),
        "other.": nn.Linear(3, 4),
        "weight has a parametrization": nn.utils.parametrize.register_parametrization(
            nn.Linear(3, 4), "weight", nn.Tanh()
        ),
        "weight_g": nn.utils.weight_norm(nn.Linear(3, 4)),
        "weight_mask": prune.random_unstructured(nn.Linear(3, 4), "weight", 0.5),
        "forward was replaced": nn.Linear(3, 4),
        "weight is f32": nn.Linear(3, 4),
    }
    modules["there only in the recorded"].register_buffer("ragged", ragged())
    modules["other."].other = nn.Linear(1, 1)
    modules["forward was replaced"].forward = torch.sin
    modules["weight is f32"].weight = nn.Parameter(torch.rand(7, 3))
    modules["weight is f32"].bias = None
    return modules


def test_a_changed_module_says_why_it_is_not_replayed() -> None:
    modules = changed()
    x = torch.ones(2, 3)
    seen = []
    for why, module in modules.items():
        with lux.trace() as trace:
            module(x)
        [case] = [c for c in trace.operators() if c.op == "torch.nn.Linear"]
        row = bench_one(case_to_json(case), dtype="recorded", backend="eager", backward=False, threads=1, budget_s=0.01, target_ci=0.5)  # fmt: skip
        assert row["status"] == "unsupported", why
        seen.append((why, row["reason"]))
    assert [(why, reason) for why, reason in seen if why not in reason] == []


class Raises:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")

    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


class Broken(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Any:
        yield torch.ones(2)
        raise ValueError("no")


class Endless(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        while True:
            yield 1


class Meta(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no")


class NoStorage(torch.Tensor):
    """A wrapper: it has a shape and nothing behind it, and no one may ask for more."""

    @staticmethod
    def __new__(cls, n: int) -> NoStorage:
        return torch.Tensor._make_wrapper_subclass(cls, (n,))  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("no")


class Shapeless(torch.Tensor):
    @property
    def shape(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


class Unready(nn.Module):
    """Never initialised."""

    def __init__(self) -> None:
        pass


class Hostile(nn.Module):
    def __init__(self, size: Any = None, other: Any = None) -> None:
        super().__init__()
        self.other = [self]
        self.weight = nn.Parameter(torch.ones(2).as_subclass(Shapeless))

    @property
    def size(self) -> Any:
        raise RuntimeError("no")

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no")


def odd_values() -> dict[str, Any]:
    itself: list[Any] = []
    itself += [itself, itself, itself]
    turning = nn.Sequential()
    turning._modules["0"] = turning
    deep: Any = torch.ones(1)
    for _ in range(100):
        deep = [deep]
    return {
        "raises": Raises(), "broken": Broken([1]), "endless": Endless(), "nameless": Meta("Nameless", (), {})(),
        "no storage": NoStorage(3), "shapeless": torch.ones(2).as_subclass(Shapeless), "ragged": ragged(),
        "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "unready": Unready(), "hostile": Hostile(), "itself": itself, "turning": turning, "deep": deep,
        "huge": 10**5000, "surrogate": "\udcff", "keys": {torch.ones(2): torch.ones(3), Raises: 1},
        "slice": slice(torch.tensor(1), None), "unmade": nn.UninitializedParameter(), "lazy": nn.LazyLinear(3),
        "parameters": nn.ParameterList([torch.ones(2).as_subclass(Shapeless), 3, "x"]),
        "sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "script": torch.jit.script(nn.Linear(2, 2)), "meta": torch.ones(2, device="meta"),
        "half initialised": torch.ones(3).expand(2, 3), "complex": complex("nan"), "function": lambda x: x,
    }  # fmt: skip


ODD = sorted(odd_values())


@pytest.mark.parametrize("name", ODD)
def test_odd_arguments_are_counted(name: str, tmp_path: Path) -> None:
    """Whatever a call is given, the call is there, is written and read, shown, and replayed or said to be impossible."""
    value, x = odd_values()[name], torch.ones(3)
    with lux.trace(keep=tmp_path / "t") as trace:
        for args, kwargs in [
            ((value, x), {}),
            (([value, x], (x, value)), {}),
            ((x,), {"more": {"a": value}}),
        ]:
            for function in (torch.cat, nn.functional.relu):
                with contextlib.suppress(Exception):  # the call itself may refuse it, as it would untraced
                    function(*args, **kwargs)
        torch.abs(x)
    again = load_trace(tmp_path / "t")
    for result in (trace, again):
        counts = {row.name: row.n for row in result.table().rows}
        assert counts["torch.cat"] == counts["torch.nn.functional.relu"] == 3, counts
        assert counts["torch.abs"] == 1
        assert all(str(words.signature) for words in signatures(result))
        assert [c.op for c in result.operators() if c.op == "torch.abs"] == ["torch.abs"]
    assert repr(signatures(again)) == repr(signatures(trace))
    for words in signatures(again):
        list(words.signature.tensors()), words.signature.size_bytes, hash(words.signature)
        assert words.signature.map_tensors(lambda t: t) == words.signature or "nan" in repr(words)


def signatures(result: Any) -> list[Any]:
    found = getattr(result, "result", result).recording.signatures
    return [words for words in found if words is not None]


def test_the_command_and_workers_after_it(tmp_path: Path, core_name: str) -> None:
    """`luxmeter trace` of a script with a lazy module, a nested buffer, and a DataLoader with workers behind them."""
    script = tmp_path / "s.py"
    script.write_text(
        "import torch\nfrom torch import nn\n\n\ndef main():\n"
        "    nn.LazyLinear(4)(torch.ones(2, 3))\n"
        "    m = nn.Linear(3, 4)\n"
        "    m.register_buffer('n', torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))\n"
        "    m(torch.ones(2, 3))\n"
        "    data = torch.utils.data.TensorDataset(torch.arange(6.0))\n"
        "    for (x,) in torch.utils.data.DataLoader(data, num_workers=1):\n        torch.sin(x)\n\n\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "luxmeter", "trace", "-o", "t", str(script)],
        cwd=tmp_path,
        env={**os.environ, "LUXMETER_CORE": core_name},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shown = CliRunner().invoke(build_app(), ["ops", str(tmp_path / "t"), "--json"])
    assert shown.exit_code == 0, shown.output
    counts = {case["op"]: case["count"] for case in json.loads(shown.stdout)}
    assert counts["torch.nn.LazyLinear"] == counts["torch.nn.Linear"] == 1 and counts["torch.sin"] == 6
    table = CliRunner().invoke(build_app(), ["ops", str(tmp_path / "t"), "--name", "*Linear"])
    assert table.exit_code == 0 and "LazyLinear(out_features=4" in table.stdout
