"""Made-up inputs: what the operator needs holds, strides and sharing are kept, seeds repeat, and real calls replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from luxmeter.errors import UsageError
from luxmeter.operators.case import Case, case_from_json, case_to_json, load_operators
from luxmeter.operators.dtypes import float_dtype, for_cpu, in_dtype
from luxmeter.operators.inputs import make_call, outputs_of, replay
from luxmeter.operators.resolve import callable_of, is_operator
from luxmeter.operators.work import bench_one
from luxmeter.signature import Facts, ListOf, Opaque, Signature, TensorSpec, describe, facts_of, module_of


def case_of(op: str, *args: object, **kwargs: object) -> Case:
    """A case as a trace would have it, through its saved form."""
    signature = describe(args, kwargs, facts=facts_of, module=module_of)
    return case_from_json(json.loads(json.dumps(case_to_json(Case(op, signature)))))


def bare(op: str, *args: object, **kwargs: object) -> Case:
    """A case as a foreign log would have it: nothing is known of the values."""
    return Case(op, describe(args, kwargs))


X = torch.rand(6, 5)
IDS = torch.tensor([[0, 4, 2]])
IMAGE = torch.rand(2, 3, 8, 8)

CALLS = {
    "embedding": (F.embedding, "torch.nn.functional.embedding", (torch.randint(0, 9, (40, 7)), torch.rand(9, 4))),
    "gather": (torch.gather, "torch.gather", (X, 1, torch.randint(0, 5, (6, 9)))),
    "scatter_add": (torch.scatter_add, "torch.scatter_add", (X, 0, torch.randint(0, 6, (6, 5)), X)),
    "index_select": (torch.index_select, "torch.index_select", (X, 1, torch.randint(0, 5, (50,)))),
    "getitem": (torch.Tensor.__getitem__, "Tensor.__getitem__", (X, (slice(None), torch.randint(0, 5, (40,))))),
    "mask": (torch.Tensor.__getitem__, "Tensor.__getitem__", (X, X > 0.7)),
    "index_put": (torch.index_put, "torch.index_put", (X, (torch.randint(0, 6, (50,)),), torch.rand(50, 5))),
    "take": (torch.take, "torch.take", (X, torch.randint(0, 30, (60,)))),
    "nll_loss": (F.nll_loss, "torch.nn.functional.nll_loss", (torch.rand(40, 3), torch.randint(0, 3, (40,)))),
    "cross_entropy": (F.cross_entropy, "torch.nn.functional.cross_entropy", (torch.rand(40, 3, 2), torch.randint(0, 3, (40, 2)))),
    "soft targets": (F.cross_entropy, "torch.nn.functional.cross_entropy", (torch.rand(4, 3), torch.rand(4, 3).softmax(1))),
    "bce": (F.binary_cross_entropy, "torch.nn.functional.binary_cross_entropy", (X, torch.rand(6, 5))),
    "bernoulli": (torch.bernoulli, "torch.bernoulli", (X,)),
    "multinomial": (torch.multinomial, "torch.multinomial", (X, 3)),
    "cholesky": (torch.linalg.cholesky, "torch.linalg.cholesky", (torch.eye(4) * 2,)),
    "inv": (torch.linalg.inv, "torch.linalg.inv", (torch.eye(4) * 2,)),
    "floor_divide": (torch.floor_divide, "torch.floor_divide", (torch.arange(60), torch.arange(1, 61))),
    "one_hot": (F.one_hot, "torch.nn.functional.one_hot", (torch.randint(0, 7, (40,)), 7)),
    "bincount": (torch.bincount, "torch.bincount", (torch.randint(0, 7, (40,)),)),
    "pow": (torch.pow, "torch.pow", (torch.arange(40), torch.arange(40) % 3)),
    "conv2d": (F.conv2d, "torch.nn.functional.conv2d", (IMAGE, torch.rand(4, 3, 3, 3))),
    "max_unpool2d": (F.max_unpool2d, "torch.nn.functional.max_unpool2d", (*F.max_pool2d(IMAGE, 2, return_indices=True), 2)),
    "cat": (torch.cat, "torch.cat", ([X, X, X], 1)),
    "repeat_interleave": (torch.repeat_interleave, "torch.repeat_interleave", (X, torch.tensor([1, 2, 3, 1, 1, 2]), 0)),
    "masked_scatter": (torch.masked_scatter, "torch.masked_scatter", (X, X > 0.8, torch.rand(30))),
    "embedding_bag": (
        F.embedding_bag, "torch.nn.functional.embedding_bag",
        (torch.randint(0, 9, (40,)), torch.rand(9, 4), torch.arange(0, 40, 1)),
    ),
    "ctc_loss": (
        F.ctc_loss, "torch.nn.functional.ctc_loss",
        (torch.rand(50, 40, 20).log_softmax(2), torch.randint(1, 20, (40, 30)), torch.full((40,), 50), torch.full((40,), 30)),
    ),
    "attention mask": (
        F.scaled_dot_product_attention, "torch.nn.functional.scaled_dot_product_attention",
        (torch.rand(1, 2, 4, 8), torch.rand(1, 2, 4, 8), torch.rand(1, 2, 4, 8), torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) > 0, float("-inf"))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_replay_with_and_without_facts(name: str) -> None:
    function, op, args = CALLS[name]
    real = outputs_of(function(*args))
    for seed in range(3):
        assert outputs_of(replay(case_of(op, *args), seed=seed)) == real
        made = outputs_of(replay(bare(op, *args), seed=seed))
        if name not in ("mask", "bincount", "repeat_interleave"):  # their output's size is in the values
            assert made == real


def test_aten_operators_with_needs() -> None:
    for op, args, outputs in [
        ("aten.index.Tensor", (X, [None, torch.randint(0, 5, (9,))]), ["f32[6,9]"]),
        ("aten.index_put.default", (X, [X > 0.5], torch.rand(13)), ["f32[6,5]"]),
        ("aten.embedding_dense_backward.default", (torch.rand(40, 4), torch.randint(0, 9, (40,)), 9, -1, False), ["f32[9,4]"]),
        ("aten.nll_loss_backward.default", (torch.tensor(1.0), torch.rand(9, 3), torch.randint(0, 3, (9,)), None, 1, -100, torch.tensor(9.0)), ["f32[9,3]"]),
        ("aten.as_strided.default", (torch.rand(3), [4, 4], [4, 1], 2), ["f32[4,4]"]),
        ("aten.sum.SymInt", (X, [0], True), ["f32[1,5]"]),
        ("aten.upsample_nearest2d_backward.vec", (torch.rand(1, 2, 8, 8), None, [1, 2, 4, 4], [2.0, 2.0]), ["f32[1,2,4,4]"]),
        ("aten.new_zeros.default", (X, [3]), ["f32[3]"]),
    ]:  # fmt: skip
        assert outputs_of(replay(bare(op, *args))) == outputs, op


def test_modules_are_built_from_their_settings() -> None:
    for module, args in [
        (torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, groups=1, bias=False), (IMAGE,)),
        (torch.nn.Linear(5, 7), (X,)),
        (torch.nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True), (torch.rand(2, 3, 5),)),
        (torch.nn.MultiheadAttention(8, 2, batch_first=True), (torch.rand(2, 3, 8),) * 3),
        (torch.nn.BatchNorm2d(3).eval(), (IMAGE,)),
        (torch.nn.LayerNorm(5, bias=False), (X,)),
        (torch.nn.Embedding(9, 4, padding_idx=1), (torch.randint(0, 9, (40,)),)),
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), (torch.rand(40, 3), torch.randint(0, 3, (40,)))),
        (torch.nn.Dropout(0.3), (X,)),
        (torch.nn.Upsample(scale_factor=2), (IMAGE,)),
    ]:
        for make in (case_of, bare):
            if make is bare and not isinstance(module, torch.nn.Embedding | torch.nn.CrossEntropyLoss):
                continue
            case = case_of(f"torch.nn.{type(module).__name__}", module, *args)
            if make is bare:
                case = Case(case.op, Signature((case.signature.args[0], *describe(args).args)))
            call = make_call(case)
            assert repr(call.args[0]) == repr(module)
            assert call.args[0].training == module.training
            assert outputs_of(call.run()) == outputs_of(module(*args))


def test_strides_and_sharing_are_kept() -> None:
    whole = torch.rand(8, 6)
    args = (whole[1:4, ::2], whole.t()[:3, 2:5], torch.rand(1, 3).expand(3, 3))
    a, b, c = make_call(case_of("torch.addmm", *args)).args
    assert a.stride() == (6, 2) and b.stride() == (1, 6) and c.stride() == (0, 1)
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != c.untyped_storage().data_ptr()
    assert describe((a, b, c)) == describe(args)
    x, y = make_call(case_of("torch.mul", X, X)).args
    assert x.data_ptr() == y.data_ptr()


def test_overlapping_windows() -> None:
    windows = torch.arange(10.0).unfold(0, 4, 1)
    [made] = make_call(case_of("torch.sum", windows)).args
    assert made.stride() == windows.stride() == (1, 1) and made.shape == (7, 4)


def test_seeds_repeat_and_differ() -> None:
    case = case_of("torch.add", X, torch.rand(6, 5))
    one, again, other = (make_call(case, seed=s).args[0] for s in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_facts_are_kept_to() -> None:
    ints, mask, probabilities = (
        torch.arange(40) + 7,
        torch.arange(1000) % 10 == 0,
        torch.rand(4, 5).softmax(-1),
    )
    a, b, c = make_call(case_of("torch.add", ints, mask, probabilities)).args
    assert a.min() >= 7 and a.max() <= 46 and bool((a.diff() >= 0).all())
    assert int(b.sum()) == 100
    assert torch.allclose(c.sum(-1), torch.ones(4))
    [exact] = make_call(case_of("torch.neg", torch.tensor([3, 1, 2]))).args
    assert exact.tolist() == [3, 1, 2]


def test_parameters_and_gradients() -> None:
    weight = torch.nn.Parameter(torch.rand(3, 5))
    x, w = make_call(case_of("torch.nn.functional.linear", X, weight)).args
    assert isinstance(w, torch.nn.Parameter) and w.requires_grad and not x.requires_grad


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "float64"])
def test_in_another_dtype(dtype: str) -> None:
    case = in_dtype(case_of("torch.nn.functional.embedding", IDS, torch.rand(9, 4)), dtype)
    ids, table = make_call(case).args
    assert ids.dtype is torch.int64 and table.dtype is getattr(torch, float_dtype(dtype))
    cast = in_dtype(case_of("Tensor.to", X, torch.float16), dtype)
    assert make_call(cast).args[1] is getattr(torch, float_dtype(dtype))
    module = in_dtype(case_of("torch.nn.Linear", torch.nn.Linear(5, 2), X), dtype)
    assert replay(module).dtype is getattr(torch, float_dtype(dtype))


def test_a_result_in_float32_is_asked_of_float16_only() -> None:
    case = in_dtype(bare("aten._softmax.default", X.half(), -1, True), "fp32")
    assert outputs_of(replay(case)) == ["f32[6,5]"]


def test_dtype_spellings() -> None:
    case = case_of("torch.neg", X)
    assert in_dtype(case, "recorded") is case
    assert float_dtype("half") == float_dtype("fp16") == float_dtype("torch.float16") == "float16"
    with pytest.raises(UsageError, match="Did you mean 'fp32'"):
        float_dtype("fp23")


@pytest.mark.parametrize(
    "op",
    ["torch.load", "torch.save", "os.system", "torch.os", "torch.hub.load", "builtins.eval", "torch.nn.Conv9d", "aten.from_file.default", "aten::save", "profiler::_record_function_enter", "torch.compile",
     "Tensor.__reduce_ex__", "Tensor.register_hook", "torch.set_num_threads", "torch.Tensor", "aten.nothing.here", "torch.cond", "x"],
)  # fmt: skip
def test_what_is_no_operator_cannot_be_called(op: str) -> None:
    with pytest.raises(UsageError, match="operator-gone"):
        callable_of(op)
    assert not is_operator(op)


def test_near_misses_are_suggested() -> None:
    with pytest.raises(UsageError, match="Did you mean 'relu'"):
        callable_of("torch.nn.functional.rellu")
    with pytest.raises(UsageError, match=r"Its overloads are: .*Tensor"):
        callable_of("aten.add.Nothing")


def test_what_cannot_be_made_says_so() -> None:
    for value in (Opaque("my.Thing"), TensorSpec((-1, 2), "float32"), TensorSpec((2,), "float3")):
        with pytest.raises(UsageError, match="not-replayable"):
            replay(Case("torch.neg", Signature((value,))))
    users = Case("torch.neg", describe((torch.nn.Sequential(),), module=module_of))
    assert isinstance(make_call(users).args[0], torch.nn.Sequential)
    own = describe((_Own(),), module=module_of)
    with pytest.raises(UsageError, match="module-not-replayable"):
        replay(Case("torch.neg", own))


class _Own(torch.nn.Module):
    pass


def test_a_list_with_an_opaque_inside() -> None:
    with pytest.raises(UsageError, match="not-replayable"):
        replay(Case("torch.cat", Signature((ListOf((Opaque("x"),)),))))


def test_facts_of_odd_tensors() -> None:
    assert facts_of(torch.empty(0)) is None
    assert facts_of(torch.rand(3, dtype=torch.complex64)) is None
    assert facts_of(torch.eye(3).to_sparse()) is None
    assert facts_of(torch.empty(3, device="meta")) is None
    assert facts_of(torch.zeros(2, dtype=torch.float8_e4m3fn)) is None
    big = facts_of(torch.ones(300, 300, 3, dtype=torch.int64))
    assert big == Facts(low=1, high=1)


# As GPUs log them: float16 inputs and weights, float32 statistics.
NORMS = """
Operator: aten.native_layer_norm_backward.default
cnt: 2, ((T([4, 8], f16), T([4, 8], f16), [8], T([4, 1], f32), T([4, 1], f32), T([8], f16), T([8], f16), [True, True, True]), {})
Operator: aten.native_batch_norm_backward.default
cnt: 1, ((T([4, 8, 3, 3], f16), T([4, 8, 3, 3], f16), T([8], f16), T([8], f16), T([8], f16), T([8], f32), T([8], f32), True, 1e-05, [True, True, True]), {})
cnt: 1, ((T([4, 8, 3, 3], bf16), T([4, 8, 3, 3], bf16), T([8], bf16), T([8], f32), T([8], f32), T([8], f32), T([8], f32), False, 1e-05, [True, True, True]), {})
Operator: aten.native_batch_norm.default
cnt: 1, ((T([4, 8, 3], f16), T([8], f16), T([8], f16), T([8], f32), T([8], f32), True, 0.1, 1e-05), {})
Operator: aten.native_group_norm_backward.default
cnt: 1, ((T([4, 8, 3], f16), T([4, 8, 3], f16), T([4, 2], f32), T([4, 2], f32), T([8], f16), 4, 8, 3, 2, [True, True, True]), {})
"""


def test_float_statistics_beside_half_inputs_are_replayed(tmp_path: Path) -> None:
    (tmp_path / "gpu.txt").write_text(NORMS)
    for case in load_operators(tmp_path / "gpu.txt"):
        call = make_call(case)
        floats = [a.dtype for a in call.args if isinstance(a, torch.Tensor)]
        assert floats[0] in (torch.float16, torch.bfloat16)  # the inputs as they were logged
        assert set(floats[-2:]) == {torch.float32} or "group" in case.op  # statistics, and weights with them
        assert outputs_of(call.run())[0] == str(case.signature.args[0])
        found = bench_one(case_to_json(case), dtype="recorded", backend="eager", backward=False, threads=1, budget_s=0.0,
                          target_ci=1.0)  # fmt: skip
        assert found["status"] in ("ok", "doubtful") and "measured as" in found["reason"], found
    plain = bare(
        "aten.native_layer_norm_backward.default", X, X, [5], X[:, :1], X[:, :1], X[0], X[0], [True] * 3
    )
    assert for_cpu(plain) is plain  # nothing mixed, nothing changed
