"""How a benchmark's time is shared out, where its cases run, and what it says about the machine."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import luxmeter as lux
from luxmeter.isolate import Outcome, Pool
from luxmeter.operators import backends
from luxmeter.operators.case import Case, Operators
from luxmeter.operators.engine import Engine
from luxmeter.operators.jobs import Job
from luxmeter.operators.options import BenchOptions
from luxmeter.operators.results import BenchResult, Row, load_benchmark
from luxmeter.signature import describe

ADD = Case("torch.add", describe((torch.rand(8, 16), torch.rand(8, 16))))
SETTINGS: Any = {"budget_s": 0.5, "quiet": True}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(preload=["luxmeter.operators.work"]) as shared:
        yield shared


class Made:
    """Workers on a clock of their own: measuring takes what it is given, preparing what the backend takes."""

    def __init__(self, prepare_s: dict[str, float]) -> None:
        self.now, self.given, self._prepare_s = 0.0, [], prepare_s

    def of(self, backend: str) -> Made:
        return self

    def versions(self) -> dict[str, Any]:
        return {}

    def renew(self) -> None:
        self.now += 1.0

    def start(self) -> None:
        pass

    def run(self, work: str, args: dict[str, Any], *, timeout_s: float) -> Outcome:
        taken = args["budget_s"] + self._prepare_s[args["backend"]]
        self.now += taken
        self.given.append(args["budget_s"])
        times = [1e-3, 1.01e-3, 1.02e-3]
        value = {"status": "ok", "times_s": times, "ci_low_s": 1e-3, "ci_high_s": 1.02e-3,
                 "measured_s": args["budget_s"]}  # fmt: skip
        return Outcome("ok", value=value, taken_s=taken)


def jobs(*names: str) -> list[Job]:
    base = {"op": "x", "signature": "", "scale": "", "dtype": "fp32"}
    return [
        Job({**base, "backend": backend, "key": str(i)}, {"backend": backend})
        for i, backend in enumerate(names)
    ]


@pytest.mark.parametrize("backends_of_jobs", [["eager"] * 20, ["eager", "compile", "onnxruntime"] * 6])
def test_the_budget_is_for_the_whole_call(backends_of_jobs: list[str]) -> None:
    """Preparing, measuring and the second look for the noise floor together stay within it."""
    made = Made({"eager": 0.03, "compile": 1.5, "onnxruntime": 2.6})
    options = BenchOptions(budget_s=40, quiet=True)
    result = Engine("w", options, made, clock=lambda: made.now).run(jobs(*backends_of_jobs))
    assert len(result) == len(backends_of_jobs) and result.complete
    assert 0.85 * 40 <= made.now <= 40.0
    # Shared out, not first come first served; the first cannot know how long preparing takes.
    assert max(made.given) < 4 * min(made.given)
    assert result.noise_floor == 0.0


def test_a_spent_budget_leaves_each_case_its_moment() -> None:
    made = Made({"eager": 5.0})
    Engine("w", BenchOptions(budget_s=1, quiet=True), made, clock=lambda: made.now).run(jobs(*["eager"] * 10))
    assert set(made.given[1:]) == {0.02}  # the first could not know how long preparing takes
    made = Made({"eager": 5.0})
    Engine("w", BenchOptions(budget_s=0, quiet=True), made, clock=lambda: made.now).run(jobs(*["eager"] * 10))
    assert set(made.given) == {0.0}


def test_kept_rows_of_other_calls_stay_in_the_file(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    other = Row("y", "", "", "fp32", "eager", key="of another call", n=1, median_us=1.0)
    BenchResult((other,)).to_json(kept)
    made = Made({"eager": 0.01})
    options = BenchOptions(budget_s=1, quiet=True, resume=kept)
    result = Engine("w", options, made, clock=lambda: made.now).run(jobs("eager", "eager"))
    assert [r.key for r in result] == ["0", "1"]
    assert [r.key for r in load_benchmark(kept)] == ["0", "1", "of another call"]


def test_what_breaks_midway_is_kept(tmp_path: Path) -> None:
    """An interpreter that is gone, a full disk, a second Ctrl-C: rows that were done are in the file."""
    kept = tmp_path / "kept.json"

    class Breaking(Made):
        def run(self, work: str, args: dict[str, Any], *, timeout_s: float) -> Outcome:
            if len(self.given) == 2:
                raise self.error
            return super().run(work, args, timeout_s=timeout_s)

    made = Breaking({"eager": 0.01})
    options = BenchOptions(budget_s=1, quiet=True, resume=kept)
    made.error = OSError("gone")  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="gone"):
        Engine("w", options, made, clock=lambda: made.now).run(jobs(*["eager"] * 4))
    assert len(load_benchmark(kept)) == 2
    kept.unlink()
    made = Breaking({"eager": 0.01})
    made.error = KeyboardInterrupt()  # type: ignore[attr-defined]
    result = Engine("w", options, made, clock=lambda: made.now).run(jobs(*["eager"] * 4))
    assert len(result) == 2 and not result.complete and len(load_benchmark(kept)) == 2


def test_a_backend_names_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cases run there, on the same made-up inputs; the record says with which packages."""
    other = tmp_path / "other-python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[luxmeter.backends]\nelsewhere = elsewhere:Elsewhere\n")
    (tmp_path / "elsewhere.py").write_text(
        textwrap.dedent(f"""
        import os
        from luxmeter.operators.backends import Prepared
        class Elsewhere:
            python = staticmethod(lambda: {str(other)!r})
            def prepare(self, call, *, backward, threads):
                open({str(tmp_path / "used")!r}, "a").write(os.environ.get("PYTHONPATH", "") + "\\n")
                return Prepared(call.run)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(backends.BACKENDS, "_offered", None)
    things = dict(backends.BACKENDS._things)
    try:
        assert backends.interpreter_of("elsewhere") == str(other)
        assert backends.interpreter_of("eager") is None
        result = lux.bench(ADD, backends=["eager", "elsewhere"], **SETTINGS)
    finally:
        backends.BACKENDS._things.clear()
        backends.BACKENDS._things.update(things)
        monkeypatch.setattr(backends.BACKENDS, "_offered", None)
    assert [r.status in ("ok", "doubtful") for r in result] == [True, True], result
    assert result.rows[1].max_abs_error == 0 and result.rows[1].speedup is not None
    assert str(tmp_path) in (tmp_path / "used").read_text().splitlines()
    assert result.environment["interpreters"][str(other)]["packages"]["torch"] == torch.__version__.split(
        "+"
    )[0] or (result.environment["interpreters"][str(other)]["packages"]["torch"] == torch.__version__)


def test_the_caller_names_an_interpreter_for_a_backend() -> None:
    options = BenchOptions(python={"mindspore": "/env/bin/python"})
    assert options.python_for("mindspore") == "/env/bin/python"
    assert options.python_for("eager") == sys.executable
    assert BenchOptions(python="/x/python").python_for("eager") == "/x/python"


def test_devices_and_threads_are_swept(pool: Pool) -> None:
    result = lux.bench(ADD, device=["cpu", "meta", "cuda"], threads=[1, 2], pool=pool, **SETTINGS)
    assert [(r.device, r.threads) for r in result] == [
        (d, n) for d in ("cpu", "meta", "cuda") for n in (1, 2)
    ]
    cpu, meta, cuda = result.rows[0], result.rows[2], result.rows[4]
    assert cpu.max_abs_error == 0 and cpu.memory_bytes
    assert meta.status in ("ok", "doubtful") and meta.max_abs_error is None and meta.speedup == 1.0
    if not torch.cuda.is_available():
        assert cuda.status == "unsupported" and "no device 'cuda' here" in cuda.reason


def test_kernels_of_backward_and_kernels_that_cannot_be_found(pool: Pool) -> None:
    w = torch.nn.Parameter(torch.rand(4, 16))
    linear = Case("torch.nn.functional.linear", describe((torch.rand(8, 16), w)))
    found = lux.bench(linear, backward=True, kernels=True, pool=pool, **SETTINGS)
    whole, *kernels = found
    assert whole.mode == "forward+backward" and {k.mode for k in kernels} == {"forward"}
    assert {"aten.addmm.default", "aten.mm.default"} & {k.kernel for k in kernels}
    bad = Case("torch.mm", describe((torch.rand(2, 3), torch.rand(2, 3))))
    rows = lux.bench(bad, kernels=True, pool=pool, **SETTINGS).rows
    assert [(r.status, r.kernel) for r in rows] == [("error", ""), ("error", "(its kernels)")]


def test_what_backward_needs_is_found_by_replaying(pool: Pool) -> None:
    from luxmeter.operators.extract import backward_cases

    conv = Case(
        "torch.conv2d", describe((torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3).requires_grad_())), count=5
    )
    found = backward_cases(Operators([conv, ADD]), pool=pool)
    [case] = [c for c in found if c.op == "aten.convolution_backward.default"]
    assert case.count == 5 and case.source == "backward of torch.conv2d"
    assert [str(t) for t in case.signature.tensors()] == ["f32[2,4,6,6]", "f32[2,3,8,8]", "f32[4,3,3,3]"]
    assert len(backward_cases(Operators([ADD]))) == 0


def test_a_noisy_and_busy_machine_is_pointed_out() -> None:
    busy = {"load": {"load_1min": 3.0, "governor": "powersave"}, "machine": {"threads": 2}}
    row = Row("x", "", "", "fp32", "eager", status="doubtful")
    notes = BenchResult((row,), busy, 0.2, complete=False).notes()
    for part in ("±20.0%", "noisy", "load 3.0 on 2 threads", "powersave", "1 of 1 medians", "stopped early"):
        assert any(part in note for note in notes), part
    assert BenchResult((Row("x", "", "", "fp32", "eager"),), {"load": {"load_1min": 0.1}}, 0.01).notes() == [
        "noise floor (the same thing measured again): ±1.0%"
    ]


def test_parquet_and_json_hold_the_same(tmp_path: Path) -> None:
    rows = (
        Row("x", "f32[1]", "", "fp32", "eager", n=2, median_us=1.5, flops=3, times_s=(1e-6, 2e-6), key="k"),
        Row("x", "f32[1]", "", "fp32", "compile", status="unsupported", reason="why", key="l"),
    )
    result = BenchResult(rows, {"machine": {"cores": 2}}, 0.01)
    assert load_benchmark(result.to_parquet(tmp_path / "r.parquet")) == result
    assert load_benchmark(result.to_json(tmp_path / "r.json")) == result
    assert json.loads((tmp_path / "r.json").read_text())["rows"][1]["median_us"] is None
