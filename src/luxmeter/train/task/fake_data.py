"""Images that nobody took, for a first run: made up when they are read, and yet something can be learnt from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from luxmeter.errors import UsageError


class FakeData(Dataset[tuple[Any, Any]]):
    """`size` pairs of an image and a label: each class has a pattern of its own, to which `noise` is added.

    As torchvision's of that name, but that the labels have to do with the images. A sample depends on its number alone;
    `random_offset` gives others of the same classes, for an evaluation.
    """

    def __init__(
        self,
        size: int = 1000,
        image_size: Sequence[int] = (1, 28, 28),
        num_classes: int = 10,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        random_offset: int = 0,
        noise: float = 1.0,
    ) -> None:
        if size < 1 or num_classes < 1 or not image_size or min(image_size) < 1:
            raise UsageError(
                "fake-data",
                f"FakeData cannot have size={size}, image_size={tuple(image_size)}, num_classes={num_classes}.",
                "Give whole numbers from 1 on.",
            )
        self.size = size
        self.num_classes = num_classes
        self.transform = transform
        self.target_transform = target_transform
        self.random_offset = random_offset
        self.noise = noise
        self.patterns = torch.randn(num_classes, *image_size, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not -self.size <= index < self.size:
            raise IndexError(f"There is no sample {index} among {self.size}.")
        generator = torch.Generator().manual_seed(1 + self.random_offset + index % self.size)
        label: Any = int(torch.randint(self.num_classes, (), generator=generator))
        pattern = self.patterns[label]
        image: Any = pattern + self.noise * torch.randn(pattern.shape, generator=generator)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label
