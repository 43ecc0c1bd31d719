"""What may be logged besides numbers: pictures, arrays, histograms, files; and what is refused with a word."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from luxmeter.described import DescribedMapping, with_type
from luxmeter.errors import UsageError
from luxmeter.store import File, Histogram, Image, Lab, object_of
from luxmeter.store.run import Values
from luxmeter.store.values import Stored, number_of


class OfMindSpore:
    """Has what its tensors have: no `numel`, `asnumpy`."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def asnumpy(self) -> Any:
        return self._values


def pixels(image: Image) -> Any:
    return np.asarray(PIL.Image.open(io.BytesIO(image.png)))


GREY = np.arange(15, dtype=np.uint8).reshape(3, 5)


@pytest.mark.parametrize(
    ("picture", "shown"),
    [
        (GREY, GREY),
        (GREY[:, :, None], GREY),  # one channel, behind
        (GREY[None], GREY),  # ... and in front
        (GREY > 5, (GREY > 5) * 255),
        (GREY / 255, GREY),
        (GREY * 1.0, GREY),
        (torch.from_numpy(GREY), GREY),
        (OfMindSpore(GREY), GREY),
        (np.stack([GREY] * 3), np.stack([GREY] * 3, axis=2)),
        (torch.ones(2, 2, dtype=torch.bfloat16), np.full((2, 2), 255)),
    ],
)  # fmt: skip
def test_arrays_become_pictures_of_the_same_pixels(picture: Any, shown: Any) -> None:
    assert np.array_equal(pixels(Image(picture)), shown)


def test_pictures_of_pillow_and_files_of_png(lab: Lab) -> None:
    drawn = PIL.Image.new("RGB", (3, 2), (1, 2, 3))
    assert pixels(Image(drawn)).tolist() == [[[1, 2, 3, 255]] * 3] * 2
    assert Image(Image(drawn).png).png == Image(drawn).png
    with lab.create_run("a") as run:
        run.log({"drawn": drawn}, step=0)
    [row] = lab.find(run.id).objects("drawn")
    assert row["kind"] == "image" and lab.find(run.id).blob(row["blob"]) == Image(drawn).png


@pytest.mark.parametrize("shape", [(3,), (2, 2, 5), (0, 3), (2, 3, 4, 5)])
def test_arrays_that_are_no_picture(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="image-shape"):
        Image(np.zeros(shape))


def test_bytes_that_are_no_png() -> None:
    with pytest.raises(UsageError, match="image-not-png"):
        Image(b"GIF89a")


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("body")
    assert File(tmp_path / "a.txt").stored() == Stored("file", '{"name": "a.txt"}', b"body", ".txt")
    with pytest.raises(UsageError, match=r"file-unreadable"):
        File(tmp_path / "none.txt")
    with pytest.raises(UsageError, match=r"file-unreadable"):
        File(tmp_path)


def test_a_histogram_of_no_numbers() -> None:
    record = json.loads(Histogram([float("nan"), float("inf")]).stored().text)
    assert (record["counts"], record["edges"], record["n"], record["non_finite"]) == ([], [], 2, 2)
    assert record["mean"] == record["std"] == {"$float": "nan"}


def test_one_number_in_a_tensor_of_mindspore_is_a_metric() -> None:
    assert number_of(OfMindSpore([2.5])) == 2.5 and number_of(OfMindSpore([1, 2])) is None
    assert object_of("a", OfMindSpore([1, 2])).kind == "array"


class StoresNothing:
    def stored(self) -> str:
        return "not what is asked for"


def test_what_says_it_can_be_stored_and_cannot() -> None:
    with pytest.raises(UsageError, match="'a'"):
        object_of("a", StoresNothing())


def test_a_mapping_of_a_type_says_it_like_a_value() -> None:
    held = Values({"optim": with_type(DescribedMapping({"lr": 0.1}), "SGD"), "plain": {"a": {"b": 1}}})
    assert held["optim.$type"] == held["optim"]["$type"] == "SGD" and held["plain.a.b"] == 1
    for name in ("plain.$type", "plain.a.c", "none"):
        with pytest.raises(KeyError):
            held[name]
