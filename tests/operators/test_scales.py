"""A row that claims a scale measured it: every kind of operator resized, what cannot be says so."""

from __future__ import annotations

import csv
import itertools
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, rand

import luxmeter as lux
from luxmeter.isolate import Pool
from luxmeter.operators import work
from luxmeter.operators.case import Case, Operators, case_to_json
from luxmeter.operators.inputs import make_call, outputs_of, replay
from luxmeter.operators.jobs import jobs_of
from luxmeter.operators.options import make_options
from luxmeter.operators.resolve import is_operator
from luxmeter.operators.results import load_benchmark
from luxmeter.operators.scales import dimensions, scaled
from luxmeter.operators.series import series_of
from luxmeter.operators.work import mismatch_of
from luxmeter.signature import ModuleSpec, describe, facts_of, module_of


def case(op: str, *args: Any, **kwargs: Any) -> Case:
    return Case(op, describe(args, kwargs, facts=facts_of, module=module_of))


def given(found: Case) -> str:
    """What it is given besides its module."""
    inside = [v for v in found.signature.args if not isinstance(v, ModuleSpec)]
    return ", ".join(map(str, (*inside, *(f"{k}={v}" for k, v in found.signature.kwargs))))


INDEX = torch.tensor([7, 3])
MASK = rand(8, 8) > 0.9
# (case, what it is given at batch 32, what comes out)
FOLLOW = [
    (case("torch.nn.BatchNorm2d", nn.BatchNorm2d(4), rand(8, 4, 5, 5)), "f32[32,4,5,5]", "f32[32,4,5,5]"),
    (case("torch.nn.BatchNorm1d", nn.BatchNorm1d(8), rand(8, 8)), "f32[32,8]", "f32[32,8]"),
    (case("torch.nn.Conv2d", nn.Conv2d(8, 8, 3), rand(8, 8, 9, 9)), "f32[32,8,9,9]", "f32[32,8,7,7]"),
    (case("torch.nn.Embedding", nn.Embedding(10, 8), torch.randint(0, 10, (8, 5))), "i64[32,5]", "f32[32,5,8]"),
    (case("torch.nn.LSTM", nn.LSTM(4, 5), rand(7, 8, 4)), "f32[7,32,4]", "f32[7,32,5]"),
    (case("torch.nn.LSTM", nn.LSTM(4, 5, batch_first=True), rand(8, 7, 4), (rand(1, 8, 5), rand(1, 8, 5))),
     None, "f32[32,7,5]"),
    (case("torch.nn.MultiheadAttention", nn.MultiheadAttention(8, 2, batch_first=True), *[rand(8, 8, 8)] * 3, attn_mask=MASK),
     "f32[32,8,8], f32[32,8,8], f32[32,8,8], attn_mask=b8[8,8]", "f32[32,8,8]"),
    (case("torch.nn.MultiheadAttention", nn.MultiheadAttention(8, 2), *[rand(3, 8, 8)] * 3, attn_mask=rand(16, 3, 3)),
     "f32[3,32,8], f32[3,32,8], f32[3,32,8], attn_mask=f32[64,3,3]", "f32[3,32,8]"),
    (case("torch.nn.CTCLoss", nn.CTCLoss(), rand(7, 8, 5).log_softmax(-1), torch.randint(1, 5, (8, 3)),
          torch.full((8,), 7), torch.full((8,), 3)), "f32[7,32,5], i64[32,3], i64[32], i64[32]", "f32[]"),
    (case("torch.randn", 8, 16), "32, 16", "f32[32,16]"),
    (case("torch.zeros", (8, 3)), "(32, 3)", "f32[32,3]"),
    (case("torch.zeros", size=(8, 3)), "size=(32, 3)", "f32[32,3]"),
    (case("torch.full", (8, 3), 8), "(32, 3), 8", "i64[32,3]"),
    (case("torch.randint", 0, 8, (8, 3)), "0, 8, (32, 3)", "i64[32,3]"),
    (case("torch.arange", 8, 16), "8, 40", "i64[32]"),
    (case("torch.arange", 0, 16, 2), "0, 64, 2", "i64[32]"),
    (case("torch.eye", 8, 8), "32, 8", "f32[32,8]"),
    (case("torch.linspace", 0, 8, 8), "0, 8, 32", "f32[32]"),
    (case("torch.randperm", 8), "32", "i64[32]"),
    (case("Tensor.new_zeros", rand(8, 3), 8, 3), "f32[32,3], 32, 3", "f32[32,3]"),
    (case("Tensor.view", rand(8, 16), 8, 4, 4), "f32[32,16], 32, 4, 4", "f32[32,4,4]"),
    (case("Tensor.view", rand(8, 16), [2, 4, 16]), "f32[32,16], [8, 4, 16]", "f32[8,4,16]"),
    (case("Tensor.view", rand(8, 16), 128), "f32[32,16], 512", "f32[512]"),
    (case("Tensor.reshape", rand(8, 16), (8, -1)), "f32[32,16], (32, -1)", "f32[32,16]"),
    (case("aten.view.default", rand(8, 16), [8, 16, 1]), "f32[32,16], [32, 16, 1]", "f32[32,16,1]"),
    (case("torch.unflatten", rand(8, 4), 0, (2, 4)), "f32[32,4], 0, (8, 4)", "f32[8,4,4]"),
    (case("Tensor.expand", rand(8, 1), 8, 4), "f32[32,1], 32, 4", "f32[32,4]"),
    (case("Tensor.expand", rand(1, 4), 8, 4), "f32[1,4], 32, 4", "f32[32,4]"),
    (case("Tensor.expand", rand(8, 1), -1, 4), "f32[32,1], -1, 4", "f32[32,4]"),
    (case("Tensor.repeat", rand(8, 4), 8, 1), "f32[32,4], 8, 1", "f32[256,4]"),
    (case("Tensor.permute", rand(2, 3, 4), 2, 0, 1), "f32[32,3,4], 2, 0, 1", "f32[4,32,3]"),
    (case("aten.sum.dim_IntList", rand(1, 5), [1]), "f32[32,5], [1]", "f32[32]"),
    (case("torch.as_strided", rand(8, 16), (8, 16), (16, 1)), "f32[32,16], (32, 16), (16, 1)", "f32[32,16]"),
    (case("torch.cat", [rand(8, 4), rand(8, 4)], 1), "[f32[32,4], f32[32,4]], 1", "f32[32,8]"),
    (case("torch.stack", [rand(8), rand(8)]), "[f32[32], f32[32]]", "f32[2,32]"),
    (case("torch.split", rand(8, 4), 4), "f32[32,4], 16", "f32[16,4]"),
    (case("Tensor.split", rand(8, 4), [3, 5]), "f32[32,4], [12, 20]", "f32[12,4]"),
    (case("torch.split", rand(4, 8), 8, dim=1), "f32[32,8], 8, dim=1", "f32[32,8]"),
    (case("torch.tensor_split", rand(8, 4), [2, 6]), "f32[32,4], [8, 24]", "f32[8,4]"),
    (case("torch.index_select", rand(8, 4), 0, INDEX), "f32[32,4], 0, i64[2]", "f32[2,4]"),
    (case("torch.gather", rand(8, 4), 0, torch.tensor([[7, 3, 1, 1]])), "f32[32,4], 0, i64[1,4]", "f32[1,4]"),
    (case("Tensor.__getitem__", rand(8, 4), 7), "f32[32,4], 7", "f32[4]"),
    (case("Tensor.__getitem__", rand(8, 4), INDEX), "f32[32,4], i64[2]", "f32[2,4]"),
    (case("Tensor.__getitem__", rand(8, 4), slice(4, 8)), "f32[32,4], 4:32", "f32[28,4]"),
    (case("Tensor.__setitem__", rand(8, 8), 3, rand(8)), "f32[32,8], 3, f32[8]", None),
    (case("Tensor.__setitem__", rand(8, 8), (slice(None), 3), rand(8)), None, None),
    (case("torch.narrow", rand(8, 4), 0, 6, 2), "f32[32,4], 0, 6, 2", "f32[2,4]"),
    (case("torch.topk", rand(8, 4), 8, 0), "f32[32,4], 32, 0", "f32[32,4]"),
    (case("Tensor.add_", rand(8, 4), rand(4)), "f32[32,4], f32[4]", "f32[32,4]"),
    (case("torch.add", rand(8, 4, 8), rand(8)), "f32[32,4,8], f32[8]", "f32[32,4,8]"),
    (case("torch.add", rand(1, 4), rand(8, 4)), "f32[1,4], f32[32,4]", "f32[32,4]"),
    (case("Tensor.masked_fill_", rand(8, 4), rand(8, 1) > 0.5, 0.0), "f32[32,4], b8[32,1], 0.0", "f32[32,4]"),
    (case("torch.matmul", rand(8, 8), rand(8, 8)), "f32[32,8], f32[8,8]", "f32[32,8]"),
    (case("torch.matmul", rand(8, 3, 4), rand(8, 4, 3)), "f32[32,3,4], f32[32,4,3]", "f32[32,3,3]"),
    (case("torch.bmm", rand(8, 3, 4), rand(8, 4, 3)), "f32[32,3,4], f32[32,4,3]", "f32[32,3,3]"),
    (case("torch.dot", rand(8), rand(8)), "f32[32], f32[32]", "f32[]"),
    (case("torch.addmm", rand(8), rand(8, 4), rand(4, 8)), "f32[8], f32[32,4], f32[4,8]", "f32[32,8]"),
    (case("torch.einsum", "bij,bkj->bik", rand(8, 3, 8), rand(8, 5, 8)), None, "f32[32,3,5]"),
    (case("torch.linalg.inv", rand(8, 3, 3)), "f32[32,3,3]", "f32[32,3,3]"),
    (case("aten.embedding.default", rand(8, 4), torch.randint(0, 8, (8, 5))), "f32[8,4], i64[32,5]", "f32[32,5,4]"),
    (case("torch.nn.functional.scaled_dot_product_attention", *[rand(8, 2, 8, 4)] * 3, attn_mask=rand(8, 8)),
     None, "f32[32,2,8,4]"),
    (case("torch.nn.functional.binary_cross_entropy", rand(8), rand(8), rand(8)), "f32[32], f32[32], f32[32]", "f32[]"),
    (case("torch.nn.functional.layer_norm", rand(8, 8), (8,), rand(8)), "f32[32,8], (8,), f32[8]", "f32[32,8]"),
    (case("torch.nn.functional.batch_norm", rand(8, 8, 3), rand(8), rand(8)), "f32[32,8,3], f32[8], f32[8]", "f32[32,8,3]"),
    (case("aten.native_group_norm.default", rand(8, 4, 3, 3), rand(4), rand(4), 8, 4, 9, 2, 1e-5), None, "f32[32,4,3,3]"),
]  # fmt: skip
# No dimension of these is a batch, or none can be told.
NONE = [
    case("torch.arange", 0, 1.5, 0.1), case("torch.tensor", [1, 2, 3]), case("torch.relu", rand(())),
    case("torch.linalg.inv", rand(8, 8)), case("torch.nn.Conv2d", nn.Conv2d(8, 8, 3), rand(8, 9, 9)),
    case("torch.relu", nn.Parameter(rand(8, 4))), case("torch._foreach_add", [rand(8), rand(8)], 1),
    case("torch.nn.Linear", nn.Linear(8, 4), rand(8)), case("torch.nn.functional.layer_norm", rand(8, 4), (8, 4)),
]  # fmt: skip


