"""Formulas: each against numbers worked out by hand or against the same work done as plain products."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import luxmeter as lux
from luxmeter import flops
from luxmeter.errors import UsageError
from luxmeter.flops import Cost, TensorLike, cost_of


def macs(function, *args, device="cpu"):
    return lux.analyze(function, args, device=device, backward=False).macs


def test_formulas_need_no_torch():
    code = (
        "import sys\nfrom luxmeter.flops import cost_of, TensorLike as T\n"
        "print(cost_of('aten::addmm', (T((4,)), T((2, 3)), T((3, 4))), {}, T((2, 4))))\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Cost(macs=24, flops=56)"


@pytest.mark.parametrize(
    ("name", "args", "out", "wanted"),
    [
        ("aten::mm", ((2, 3), (3, 4)), (2, 4), Cost(24, 48)),
        ("aten::bmm", ((5, 2, 3), (5, 3, 4)), (5, 2, 4), Cost(120, 240)),
        ("aten::mv", ((2, 3), (3,)), (2,), Cost(6, 12)),
        ("aten::dot", ((3,), (3,)), (), Cost(3, 6)),
        ("aten::_softmax", ((2, 3), -1, False), (2, 3), Cost(0, 30)),
        ("aten::native_layer_norm", ((2, 3), (3,), (3,), (3,), 1e-5), ((2, 3), (2, 1), (2, 1)), Cost(0, 48)),
        ("aten::relu_", ((2, 3),), (2, 3), Cost(0, 6)),
        ("aten::sum", ((2, 3),), (), Cost(0, 6)),
        ("aten::view", ((2, 3), (6,)), (6,), Cost()),
        ("aten::cat", ([(2, 3), (2, 3)],), (4, 3), Cost()),
    ],
)
def test_by_hand(name, args, out, wanted):
    def described(value):
        if isinstance(value, tuple) and all(isinstance(n, int) for n in value):
            return TensorLike(value, torch.float32)
        return type(value)(described(v) for v in value) if isinstance(value, list | tuple) else value

    assert cost_of(name, tuple(described(a) for a in args), {}, described(out)) == wanted


def test_an_operator_nobody_knows_has_no_cost():
    assert cost_of("nobody::knows", (TensorLike((2,)),), {}, TensorLike((2,))) is None


def test_whole_numbers_are_no_floating_point_work():
    ids = torch.arange(6)
    assert cost_of(torch.ops.aten.add.Tensor, (ids, ids), {}, ids) == Cost()
    assert cost_of(torch.ops.aten.add.Tensor, (ids.float(), ids), {}, ids.float()) == Cost(0, 6)


@settings(max_examples=40, deadline=None)
@given(
    dims=st.integers(1, 3), groups=st.sampled_from([1, 2, 4]), kernel=st.integers(1, 3), stride=st.integers(1, 2),
    dilation=st.integers(1, 2), transposed=st.booleans(), batch=st.integers(1, 2),
)  # fmt: skip
def test_every_convolution_by_definition(dims, groups, kernel, stride, dilation, transposed, batch):
    """Each output (or input, transposed) position meets in/groups x kernel values for each of its channels."""
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    layer = kind(4, 8, kernel, stride=stride, dilation=dilation, groups=groups, bias=False)
    x = torch.randn(batch, 4, *[7] * dims)
    y = layer(x)
    positions = (x if transposed else y)[0, 0].numel()
    wanted = batch * positions * (4 * 8 // groups) * kernel**dims
    cost = lux.analyze(layer, x, backward=True)
    assert cost.macs == wanted
    assert cost.flops == 2 * wanted
    assert cost.backward_macs == wanted  # the weight's gradient; the input needs none
    asked = lux.analyze(layer, x.clone().requires_grad_(), backward=True)
    assert asked.backward_macs == 2 * wanted


def test_attention_is_the_same_in_every_form():
    b, h, t, d = 2, 4, 10, 8
    q, k, v = (torch.randn(b, h, t, d) for _ in range(3))
    wanted = 2 * b * h * t * t * d
    forms = {
        "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "masked": lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.ones(t, t, dtype=torch.bool)
        ),
        "dropout": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
        "at": lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v,
        "einsum": lambda q, k, v: torch.einsum(
            "bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v
        ),
        "bmm": lambda q, k, v: (
            torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).softmax(-1).bmm(v.flatten(0, 1)).view(b, h, t, d)
        ),
    }
    for (name, form), device in itertools.product(forms.items(), ("cpu", "meta")):
        assert macs(form, q, k, v, device=device) == wanted, (name, device)


def test_grouped_query_attention_counts_query_heads():
    q, kv = torch.randn(1, 8, 6, 4), torch.randn(1, 2, 6, 4)
    form = lambda q, kv: F.scaled_dot_product_attention(q, kv, kv, enable_gqa=True)  # noqa: E731
    assert macs(form, q, kv) == macs(form, q, kv, device="meta") == 2 * 8 * 6 * 6 * 4


@pytest.fixture(scope="module")
def flex_attention():
    """Called once before the test begins: its first call has Dynamo change torch for good."""
    from torch.nn.attention.flex_attention import flex_attention

    flex_attention(*[torch.randn(1, 1, 128, 16)] * 3)
    return flex_attention


def test_flex_attention(flex_attention):
    q = torch.randn(1, 2, 128, 16)
    assert macs(lambda q: flex_attention(q, q, q), q) == 2 * 2 * 128 * 128 * 16


def test_fused_attention_backward_counts_the_scores_again():
    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    fused = lux.analyze(lambda q: F.scaled_dot_product_attention(q, q, q), q, backward=True)
    plain = lux.analyze(lambda q: (q @ q.mT).softmax(-1) @ q, q, backward=True)
    one = 2 * 6 * 6 * 4
    assert (fused.backward_macs, plain.backward_macs) == (5 * one, 4 * one)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_fast_path(need_weights):
    """In evaluation on the CPU this is one operator of its own; on meta and in training it is many."""
    width, length, batch = 16, 5, 2
    layer = nn.MultiheadAttention(width, 2, batch_first=True).eval()
    x = torch.randn(batch, length, width)
    wanted = batch * (4 * length * width * width + 2 * length * length * width)
    on_cpu = lux.analyze(layer, (x, x, x), kwargs={"need_weights": need_weights}, device="cpu")
    assert "aten::_native_multi_head_attention" in [o.name for o in on_cpu.operators]
    assert on_cpu.macs == wanted
    assert lux.analyze(layer, (x, x, x), kwargs={"need_weights": need_weights}).macs == wanted


def test_transformer_encoder_fast_path_and_nested_sequences():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    one = lambda n: 4 * n * 16 * 16 + 2 * n * n * 16 + 2 * n * 16 * 32  # noqa: E731
    on_cpu = lux.analyze(layer, x, device="cpu")
    assert "aten::_transformer_encoder_layer_fwd" in [o.name for o in on_cpu.operators]
    assert on_cpu.macs == lux.analyze(layer, x).macs == 2 * one(5)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    packed = lux.analyze(
        nn.TransformerEncoder(layer, 1), x, kwargs={"src_key_padding_mask": padding}, device="cpu"
    )
    assert packed.macs == one(3) + one(5)
    assert not packed.unknown_ops


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers(kind, gates, bidirectional, layers):
    steps, batch, width, hidden = 3, 2, 8, 5
    layer = kind(width, hidden, layers, bidirectional=bidirectional)
    ways = 2 if bidirectional else 1
    wanted = sum(
        ways * steps * batch * gates * hidden * ((width if i == 0 else ways * hidden) + hidden)
        for i in range(layers)
    )
    x = torch.randn(steps, batch, width)
    costs = [lux.analyze(layer, x, device=device) for device in ("cpu", "meta")]
    assert [c.macs for c in costs] == [wanted, wanted]
    assert costs[0].flops == costs[1].flops
    assert not costs[0].unknown_ops and not costs[1].unknown_ops


def test_packed_sequences_count_real_steps():
    layer = nn.LSTM(8, 5)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(6, 2, 8), torch.tensor([6, 2]))
    assert lux.analyze(layer, (packed,), device="cpu").macs == (6 + 2) * 4 * 5 * (8 + 5)


def test_sparse_products_count_what_is_there():
    dense = torch.zeros(6, 6)
    dense[0, 1] = dense[3, 2] = 1.0
    x = torch.randn(6, 4)
    for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
        assert macs(lambda x, s=sparse: torch.sparse.mm(s, x), x) == 2 * 4


@pytest.mark.filterwarnings("ignore")
def test_quantised_layers_by_their_shapes():
    x = torch.randn(2, 16)
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    quantised = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
    cost = lux.analyze(quantised, x)
    assert cost.macs == lux.analyze(plain, x).macs
    assert cost.params == lux.analyze(plain, x).params
    assert not cost.unknown_ops


def test_complex_products_are_four_real_ones():
    z = torch.randn(3, 3, dtype=torch.complex64)
    assert macs(lambda z: z @ z, z) == 4 * 27


def test_elementwise_work_is_in_flops_only():
    x = torch.randn(4, 5)
    cost = lux.analyze(lambda x: torch.relu(x * 2 + 1), x)
    assert (cost.macs, cost.flops) == (0, 60)


@pytest.fixture
def twist():
    operator = torch.library.custom_op(
        "luxtest::twist", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(torch.empty_like)
    yield operator
    flops.forget(operator)


def test_flops_of_gives_a_custom_operator_its_cost(twist):
    x = torch.randn(4, 5)
    before = lux.analyze(lambda x: twist(x) @ x.T, x)
    assert [u.name for u in before.unknown_ops] == ["luxtest::twist"]
    assert before.unknown_ops[0].calls == 1
    assert before.unknown_ops[0].shapes == ((4, 5),)
    assert before.flops == 2 * 4 * 4 * 5

    @lux.flops_of(twist)
    def seven(x, *, out):
        assert x == (4, 5) == x.shape == out.shape
        assert x.dtype is torch.float32
        return 7 * x.numel()

    after = lux.analyze(lambda x: twist(x) @ x.T, x)
    assert after.unknown_ops == ()
    assert after.flops == before.flops + 140
    assert after.macs == before.macs


@pytest.mark.parametrize("way", ["packet", "overload", "name", "dotted"])
def test_flops_of_takes_an_operator_in_every_spelling(twist, way):
    op = {
        "packet": torch.ops.luxtest.twist, "overload": torch.ops.luxtest.twist.default,
        "name": "luxtest::twist", "dotted": "torch.ops.luxtest.twist",
    }[way]  # fmt: skip
    lux.flops_of(op)(lambda x: (3, 10))
    cost = lux.analyze(lambda x: twist(x), torch.randn(2))
    assert (cost.macs, cost.flops) == (3, 10)


def test_a_formula_written_for_torchs_counter_serves(twist):
    lux.flops_of(twist)(lambda x_shape, out_shape=None, **kwargs: x_shape[0] * 2)
    assert lux.analyze(lambda x: twist(x), torch.randn(5, 3)).flops == 10


def test_forgetting_brings_the_own_formula_back():
    lux.flops_of("aten::mm")(lambda *args: 1)
    x = torch.randn(2, 2)
    try:
        assert lux.analyze(lambda x: x.mm(x), x).flops == 1
    finally:
        flops.forget("aten::mm")
    assert lux.analyze(lambda x: x.mm(x), x).flops == 16


@pytest.mark.parametrize("answer", [-1, "many", None, (1, 2, 3), True])
def test_a_formula_with_a_bad_answer_is_named(twist, answer):
    lux.flops_of(twist)(lambda x: answer)
    with pytest.raises(UsageError, match=r"luxtest::twist answered .*formula-bad-answer"):
        lux.analyze(lambda x: twist(x), torch.randn(2))


@pytest.mark.parametrize("op", [3, "nonsense", torch.relu, nn.Linear])
def test_flops_of_refuses_what_is_no_operator(op):
    with pytest.raises(UsageError, match="not-an-operator"):
        lux.flops_of(op)


def test_flops_of_refuses_what_is_no_formula(twist):
    with pytest.raises(UsageError, match="formula-not-callable"):
        lux.flops_of(twist)(5)


def test_solvers_have_a_cost_and_iterations_do_not():
    a = torch.eye(4) + 1
    assert lux.analyze(torch.linalg.cholesky, a).flops == 4**3 // 3
    unknown = lux.analyze(lambda a: torch.linalg.eigvalsh(a), a).unknown_ops
    assert [u.name for u in unknown] == ["aten::_linalg_eigh"]
