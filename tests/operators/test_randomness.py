"""Which operators' results are compared, and which cannot be."""

from __future__ import annotations

import pytest
import torch

import luxmeter as lux
from luxmeter.operators.case import Case
from luxmeter.operators.randomness import is_random
from luxmeter.signature import describe


@pytest.mark.parametrize(
    "op",
    ["torch.nn.functional.normalize", "aten.poisson_nll_loss.default", "torch.nn.functional.poisson_nll_loss",
     "Tensor.__rand__", "torch.signal.windows.exponential", "aten.native_dropout_backward.default",
     "torch.nn.PoissonNLLLoss", "torch.logical_and", "torch.nn.LayerNorm", "torch.linalg.norm"],
)  # fmt: skip
def test_a_word_in_a_name_is_no_draw(op: str) -> None:
    """These compute from what they are given."""
    assert not is_random(op)


@pytest.mark.parametrize(
    "op",
    ["torch.normal", "Tensor.log_normal_", "torch.rand_like", "torch.nn.functional.dropout2d", "torch.nn.AlphaDropout",
     "torch.nn.RReLU", "torch.nn.functional.gumbel_softmax", "torch.nn.FractionalMaxPool2d", "torch.empty_like",
     "aten.bernoulli.p", "torch.nn.init.xavier_uniform_", "Tensor.cauchy_"],
)  # fmt: skip
def test_draws(op: str) -> None:
    """These draw, or leave memory as it was."""
    assert is_random(op)


def test_torch_says_the_same_of_its_kernels() -> None:
    """Every aten kernel that torch marks as seeded is known, those apart that draw only when asked by an argument."""
    by_argument = {"attention", "lstm", "gru", "rnn"}
    missed, wrong = set(), set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        if space != "aten" or rest.startswith("_"):
            continue
        packet, _, overload = rest.partition(".")
        tags = getattr(getattr(torch.ops.aten, packet), overload or "default").tags
        seeded = torch.Tag.nondeterministic_seeded in tags
        op = f"aten.{rest}"
        if seeded and not is_random(op) and not any(word in packet for word in by_argument):
            missed.add(op)
        if is_random(op) and not seeded and "empty" not in packet:
            wrong.add(packet)
    assert not missed
    # Composed of kernels that draw, and therefore not marked themselves; functional twins of in-place draws.
    assert wrong <= {"alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout", "fractional_max_pool2d",
                     "fractional_max_pool3d", "rrelu_with_noise_functional"}  # fmt: skip


def test_normalize_has_an_error() -> None:
    """Its result is compared with fp32 as any other's."""
    case = Case("torch.nn.functional.normalize", describe((torch.rand(4, 8),)))
    [row] = lux.bench(case, dtypes=["fp16"], budget_s=1, quiet=True)
    assert row.status in ("ok", "doubtful"), row.reason
    assert row.max_rel_error is not None and 0 < row.max_rel_error < 0.05
