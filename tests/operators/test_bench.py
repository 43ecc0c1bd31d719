"""Benchmarks end to end in real workers: rows, dtypes, scales, failures as rows, resuming, ways out."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import luxmeter as lux
from luxmeter.errors import UsageError
from luxmeter.isolate import Pool
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.extract import operators_of
from luxmeter.operators.inputs import outputs_of, replay
from luxmeter.operators.results import COLUMNS, BenchResult, load_benchmark
from luxmeter.operators.scales import dimensions, scaled
from luxmeter.signature import ListOf, Signature, TensorSpec, describe, module_of

ONE_CORE = "operators are taken from recordings, whichever core made them"

X, W = torch.rand(8, 16), torch.nn.Parameter(torch.rand(4, 16))
LINEAR = Case("torch.nn.functional.linear", describe((X, W)))
ADD = Case("torch.add", describe((X, torch.rand(8, 16))))
SETTINGS = {"budget_s": 0.5, "quiet": True}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Warm workers for all tests here: starting one takes longer than any of them."""
    with Pool(preload=["luxmeter.operators.work"]) as shared:
        yield shared


@pytest.fixture(scope="module")
def result(pool: Pool) -> BenchResult:
    return lux.bench(
        Operators([LINEAR, ADD]), dtypes=["fp32", "bf16"], backends=["eager"], pool=pool, **SETTINGS
    )


def test_a_row_for_each_combination(result) -> None:
    assert [(r.op, r.dtype, r.backend) for r in result] == [
        (op, dtype, "eager") for op in (LINEAR.op, ADD.op) for dtype in ("fp32", "bf16")
    ]
    for row in result:
        assert row.status in ("ok", "doubtful"), row.reason
        assert row.n == len(row.times_s) and row.min_us <= row.median_us <= max(row.times_s) * 1e6
        assert row.ci_low_us <= row.median_us <= row.ci_high_us
        assert row.speedup == 1.0
        assert row.memory_bytes and row.memory_bytes >= 8 * 4 * 2
    linear, half, *_ = result
    assert linear.flops == 2 * 8 * 16 * 4 and linear.bytes == 4 * (8 * 16 + 4 * 16 + 8 * 4)
    assert linear.gflops_per_s == pytest.approx(linear.flops / linear.median_us / 1e3)
    assert linear.max_abs_error == 0 and 0 < half.max_rel_error < 0.05
    assert half.bytes == linear.bytes / 2
    assert result.noise_floor is not None and result.environment
    assert "linear" in str(result) and "noise floor" in str(result)


def test_ways_out(result, tmp_path: Path) -> None:
    rows = list(csv.DictReader(result.to_csv(tmp_path / "r.csv").read_text().splitlines()))
    assert list(rows[0]) == COLUMNS and len(rows) == 4 and rows[1]["dtype"] == "bf16"
    again = load_benchmark(result.to_json(tmp_path / "r.json"))
    assert again.rows == result.rows
    frame = result.to_pandas()
    assert list(frame.columns) == COLUMNS and frame["median_us"].notna().all()
    import pyarrow.parquet as pq

    table = pq.read_table(result.to_parquet(tmp_path / "r.parquet"))
    assert table.num_rows == 4 and len(table["times_s"][0].as_py()) == result.rows[0].n


def test_scales_grow_together(pool: Pool) -> None:
    found = lux.bench(LINEAR, scales={"batch": [1, 32]}, pool=pool, **SETTINGS)
    assert [(r.scale, r.signature) for r in found] == [
        ("batch=1", "f32[1,16], f32[4,16]"),
        ("batch=32", "f32[32,16], f32[4,16]"),
    ]
    assert [r.flops for r in found] == [2 * n * 16 * 4 for n in (1, 32)]


