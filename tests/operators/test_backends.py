"""The backends that compile and export: slow to prepare, so few cases each."""

from __future__ import annotations

import pytest
import torch

from luxmeter.operators.backends import BACKENDS, Unsupported
from luxmeter.operators.case import Case
from luxmeter.operators.inputs import make_call
from luxmeter.signature import describe
from luxmeter.signature_torch import module_of

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