def name_of(value: Any) -> str:
    return value.op if isinstance(value, Case) else ""


@pytest.mark.parametrize(("recorded", "wanted", "out"), FOLLOW, ids=name_of)
def test_every_kind_of_operator_follows(recorded: Case, wanted: str | None, out: str | None) -> None:
    bigger = scaled(recorded, {"batch": 32})
    assert (bigger.sizes, bigger.lacking, bigger.failed) == ({"batch": 32}, "", "")
    if wanted is not None:
        assert given(bigger.case) == wanted
    assert dimensions(bigger.case)["batch"] == 32
    assert mismatch_of(bigger.case, make_call(bigger.case)) == ""
    found = outputs_of(replay(bigger.case))
    assert out is None or found[0] == out
    smaller = scaled(recorded, {"batch": 2})  # an index that was seen may lie outside now
    assert not smaller.failed or "cannot follow" in smaller.failed
    replay(smaller.case)


@pytest.mark.parametrize("recorded", NONE, ids=name_of)
def test_what_has_no_batch_says_so(recorded: Case) -> None:
    found = scaled(recorded, {"batch": 32})
    assert found.lacking == "it has no dimension 'batch'" and found.case == recorded and not found.sizes


def test_sizes_that_cannot_follow() -> None:
    found = scaled(case("Tensor.view", rand(8, 16), 2, 4, 16), {"batch": 3})
    assert "cannot follow" in found.failed and found.sizes == {"batch": 3}


