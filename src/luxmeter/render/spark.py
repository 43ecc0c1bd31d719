"""A curve in one line of text: ▇▆▄▃▂▁▁."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = " "  # where nothing finite is to be shown


def sparkline(values: Iterable[float], width: int = 40, *, blocks: str = _BLOCKS) -> str:
    """`values` from left to right, lowest to highest block; more than `width` of them are averaged in stretches.

    What is not finite is left out; a stretch of nothing else is a gap. Equal values are drawn in the middle.
    `blocks` are the steps to draw with, for a terminal that has no Unicode: "_.-=^".
    """
    numbers = [float(value) for value in values]
    if not numbers or width < 1:
        return ""
    means = [_mean(part) for part in _stretches(numbers, min(width, len(numbers)))]
    finite = [mean for mean in means if mean is not None]
    if not finite:
        return _GAP * len(means)
    low, high = min(finite), max(finite)
    return "".join(_GAP if mean is None else _block(mean, low, high, blocks) for mean in means)


def _stretches(numbers: list[float], count: int) -> list[list[float]]:
    edges = [len(numbers) * i // count for i in range(count + 1)]
    return [numbers[start:end] for start, end in pairwise(edges)]


def _mean(part: list[float]) -> float | None:
    finite = [number for number in part if math.isfinite(number)]
    # Divided first: the sum of two large floats may be infinite.
    return math.fsum(number / len(finite) for number in finite) if finite else None


def _block(mean: float, low: float, high: float, blocks: str) -> str:
    if low == high:
        return blocks[(len(blocks) - 1) // 2]
    share = (mean / 2 - low / 2) / (high / 2 - low / 2)  # halved: high - low may be infinite
    return blocks[min(len(blocks) - 1, max(0, int(share * len(blocks))))]
