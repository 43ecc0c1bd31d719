"""How arguments are read: unseen by the user's tools, also where no thread can be had, and those of MindSpore, too."""

from __future__ import annotations

import _thread
from typing import Any

import pytest
import torch

from luxmeter.calls import arguments
from luxmeter.calls.arguments import KEY, Arguments, unseen
from luxmeter.calls.targets.torch import callables

ONE_CORE = "what the cores ask; tests/calls/test_core_signatures.py holds what each makes of it"


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuses)


def divide() -> None:
    1 / 0


def test_what_is_done_unseen_fails_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        unseen(divide)


@pytest.mark.usefixtures("no_threads")
def test_where_no_more_threads_can_be_had_it_is_done_on_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        unseen(divide)
    monkeypatch.setattr(arguments, "_known_samples", [])
    samples = arguments._samples(torch)
    assert samples is arguments._known_samples and [n for _, n in samples[:8]] == [0] * 8
    assert [n for _, n in samples[8:18]] == list(range(10)) and samples[-1][1] is None
    assert samples[-1][0].is_meta and not samples[-2][0].is_contiguous()


def test_which_properties_compute_is_found_with_and_without_a_thread(request: pytest.FixtureRequest) -> None:
    with_one = list(callables._tensor_properties())
    request.getfixturevalue("no_threads")
    assert list(callables._tensor_properties()) == with_one
    computing = {one.name for one in with_one if isinstance(one, callables.Target)}
    assert {"Tensor.T", "Tensor.mH", "Tensor.real"} <= computing and not computing & {
        "Tensor.shape",
        "Tensor.dtype",
    }


class MindSporeTensor:
    """What of MindSpore's tensors is read."""

    def __init__(self, shape: tuple[int, ...], dtype: object, stride: tuple[int, ...]) -> None:
        self._shape, self._dtype, self._stride = shape, dtype, stride

    def stride(self) -> list[int]:
        return list(self._stride)


@pytest.mark.parametrize("strides", [False, True])
def test_tensors_of_mindspore_are_told_apart_by_shape_and_type_and_by_strides_on_request(
    strides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "mindspore_tensor_type", lambda: MindSporeTensor)
    f32, f16 = object(), object()
    one, turned, half, wide = (
        MindSporeTensor(*how)
        for how in (
            ((2, 2), f32, (2, 1)),
            ((2, 2), f32, (1, 2)),
            ((2, 2), f16, (2, 1)),
            ((2, 3), f32, (3, 1)),
        )
    )
    asked = Arguments(strides=strides)
    assert asked.classify(MindSporeTensor) == (KEY if strides else ("_shape", "_dtype"))
    assert asked.key(one) == asked.key(MindSporeTensor((2, 2), f32, (2, 1)))
    assert len({asked.key(each) for each in (one, half, wide)}) == 3
    assert (asked.key(one) == asked.key(turned)) is not strides