def test_sizes_change_at_once_and_not_one_after_another() -> None:
    linear = case("torch.nn.Linear", nn.Linear(16, 4), rand(8, 16))
    wide = scaled(linear, {"batch": 16, "features": 32}).case
    assert str(wide.signature.args[1]) == "f32[16,32]"
    assert dict(wide.signature.args[0].settings)["in_features"] == 32
    assert outputs_of(replay(wide)) == ["f32[16,4]"]
    hidden = scaled(linear, {"out": 7}, dims={"out": 4}).case
    assert outputs_of(replay(hidden)) == ["f32[8,7]"]
    assert "size 5" in scaled(linear, {"x": 7}, dims={"x": 5}).lacking


def test_memory_order_and_shared_memory_stay() -> None:
    x = rand(8, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    call = make_call(scaled(case("torch.mul", x, x), {"batch": 2}).case)
    assert call.args[0].is_contiguous(memory_format=torch.channels_last)
    assert call.args[0].data_ptr() == call.args[1].data_ptr()
    part = rand(8, 16)[:, ::2]
    assert make_call(scaled(case("torch.relu", part), {"batch": 2}).case).args[0].is_contiguous()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(preload=["luxmeter.operators.work"]) as shared:
        yield shared


@pytest.fixture(scope="module")
def rows(pool: Pool) -> lux.operators.rows.BenchResult:
    norm = case("torch.nn.BatchNorm2d", nn.BatchNorm2d(4), rand(8, 4, 5, 5))
    ops = Operators([norm, case("torch.randn", 8, 16), case("torch.linalg.inv", rand(8, 8)),
                     case("Tensor.view", rand(8, 16), 2, 4, 16)])  # fmt: skip
    return lux.bench(ops, scales={"batch": [1, 32], "height": [5, 6]}, budget_s=0.5, quiet=True, pool=pool)


def test_rows_measure_what_they_claim(rows) -> None:
    norm = [r for r in rows if r.op == "torch.nn.BatchNorm2d"]
    assert [(r.scale, r.signature.rpartition(" ")[2], r.bytes) for r in norm] == [
        (f"batch={n},height={h}", f"f32[{n},4,{h},5]", 2 * n * 4 * h * 5 * 4 + 2 * 4 * 4)
        for n in (1, 32) for h in (5, 6)
    ]  # fmt: skip
    assert all(r.status in ("ok", "doubtful") for r in norm)
    drawn = [(r.scale, r.signature, r.status) for r in rows if r.op == "torch.randn"]
    assert drawn == [("batch=1", "1, 16", "unscaled"), ("batch=32", "32, 16", "unscaled")]  # it has no height


def test_operators_that_become_equal_are_measured_once_and_counted_together() -> None:
    """As equal calls of a trace are one operator: where a size tells two apart they are two, where it does not they are one."""
    few, many = (
        replace(case("torch.relu", rand(n, 16)), count=count, total_ns=1000 * count, lines=(f"train.py:{n}",))
        for n, count in ((8, 3), (32, 4))
    )
    other = case("torch.relu", rand(8, 24))
    failed = [case("Tensor.view", rand(n, 16), 2, n // 2, 16) for n in (8, 16)]
    options = make_options({"scales": {"batch": [1, 64]}, "dtypes": ["fp32", "bf16"]})
    jobs = [job.base for job in jobs_of(Operators([few, other, many]), options, None)]
    told = [
        (j["signature"], j["scale"], j["dtype"], j["traced_calls"], j["traced_ns"], j["traced_at"])
        for j in jobs
    ]
    assert told == [
        (f"f32[{n},{width}]", f"batch={n}", dtype, *weight)
        for width, weight in ((16, (7, 7000, "train.py:8, train.py:32")), (24, (1, None, "")))
        for n in (1, 64)
        for dtype in ("fp32", "bf16")
    ]
    assert len({j["case"] for j in jobs}) == 2 and len({j["key"] for j in jobs}) == len(jobs)
    unscaled = make_options({})
    assert [j.base["traced_calls"] for j in jobs_of(Operators([few, other, many]), unscaled, None)] == [
        3,
        1,
        4,
    ]
    kept = list(jobs_of(Operators(failed), make_options({"scales": {"batch": [1]}}), None))
    assert [j.beforehand["status"] for j in kept if j.beforehand] == ["unscaled"] * 2, (
        "what could not be scaled is still two"
    )


def test_unscaled_rows_say_so_everywhere_and_are_not_drawn(rows, tmp_path: Path) -> None:
    [whole] = [r for r in rows if r.op == "torch.linalg.inv"]
    assert (whole.scale, whole.status) == ("", "unscaled") and whole.median_us
    assert whole.reason.startswith(
        "it has no dimension 'batch'; it has no dimension 'height'; measured as recorded"
    )
    views = [r for r in rows if r.op == "Tensor.view"]
    assert [(r.scale, r.status, r.n) for r in views if r.scale == "batch=1"] == [("batch=1", "unscaled", 0)]
    assert "cannot follow" in views[0].reason
    assert "unscaled: it has no dimension 'batch'" in str(
        rows
    ) and "rows were not scaled as asked for" in str(rows)
    for kept in csv.DictReader(rows.to_csv(tmp_path / "r.csv").read_text().splitlines()):
        assert (kept["status"] == "unscaled") == (kept["op"] != "torch.nn.BatchNorm2d") and (
            kept["reason"] or kept["status"] == "ok" or kept["status"] == "doubtful")  # fmt: skip
    assert json.loads(rows.to_json(tmp_path / "r.json").read_text())["rows"][-1]["status"] == "unscaled"
    assert load_benchmark(tmp_path / "r.json").rows == rows.rows
    drawn = {(s.dimension, s.name.partition(" ")[0], s.sizes) for s in series_of(rows)}
    assert ("batch", "BatchNorm2d", (1, 32)) in drawn and ("height", "BatchNorm2d", (5, 6)) in drawn
    assert not any("inv" in name or ("view" in name and len(sizes) > 1) for _, name, sizes in drawn)
    assert not any(dimension == "height" and name.startswith("randn") for dimension, name, _ in drawn)


def test_what_would_be_measured_is_compared_with_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    relu = Case("torch.relu", describe((rand(32, 4),)))
    monkeypatch.setattr(
        work, "make_call", lambda *_, **__: make_call(Case("torch.relu", describe((rand(8, 4),))))
    )
    found = work.bench_one(
        case_to_json(relu), dtype="fp32", backend="eager", backward=False, threads=1, budget_s=0, target_ci=1
    )
    assert found["status"] == "unscaled" and "asked for f32[32,4], would measure f32[8,4]" in found["reason"]


def cases_of_opinfo(step: int) -> tuple[Case, ...]:
    from torch.testing._internal.common_methods_invocations import op_db

    found = []
    for info in op_db[::step]:
        names = [n for n in (f"torch.{info.name}", f"Tensor.{info.name}") if is_operator(n)]
        if not names or torch.float32 not in info.dtypes:
            continue
        for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), 3):
            found.append(case(names[0], sample.input, *sample.args, **sample.kwargs))
    return tuple(found)


def claims_hold(cases: list[Case]) -> tuple[int, int, list[str]]:
    """(claims checked, claims that also ran, those that do not hold)."""
    checked = ran = 0
    wrong = []
    for recorded in cases:
        try:
            make_call(recorded).run()
        except Exception:
            continue
        for size in (1, 12):
            found = scaled(recorded, {"batch": size})
            if found.lacking or found.failed:
                continue
            checked += 1
            said = str(size) in re.findall(r"\d+", str(found.case.signature)) or "arange" in recorded.op
            try:
                call = make_call(found.case)
                if dimensions(found.case)["batch"] != size or not said or mismatch_of(found.case, call):
                    wrong.append(f"{recorded} at {size}: {found.case.signature}")
                call.run()
                ran += 1
            except Exception:
                continue
    return checked, ran, wrong


@pytest.mark.filterwarnings("ignore")
def test_claims_hold_for_a_sample_of_torchs_own_operators() -> None:
    checked, ran, wrong = claims_hold(list(cases_of_opinfo(25)))
    assert not wrong and checked > 50 and ran > 0.9 * checked


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_claims_hold_for_all_of_torchs_own_operators() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checked, ran, wrong = claims_hold(list(cases_of_opinfo(1)))
    assert not wrong and checked > 2000 and ran > 0.94 * checked