def test_dimensions_and_their_names() -> None:
    conv = Case(
        "torch.nn.Conv2d", describe((torch.nn.Conv2d(8, 4, 3), torch.rand(8, 8, 9, 9)), module=module_of)
    )
    assert dimensions(LINEAR) == {"batch": 8, "features": 16}
    assert dimensions(conv) == {"batch": 8, "channels": 8, "height": 9, "width": 9}
    bigger = scaled(conv, {"batch": 2, "height": 20}).case
    assert bigger.signature.args[1].shape == (2, 8, 20, 9)
    assert outputs_of(replay(bigger)) == ["f32[2,4,18,7]"]
    wider = scaled(LINEAR, {"features": 32}).case
    assert str(wider.signature) == "f32[8,32], f32[4,32]"
    named = scaled(LINEAR, {"out": 5}, dims={"out": 4}).case
    assert str(named.signature) == "f32[8,16], f32[5,16]"
    view = Case("Tensor.view", describe((X, [8, 4, 4])))
    assert scaled(view, {"batch": 3}).case.signature.args[1] == ListOf((3, 4, 4))
    square = TensorSpec((8, 8), "float32")
    for op in ("torch.mm", "aten.mm.default", "torch.nn.functional.linear", "Tensor.__matmul__"):
        assert (
            str(scaled(Case(op, Signature((square, square))), {"batch": 2}).case.signature)
            == "f32[2,8], f32[8,8]"
        )
    mixed = Case(
        "torch.add", Signature((TensorSpec((8, 8), "float32"), TensorSpec((8, 8), "float32", stride=(1, 8))))
    )
    assert str(scaled(mixed, {"batch": 2}).case.signature) == "f32[2,8], f32[2,8]"


def test_what_fails_is_a_row(pool: Pool) -> None:
    bad = Case("torch.mm", Signature((TensorSpec((2, 3), "float32"), TensorSpec((2, 3), "float32"))))
    gone = Case("torch.no_such_operator", Signature())
    found = lux.bench(Operators([bad, ADD, gone]), pool=pool, **SETTINGS)
    assert [r.status for r in found][::2] == ["error", "error"]
    assert "shapes cannot be multiplied" in found.rows[0].reason
    assert "operator-gone" in found.rows[2].reason
    assert found.rows[1].status in ("ok", "doubtful")


def test_a_hang_and_a_crash_are_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A backend of another package (an entry point) that kills its process, and one that never returns."""
    package = tmp_path / "deadly-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[luxmeter.backends]\ncrashes = deadly:Crash\nhangs = deadly:Hang\n"
    )
    (tmp_path / "deadly.py").write_text(
        textwrap.dedent("""
        import os, signal, time
        class Crash:
            def prepare(self, call, *, backward, threads):
                os.kill(os.getpid(), signal.SIGSEGV)
        class Hang:
            def prepare(self, call, *, backward, threads):
                time.sleep(600)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from luxmeter.operators import backends

    monkeypatch.setattr(backends.BACKENDS, "_offered", None)
    things = dict(backends.BACKENDS._things)
    with Pool(preload=["luxmeter.operators.work"]) as own:
        found = lux.bench(ADD, backends=["crashes", "eager"], pool=own, **SETTINGS)
        assert [r.status for r in found][:1] == ["crashed"] and found.rows[0].reason == "ended by SIGSEGV"
        assert found.rows[1].median_us
        [hung] = lux.bench(ADD, backends=["hangs"], timeout_s=1, pool=own, **SETTINGS)
        assert (hung.status, hung.reason) == ("timeout", "no result within 1 s")
    backends.BACKENDS._things.clear()
    backends.BACKENDS._things.update(things)


def test_backward_and_kernels(pool: Pool) -> None:
    found = lux.bench(LINEAR, backward=True, pool=pool, **SETTINGS)
    assert found.rows[0].mode == "forward+backward" and found.rows[0].status in ("ok", "doubtful")
    whole = Case("torch.argmax", describe((X,)))
    refused = lux.bench(whole, backward=True, pool=pool, **SETTINGS)
    assert refused.rows[0].status == "unsupported" and "no gradient" in refused.rows[0].reason
    kernels = lux.bench(
        Case("torch.nn.Linear", describe((torch.nn.Linear(16, 4), X), module=module_of)),
        kernels=True,
        pool=pool,
        **SETTINGS,
    )
    assert [r.kernel for r in kernels] == ["", "aten.t.default", "aten.addmm.default"]
    assert all(r.op == "torch.nn.Linear" for r in kernels)


