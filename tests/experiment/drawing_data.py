"""Datasets that draw, and ways to tell what a loader gave: the material of the loader tests."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

import luxmeter as lux


class Drawing(torch.utils.data.Dataset[tuple[int, float]]):
    """The index and a number drawn from python, numpy and torch."""

    def __init__(self, length: int = 11) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random() + float(np.random.rand()) + torch.rand(1).item()


def told(batches: Any) -> list[Any]:
    return [[part.tolist() for part in batch] for batch in batches]


def three_epochs(loader: Any) -> list[list[Any]]:
    return [told(loader) for _ in range(3)]


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    saver = lux.Saver("s", background=False)
    saver.save_checkpoint(0, state)
    loaded: dict[str, Any] = saver.load_latest_checkpoint().checkpoint
    return loaded
