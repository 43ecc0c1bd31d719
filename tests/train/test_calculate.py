"""Small calculations, each against another way to make it."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import confusion_matrix, top_k_accuracy_score
from torch import nn

from luxmeter.errors import UsageError
from luxmeter.train import calculate

GENERATOR = torch.Generator().manual_seed(1)
LOGITS = torch.randn(60, 6, generator=GENERATOR)
LABELS = torch.randint(0, 6, (60,), generator=GENERATOR)


def test_hits() -> None:
    preds = torch.tensor([[5.0, 4.0, 3.0, 2.0]] * 4)
    labels = torch.tensor([0, 1, 2, 3])
    assert calculate.classify(preds, labels, topk=(1, 2, 3, 4)) == (4, [1, 2, 3, 4])
    assert calculate.classify(preds, labels, cacu_rate=True, topk=[1, 3]) == [0.25, 0.75]
    for k in (1, 2, 5):
        theirs = top_k_accuracy_score(LABELS.numpy(), LOGITS.numpy(), k=k)
        assert calculate.accuracy(LOGITS, LABELS, k) == pytest.approx(theirs)


def test_confusion() -> None:
    theirs = confusion_matrix(LABELS.numpy(), LOGITS.argmax(1).numpy(), labels=range(6))
    assert calculate.confusion(LOGITS, LABELS).tolist() == theirs.tolist()
    assert calculate.confusion(LOGITS.argmax(1), LABELS).tolist() == theirs.tolist()
    assert calculate.confusion(torch.tensor([0]), torch.tensor([1]), 3).tolist() == [
        [0] * 3,
        [1, 0, 0],
        [0] * 3,
    ]


@pytest.mark.parametrize(
    ("preds", "labels", "topk"),
    [(LOGITS, LABELS, (7,)), (LOGITS, LABELS, ()), (LOGITS, LABELS[:5], (1,)), (LABELS, LABELS, (1,))],
)
def test_hits_that_cannot_be_counted(
    preds: torch.Tensor, labels: torch.Tensor, topk: tuple[int, ...]
) -> None:
    with pytest.raises(UsageError, match="cannot be counted"):
        calculate.topk_hits(preds, labels, topk)


def test_a_confusion_that_cannot_be_made() -> None:
    for given in ((LOGITS, LABELS[:5]), (LABELS, LABELS, 2)):
        with pytest.raises(UsageError, match="no confusion matrix"):
            calculate.confusion(*given)  # type: ignore[arg-type]


def test_ramps() -> None:
    assert [calculate.sigmoid_rampup(step, 10) for step in (-1, 0, 10, 11)] == [
        math.exp(-5),
        math.exp(-5),
        1.0,
        1.0,
    ]
    assert calculate.sigmoid_rampup(5, 10) == pytest.approx(math.exp(-1.25))
    assert calculate.sigmoid_rampup(5, 10, top=3.0, bottom=1.0) == pytest.approx(1 + 2 * math.exp(-1.25))
    assert calculate.sigmoid_rampup(2, 10, reverse=True) == pytest.approx(calculate.sigmoid_rampup(8, 10))
    assert [calculate.linear_rampup(step, 10, 1.0, 3.0) for step in (-1, 0, 5, 10, 99)] == [1, 1, 2, 3, 3]
    assert [calculate.cosine_rampdown(step, 8) for step in (0, 8, 9)] == [1, 0, 0]
    assert calculate.cosine_rampdown(4, 8) == pytest.approx(0.5)
    with pytest.raises(UsageError, match="A length of 0 steps"):
        calculate.linear_rampup(1, 0)


def test_labels() -> None:
    rows = calculate.onehot(torch.tensor([2, 0]), 3)
    assert rows.tolist() == [[0, 0, 1], [1, 0, 0]] and rows.dtype == torch.float32
    smooth = calculate.label_smoothing(calculate.onehot(LABELS, 6), 0.3)
    mine = nn.functional.cross_entropy(LOGITS, smooth)
    assert mine.item() == pytest.approx(
        nn.functional.cross_entropy(LOGITS, LABELS, label_smoothing=0.3).item()
    )


def test_several_batches_at_once() -> None:
    norm = nn.BatchNorm1d(2)
    xs, us = torch.randn(3, 2), torch.randn(5, 2) + 4
    a, b = calculate.cat_then_split(norm, [xs, us])
    assert torch.equal(torch.cat([a, b]), nn.BatchNorm1d(2)(torch.cat([xs, us]))) and len(a) == 3