def test_resume_measures_only_what_is_missing(pool: Pool, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    first = lux.bench(LINEAR, resume=kept, pool=pool, **SETTINGS)
    both = lux.bench(Operators([LINEAR, ADD]), resume=kept, pool=pool, **SETTINGS)
    assert both.rows[0].times_s == first.rows[0].times_s
    assert len(both) == 2 and load_benchmark(kept).rows == both.rows
    other = lux.bench(LINEAR, resume=kept, dtypes=["bf16"], pool=pool, **SETTINGS)
    assert other.rows[0].dtype == "bf16"


def test_a_budget_that_is_too_small_still_measures_once(pool: Pool) -> None:
    slow = Case("torch.mm", Signature((TensorSpec((700, 700), "float32"),) * 2))
    found = lux.bench(Operators([slow, ADD]), budget_s=0, pool=pool, quiet=True)
    assert all(r.n >= 1 and r.status in ("ok", "doubtful") for r in found)
    assert found.rows[0].status == "doubtful" and found.rows[0].reason


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent("""
        import signal, torch, luxmeter as lux
        from luxmeter.operators.case import Case, Operators
        from luxmeter.signature import describe
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
        cases = [Case("torch.add", describe((torch.rand(n), torch.rand(n)))) for n in range(1, 400)]
        result = lux.bench(Operators(cases), budget_s=600, target_ci=1e-9, resume="kept.json")
        print("rows", len(result), result.complete)
        """)
    )
    process = subprocess.Popen(
        [sys.executable, script.name], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "kept.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    word, rows, complete = said.split()
    assert word == "rows" and 1 <= int(rows) < 399 and complete == "False", errors
    assert len(load_benchmark(tmp_path / "kept.json")) == int(rows)


@pytest.mark.parametrize(
    ("settings", "slug"),
    [
        ({"dtypes": ["fp23"]}, "unknown-dtype"),
        ({"backends": ["eagre"]}, "unknown-name"),
        ({"scales": {"bach": [1]}}, "unknown-dimension"),
        ({"scales": {"batch": [0]}}, "bad-scale"),
    ],
)
def test_bad_settings(settings: dict, slug: str) -> None:
    with pytest.raises(UsageError, match=slug):
        lux.bench(LINEAR, **settings)
    with pytest.raises(UsageError, match="nothing-to-bench"):
        lux.bench(Operators())


def test_damaged_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for text in (
        "{",
        json.dumps({"what": "x", "version": 1}),
        json.dumps({"what": "luxmeter benchmark", "version": 1}),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match="benchmark-damaged"):
            load_benchmark(path)
    with pytest.raises(UsageError, match="benchmark-unreadable"):
        load_benchmark(tmp_path / "none.json")


def test_from_a_trace_to_rows(tmp_path: Path) -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    with lux.trace() as t:
        for _ in range(2):
            x = torch.rand(2, 3, 8, 8)
            loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([1, 4]))
            loss.backward()
            torch.cat([x, x * 2])[:, 1].sum()
    ops = operators_of(t)
    by_name = {c.op: c for c in ops}
    conv = by_name["torch.nn.Conv2d"]
    assert conv.count == 2 and conv.total_ns and conv.where == ("Sequential.0",)
    assert "torch.nn.Sequential" not in by_name and "Tensor.backward" not in by_name
    assert {
        "torch.cat",
        "Tensor.__mul__",
        "Tensor.__getitem__",
        "Tensor.sum",
        "torch.nn.functional.cross_entropy",
    } <= set(by_name)
    assert by_name["torch.nn.functional.cross_entropy"].signature.args[1].facts.values == (1, 4)
    again = lux.load_operators(ops.save(tmp_path / "ops.jsonl"))
    assert again == ops
    for case in again:
        assert replay(case) is not None
    spent = sum(row.self_ns for row in t.result.table())
    assert math.isclose(sum(ops.share(c) for c in ops), ops.total_ns / spent) and ops.total_ns < spent


def test_kernels_that_the_program_calls_itself() -> None:
    with lux.trace() as t:
        torch.ops.aten.add.Tensor(X, X, alpha=2)
        torch.ops.aten.mm(X, torch.rand(16, 3))
    ops = t.operators().filter(name="aten.*")
    assert {(c.op, str(c.signature)) for c in ops} == {
        ("aten.add.Tensor", "f32[8,16], f32[8,16], alpha=2"), ("aten.mm", "f32[8,16], f32[16,3]"),
    }  # fmt: skip
    assert sorted(outputs_of(replay(case)) for case in ops) == [["f32[8,16]"], ["f32[8,3]"]]
