"""The mindspore backend of the benchmark, and files that go between the two environments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.operators.backends import Unsupported
from luxmeter.operators.backends.mindspore import MindSpore, called
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.inputs import Call, make_call
from luxmeter.operators.results import BenchResult, load_benchmark, side_by_side
from luxmeter.signature import describe, facts_of, module_of

ROOT = Path(__file__).parents[2]
OTHER = ROOT / ".venv" / "bin" / "python"


def case(op: str, *args: object, **kwargs: object) -> Case:
    return Case(op, describe(args, kwargs, facts=facts_of, module=module_of))


OPS = Operators(
    [
        case("torch.nn.Linear", torch.nn.Linear(8, 4), torch.rand(2, 8)),
        case("Tensor.__add__", torch.rand(3, 4), torch.rand(4)),
        case("torch.nn.functional.cross_entropy", torch.rand(5, 3), torch.randint(0, 3, (5,))),
        case("torch.einsum", "ij,jk", torch.rand(2, 3), torch.rand(3, 4)),
        case("torch.cholesky", torch.empty(0, 0)),
    ]
)


@pytest.fixture(scope="module")
def result() -> BenchResult:
    return lux.bench(OPS, backends=["eager", "mindspore"], budget_s=4, quiet=True, python=sys.executable)


def test_both_frameworks_are_measured_with_the_same_data(result: BenchResult) -> None:
    pairs = {p.first.op: p for p in side_by_side(result)}
    assert len(pairs) == len(OPS)
    for op in ("torch.nn.Linear", "Tensor.__add__", "torch.nn.functional.cross_entropy"):
        pair = pairs[op]
        assert pair.second.status in ("ok", "doubtful") and pair.ratio is not None and pair.ratio > 0
        assert pair.second.max_rel_error is not None and pair.second.max_rel_error < 1e-5
        assert pair.second.dtype == "fp32" and pair.second.signature == pair.first.signature
        assert pair.second.ci_low_us is not None and pair.second.times_s


def test_what_mindspore_cannot_run_is_named(result: BenchResult) -> None:
    row = next(r for r in result if r.op == "torch.einsum" and r.backend == "mindspore")
    assert row.status == "unsupported" and "einsum only supports Ascend" in row.reason


def test_an_operator_that_kills_its_process_is_a_row(result: BenchResult) -> None:
    row = next(r for r in result if r.op == "torch.cholesky" and r.backend == "mindspore")
    assert row.status == "crashed" and "SIGFPE" in row.reason


def test_bfloat16_and_backward() -> None:
    backend = MindSpore()
    call = make_call(case("torch.add", torch.rand(2, 8).bfloat16(), torch.rand(8).bfloat16()))
    got = backend.prepare(call, backward=False, threads=1).outputs()
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got, call.run())
    both = make_call(case("torch.nn.Linear", torch.nn.Linear(8, 4), torch.rand(2, 8)))
    prepared = backend.prepare(both, backward=True, threads=1)
    torch.testing.assert_close(prepared.outputs(), both.run().detach())
    assert prepared.sync is not None and prepared.prepare_s > 0
    with pytest.raises(Unsupported, match="1 threads"):
        backend.prepare(call, backward=False, threads=2)


def test_names_of_aten_find_their_counterpart() -> None:
    assert called("aten.add.Tensor") == "torch.add"
    assert called("aten::relu_") == "Tensor.relu_"
    assert called("aten.nonsense.default") == "aten.nonsense.default"
    assert called("aten.add_.Tensor") == "Tensor.add_"
    assert called("torch.Tensor.add") == "Tensor.add"
    backend = MindSpore()
    with pytest.raises(Unsupported, match=r"no counterpart of torch\.nonsense"):
        backend.prepare(Call(torch.add, (), {}, "torch.nonsense"), backward=False, threads=1)
    with pytest.raises(Unsupported, match="with a name"):
        backend.prepare(Call(torch.add, (), {}), backward=False, threads=1)


WRITE = """
import sys, torch, luxmeter as lux
from pathlib import Path
from luxmeter.operators.extract import operators_of
folder = Path(sys.argv[1])
with lux.trace(keep=folder / "trace") as t:
    torch.relu(torch.ones(2, 3)) + 1
ops = operators_of(t)
ops.save(folder / "ops.jsonl")
found = lux.bench(ops, budget_s=0.5, quiet=True)
found.to_json(folder / "bench.json")
found.to_parquet(folder / "bench.parquet")
"""
READ = """
import sys, json, luxmeter as lux
from pathlib import Path
from luxmeter.operators.results import load_benchmark
folder = Path(sys.argv[1])
trace = lux.load_trace(folder / "trace")
print(json.dumps({
    "ops": sorted(map(str, lux.load_operators(folder / "ops.jsonl"))),
    "json": [[r.op, r.n] for r in load_benchmark(folder / "bench.json")],
    "parquet": [[r.op, r.n] for r in load_benchmark(folder / "bench.parquet")],
    "calls": len(trace.recording.events),
}))
"""


@pytest.mark.skipif(not OTHER.exists(), reason="the environment without MindSpore (make setup) is not here")
def test_files_of_one_environment_are_read_in_the_other(tmp_path: Path) -> None:
    seen = []
    for writer, reader in ((sys.executable, OTHER), (OTHER, sys.executable)):
        folder = tmp_path / Path(writer).parents[1].name
        folder.mkdir()
        _run(writer, WRITE, folder)
        there, here = (json.loads(_run(python, READ, folder)) for python in (reader, writer))
        assert there == here
        assert (
            any("relu" in op for op in there["ops"])
            and there["calls"] >= 2
            and there["json"] == there["parquet"]
        )
        seen.append(there["ops"])
    assert seen[0] == seen[1]


@pytest.mark.skipif(not OTHER.exists(), reason="the environment without MindSpore (make setup) is not here")
def test_a_torch_without_mindspore_measures_against_it(tmp_path: Path) -> None:
    ops = Operators([case("Tensor.__mul__", torch.rand(3, 4), torch.rand(4))]).save(tmp_path / "ops.jsonl")
    script = (
        "import sys, luxmeter as lux\n"
        "lux.bench(lux.load_operators(sys.argv[1]), backends=['eager', 'mindspore'], budget_s=1, quiet=True,"
        " python={'mindspore': sys.argv[2]}).to_json(sys.argv[3])\n"
        "assert 'mindspore' not in sys.modules\n"
    )
    _run(OTHER, script, ops, sys.executable, tmp_path / "bench.json")
    pair = side_by_side(load_benchmark(tmp_path / "bench.json"))[0]
    assert pair.first.status in ("ok", "doubtful") and pair.second.status in ("ok", "doubtful")
    assert pair.second.max_abs_error == 0.0


def _run(python: str | Path, script: str, *args: object) -> str:
    done = subprocess.run(
        [python, "-c", script, *map(str, args)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
