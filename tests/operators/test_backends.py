"""The backends that compile and export: slow to prepare, so few cases each."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import luxmeter as lux
from compiler import compiler_works
from luxmeter.operators.backends import BACKENDS, Unsupported
from luxmeter.operators.case import Case
from luxmeter.operators.inputs import make_call
from luxmeter.signature import describe, module_of

X = torch.rand(4, 6)


def test_names() -> None:
    assert {"eager", "compile", "onnxruntime"} <= set(BACKENDS.names())


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case("torch.cat", describe(([X, X], 1))),
        Case("torch.nn.Linear", describe((torch.nn.Linear(6, 3), X), module=module_of)),
        Case("torch.clamp", describe((X,), {"min": 0.5})),
    ],
    ids=lambda c: c.op,
)
def test_onnxruntime_gives_what_eager_gives(case: Case) -> None:
    pytest.importorskip("onnxruntime")
    call = make_call(case)
    prepared = BACKENDS.get("onnxruntime")().prepare(call, backward=False, threads=1)
    [out] = prepared.run()
    with torch.no_grad():
        torch.testing.assert_close(out, call.run())
    assert prepared.prepare_s > 0


@pytest.mark.slow
def test_what_onnxruntime_cannot_do_is_unsupported() -> None:
    pytest.importorskip("onnxruntime")
    backend = BACKENDS.get("onnxruntime")()
    with pytest.raises(Unsupported, match="onnxruntime: "):
        backend.prepare(
            make_call(Case("torch.mm", describe((X.bfloat16(), X.T.bfloat16())))), backward=False, threads=1
        )
    with pytest.raises(Unsupported, match=r"torch\.onnx\.export"):
        backend.prepare(
            make_call(Case("torch.linalg.eig", describe((torch.eye(3),)))), backward=False, threads=1
        )
    with pytest.raises(Unsupported, match="forward only"):
        backend.prepare(make_call(Case("torch.neg", describe((X,)))), backward=True, threads=1)


@pytest.mark.slow
@pytest.mark.skipif(not compiler_works("g++"), reason="inductor needs a C++ compiler, and none works here")
def test_compile_is_real_inductor_beside_eager() -> None:
    """Forward of one case and forward+backward of another: compiled code runs, its preparing is told and not timed."""
    gelu = Case("torch.nn.functional.gelu", describe((X,)))
    [eager, fast] = lux.bench(gelu, backends=["eager", "compile"], budget_s=30, timeout_s=300, quiet=True)
    assert fast.status in ("ok", "doubtful"), fast.reason
    assert fast.prepare_s > 0.05 and fast.max_rel_error < 1e-5 and eager.prepare_s == 0
    assert fast.median_us < fast.prepare_s * 1e6 / 10 and fast.speedup == eager.median_us / fast.median_us
    assert fast.memory_bytes is not None and fast.flops == eager.flops


COMPILES = """
import torch, torch._dynamo
from luxmeter.operators.backends import BACKENDS, Unsupported
from luxmeter.operators.inputs import Call

def breaks(x):
    raise torch._dynamo.exc.Unsupported("a graph break")

backend, x = BACKENDS.get("compile")(), torch.rand(4, 6)
try:
    backend.prepare(Call(torch._dynamo.disable(breaks), (x,), {}), backward=False, threads=1)
except Unsupported as reason:
    print(reason)
try:
    backend.prepare(Call(torch._dynamo.disable(torch.add), (x, torch.rand(5)), {}), backward=False, threads=1)
except RuntimeError as error:
    print(type(error).__name__, error)
"""


def test_what_cannot_be_compiled_is_unsupported() -> None:
    """Dynamo's own refusal is the backend's word on this operator; an error of the operator itself stays one.

    In a process of its own: dynamo changes torch where it runs.
    """
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, check=True)
    refused, failed = done.stdout.strip().splitlines()
    assert refused.startswith("torch.compile: ") and "a graph break" in refused
    assert failed.startswith("RuntimeError") and "size" in failed
