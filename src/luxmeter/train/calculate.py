"""Small calculations of trainings: hits and confusion of a classification, weights that rise and fall, labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from luxmeter.errors import UsageError


def accuracy(preds: Tensor, labels: Tensor, k: int = 1) -> float:
    """The share of samples whose label is among the k highest of `preds` [samples, classes]; k=1: is the highest."""
    return topk_hits(preds, labels, (k,)).float().mean().item()


def classify(
    preds: Tensor, labels: Tensor, cacu_rate: bool = False, topk: Sequence[int] = (1, 5)
) -> tuple[int, list[int]] | list[float]:
    """thexp's: (samples, [hits among the k highest for each k]), or with `cacu_rate` [share for each k]."""
    hits: list[int] = topk_hits(preds, labels, topk).sum(0).tolist()
    total = len(labels)
    return [count / total for count in hits] if cacu_rate else (total, hits)


def topk_hits(preds: Tensor, labels: Tensor, topk: Sequence[int] = (1, 5)) -> Tensor:
    """For each sample and each k whether its label is among the k highest: bool [samples, len(topk)]."""
    classes = preds.shape[-1]
    if (
        preds.ndim != 2
        or labels.shape != preds.shape[:1]
        or not topk
        or not 1 <= min(topk) <= max(topk) <= classes
    ):
        raise UsageError(
            "calculate-shapes",
            f"Hits for k in {tuple(topk)} of preds {tuple(preds.shape)} and labels {tuple(labels.shape)} cannot be counted.",
            "preds is [samples, classes], labels [samples], and each k is from 1 to the number of classes.",
        )
    highest = preds.topk(max(topk), dim=1).indices == labels.view(-1, 1)
    return torch.stack([highest[:, :k].any(1) for k in topk], dim=1)


def confusion(preds: Tensor, labels: Tensor, classes: int | None = None) -> Tensor:
    """How often class i was taken for class j: int64 [classes, classes], a row for each true class.

    `preds` are classes [samples], or logits [samples, classes].
    """
    if preds.ndim == 2:
        classes = preds.shape[1] if classes is None else classes
        preds = preds.argmax(1)
    if classes is None:
        classes = int(torch.cat([preds, labels]).max()) + 1
    if preds.shape != labels.shape or (len(labels) and int(torch.cat([preds, labels]).max()) >= classes):
        raise UsageError(
            "calculate-shapes",
            f"{tuple(preds.shape)} classes and {tuple(labels.shape)} labels, or one of them from {classes} on, make no confusion matrix.",
            "Give as many classes as labels, and the number of classes.",
        )
    return torch.bincount(labels * classes + preds, minlength=classes**2).view(classes, classes)


def sigmoid_rampup(
    current: float, rampup_length: float = 100, top: float = 1.0, bottom: float = 0.0, reverse: bool = False
) -> float:
    """exp(-5 (1 - t)²) as t goes from 0 to 1 in `rampup_length` steps (arXiv:1610.02242), from `bottom` to `top`.

    It begins at exp(-5) of the way. `reverse`: the same curve, run backwards.
    """
    ratio = _ratio(current, rampup_length)
    left = ratio if reverse else 1 - ratio
    return bottom + (top - bottom) * math.exp(-5 * left * left)


def linear_rampup(current: float, rampup_length: float = 100, start: float = 0.0, end: float = 1.0) -> float:
    """A straight line from `start` to `end` in `rampup_length` steps, `end` from there on."""
    ratio = _ratio(current, rampup_length)
    return end if ratio == 1 else start + (end - start) * ratio


def cosine_rampdown(current: float, rampdown_length: float) -> float:
    """Half a cosine from 1 to 0 in `rampdown_length` steps (arXiv:1608.03983), 0 from there on."""
    return (math.cos(math.pi * _ratio(current, rampdown_length)) + 1) / 2


def onehot(labels: Tensor, label_num: int) -> Tensor:
    """Labels [n] as rows of floats [n, label_num] with a one each."""
    return torch.nn.functional.one_hot(labels, label_num).float()


def label_smoothing(onehot_labels: Tensor, epsilon: float = 0.1) -> Tensor:
    """Move `epsilon` of each row to all its classes alike (arXiv:1512.00567)."""
    return onehot_labels * (1 - epsilon) + epsilon / onehot_labels.shape[-1]


def cat_then_split(op: Callable[[Tensor], Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Call a model once on several batches, so that BatchNorm sees them together: `a, b = cat_then_split(model, [xs, us])`."""
    return list(torch.split(op(torch.cat(list(tensors))), [len(one) for one in tensors]))


def _ratio(current: float, length: float) -> float:
    if not length > 0:
        raise UsageError(
            "rampup-length", f"A length of {length!r} steps is not above zero.", "Give a number above zero."
        )
    return min(max(current / length, 0.0), 1.0)
