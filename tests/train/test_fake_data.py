"""FakeData: the same samples each time, others by an offset, and labels that the images tell."""

from __future__ import annotations

import pytest
import torch

from luxmeter.errors import UsageError
from luxmeter.train import FakeData


def test_a_sample_depends_on_its_number_alone() -> None:
    one, two = FakeData(20), FakeData(50)
    assert len(one) == 20 and one[3][0].shape == (1, 28, 28)
    assert torch.equal(one[3][0], two[3][0]) and one[3][1] == two[3][1]
    assert torch.equal(one[-1][0], one[19][0]) and not torch.equal(one[3][0], one[4][0])
    other = FakeData(20, random_offset=20)
    assert not torch.equal(other[3][0], one[3][0]) and torch.equal(other.patterns, one.patterns)
    with pytest.raises(IndexError):
        one[20]
    assert len(list(one)) == 20


def test_the_label_can_be_told_from_the_image() -> None:
    data = FakeData(60, (4, 4), num_classes=3, noise=0.3)
    told = [int(((data.patterns - image) ** 2).sum((1, 2)).argmin()) for image, _ in data]
    assert told == [label for _, label in data] and set(told) == {0, 1, 2}


def test_transforms_and_what_cannot_be() -> None:
    data = FakeData(2, (3,), transform=lambda image: image * 0, target_transform=str)
    assert data[0][0].tolist() == [0, 0, 0] and data[0][1] in map(str, range(10))
    for wrong in ({"size": 0}, {"image_size": ()}, {"image_size": (1, 0)}, {"num_classes": 0}):
        with pytest.raises(UsageError, match="fake-data"):
            FakeData(**wrong)  # type: ignore[arg-type]
