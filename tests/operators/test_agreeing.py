"""A backend that gives another result than eager is called so: by value, by shape, by drawing or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn, rand

from luxmeter.operators import work
from luxmeter.operators.agreeing import ROOM, judge, restorer
from luxmeter.operators.backends import BACKENDS, Prepared
from luxmeter.operators.case import Case, case_to_json
from luxmeter.operators.diff import diff_benchmarks
from luxmeter.operators.inputs import Call, make_call
from luxmeter.operators.results import BenchResult, Row, row_of, with_speedup
from luxmeter.operators.series import series_of
from luxmeter.signature import describe, facts_of, module_of


def case(op: str, *args: Any, **kwargs: Any) -> Case:
    return Case(op, describe(args, kwargs, facts=facts_of, module=module_of))


def measured(recorded: Case, backend: str, **settings: Any) -> dict[str, Any]:
    asked = {"dtype": "fp32", "backward": False, "threads": 1, "budget_s": 0.0, "target_ci": 1.0, **settings}
    return work.bench_one(case_to_json(recorded), backend=backend, **asked)


class Fake:
    """A backend that runs what it is told to instead."""

    def __init__(self, change: Callable[[Call], Any]) -> None:
        self._change = change

    def prepare(self, call: Call, *, backward: bool, threads: int) -> Prepared:
        """What was asked for, changed."""
        return Prepared(lambda: self._change(call))


@pytest.fixture
def backend() -> Any:
    def use(change: Callable[[Call], Any]) -> str:
        work._backends["fake"] = Fake(change)
        return "fake"

    yield use
    work._backends.pop("fake", None)


NORM = case("torch.nn.BatchNorm2d", nn.BatchNorm2d(4), rand(8, 4, 5, 5))
DROPOUT = case("torch.nn.Dropout", nn.Dropout(0.5), rand(64, 64))
LSTM = case("torch.nn.LSTM", nn.LSTM(4, 5, 2, dropout=0.5), rand(3, 2, 4))
SORT = case("torch.sort", rand(50))


def in_eval(call: Call) -> Any:
    was = call.args[0].training
    try:
        return call.function(call.args[0].eval(), *call.args[1:])
    finally:
        call.args[0].train(was)


@pytest.mark.parametrize(
    ("recorded", "change", "why"),
    [
        (NORM, in_eval, "relative error"),
        (DROPOUT, in_eval, "draws no numbers"),
        (DROPOUT, lambda c: nn.functional.dropout(c.args[1], 0.2), "zeros, eager"),
        (LSTM, in_eval, "draws no numbers"),
        (case("torch.relu", rand(4, 4)), lambda c: c.run() * 1.001, "relative error of 0.001"),
        (case("torch.relu", rand(4, 4)), lambda c: c.run().T[:2], r"\[2, 4\], eager gives \[4, 4\]"),
        (case("torch.relu", rand(4, 4)), lambda c: c.run() / 0, "not finite"),
        (case("torch.relu", rand(4, 4)), lambda c: (c.run(), c.run()), "gives 2 tensors, eager gives 1"),
        (case("torch.argmax", rand(9, 9), 1), lambda c: c.run() + 1, "values differ"),
        (case("torch.fft.fft", rand(8)), lambda c: c.run() * 2, "relative error"),
        (case("torch.randn", 8, 8), lambda c: torch.zeros(8, 8), "draws no numbers"),
        (case("torch.randn", 8, 8), lambda c: torch.randn(4, 8), "eager gives"),
        (case("torch.empty", 8, 8), lambda c: torch.empty(8), "eager gives"),
    ],
)
def test_another_result_is_called_so_and_has_no_time(
    recorded: Case, change: Any, why: str, backend: Any
) -> None:
    found = measured(recorded, backend(change))
    assert found["status"] == "differs" and "times_s" not in found
    assert re.search(why, found["reason"]), found["reason"]


@pytest.mark.parametrize(
    ("recorded", "change"),
    [
        (NORM, lambda c: c.run() * (1 + 1e-6)),
        (
            case("Tensor.add_", rand(4, 4), rand(4, 4)),
            lambda c: c.args[0] + c.args[1],
        ),  # not changed by eager before
        (case("torch.nn.Dropout", nn.Dropout(0.5).eval(), rand(8, 8)), lambda c: c.args[1].clone()),
        (SORT, lambda c: (c.run()[0], c.run()[1] * 0)),  # indices beside values: ties may fall either way
        (case("torch.argmax", rand(9, 9), 1), lambda c: c.run().int()),
    ],
)
def test_the_same_result_is_ok(recorded: Case, change: Any, backend: Any) -> None:
    found = measured(recorded, backend(change))
    assert found["status"] in ("ok", "doubtful") and found["times_s"], found


def test_random_operators_say_what_was_compared(backend: Any) -> None:
    found = measured(DROPOUT, backend(lambda c: c.run()))
    assert found["status"] in ("ok", "doubtful") and "values cannot be" in found["reason"]
    assert found["max_rel_error"] is None
    assert "random" not in measured(DROPOUT, "eager")["reason"]


@pytest.mark.parametrize("recorded", [LSTM, DROPOUT], ids=lambda c: c.op)
def test_what_draws_inside_has_no_error_in_eager_either(recorded: Case) -> None:
    assert measured(recorded, "eager").get("max_rel_error") is None
    assert measured(NORM, "eager", dtype="bf16")["max_rel_error"] > 0


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_room_is_that_of_the_dtype(dtype: str, backend: Any) -> None:
    mm = case("torch.mm", rand(8, 8), rand(8, 8))
    room = ROOM[{"fp16": "float16", "bf16": "bfloat16"}[dtype]]
    assert measured(mm, backend(lambda c: c.run() * (1 + room / 2)), dtype=dtype)["status"] != "differs"
    assert measured(mm, backend(lambda c: c.run() * (1 + room * 4)), dtype=dtype)["status"] == "differs"
    # Nearer to fp32 than eager's own rounding is no difference.
    wide = backend(lambda c: torch.cumsum(c.args[0].float(), 0).to(c.args[0].dtype))
    assert measured(case("torch.cumsum", rand(4000), 0), wide, dtype=dtype)["status"] != "differs"


def test_gradients_are_compared(backend: Any) -> None:
    def wrong(call: Call) -> Any:
        x = call.args[0]
        out = call.run()
        return out, (torch.zeros_like(x),)

    work.TORCH_BACKENDS, kept = (*work.TORCH_BACKENDS, "fake"), work.TORCH_BACKENDS
    try:
        found = measured(case("torch.relu", rand(4, 4, requires_grad=True)), backend(wrong), backward=True)
    finally:
        work.TORCH_BACKENDS = kept
    assert found["status"] == "differs"


def test_inputs_are_put_back() -> None:
    base = rand(6)
    call = Call(torch.Tensor.mul_, (base[::2], 2.0), {})
    restore = restorer(call)
    before = base.clone()
    call.run()
    restore()
    assert torch.equal(base, before)
    norm = make_call(NORM)
    mean = norm.args[0].running_mean.clone()
    judge(norm, Prepared(norm.run), norm.run, restorer(norm), seed=0)
    assert torch.equal(norm.args[0].running_mean, mean)


def test_rows_that_differ_count_nowhere() -> None:
    base = {"op": "torch.relu", "signature": "f32[2]", "scale": "batch=1", "dtype": "fp32"}
    fast = {"status": "ok", "times_s": [1e-6] * 9, "ci_low_s": 1e-6, "ci_high_s": 1e-6}
    differs = row_of({**base, "backend": "x"}, {"status": "differs", "reason": "off", "max_rel_error": 0.3})
    rows = with_speedup([row_of({**base, "backend": "eager"}, fast), differs])
    assert rows[0].speedup == 1.0 and rows[1].speedup is None and rows[1].median_us is None
    result = BenchResult((*rows, replace(differs, scale="batch=2")))
    assert "2 of 3 rows give other results than eager torch" in str(result) and "differs: off" in str(result)
    assert all(len(s.sizes) == 1 for s in series_of(result))
    good = BenchResult((rows[0], replace(rows[0], backend="x")))
    broken = diff_benchmarks(good, BenchResult(tuple(rows)))
    assert [c.backend for c in broken.of("broken")] == ["x"] and broken.geometric_mean == pytest.approx(1.0)
    assert isinstance(differs, Row)


@pytest.mark.slow
def test_onnxruntime_on_training_modules() -> None:
    """Exported as if they were not training: another result, whatever it takes."""
    pytest.importorskip("onnxruntime")
    assert BACKENDS.get("onnxruntime") is not None
    for recorded in (NORM, LSTM):
        assert measured(recorded, "onnxruntime")["status"] == "differs"
    evaluated = case("torch.nn.BatchNorm2d", nn.BatchNorm2d(4).eval(), rand(8, 4, 5, 5))
    assert measured(evaluated, "onnxruntime")["status"] in ("ok", "doubtful")
    dropped = measured(DROPOUT, "onnxruntime")
    assert dropped["status"] in ("ok", "doubtful") and "random" in dropped["reason"]
