"""One walk over nested values, for all who look for tensors in them."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from luxmeter.model.inputs import torch_dtype
from luxmeter.nested import found_in, tensors_of
from luxmeter.operators.dtypes import float_dtype
from luxmeter.signature import DTYPE_SPELLINGS, dtype_named

a, b, c, d = (torch.zeros(n) for n in range(4))
Pair = namedtuple("Pair", "left right")


@dataclass
class Output:
    loss: Any
    rest: Any = None


def test_tensors_come_in_order_from_whatever_holds_them() -> None:
    value = (a, [Pair(b, {"x": c, "y": ["no", 1, None]})], OrderedDict(z={d}))
    assert [id(t) for t in tensors_of(value)] == [id(t) for t in (a, b, c, d)]
    assert tensors_of(a) == [a] and tensors_of("text") == tensors_of(None) == tensors_of(np.ones(2)) == []


def test_objects_are_looked_into_on_request() -> None:
    value = [Output(a, rest=Output([b])), torch.nn.Linear(1, 1), Output, torch.relu]
    assert tensors_of(value) == []
    assert [id(t) for t in tensors_of(value, in_objects=True)] == [id(a), id(b)]


@pytest.mark.parametrize("in_objects", [False, True])
def test_what_contains_itself_comes_to_an_end(in_objects: bool) -> None:
    circle: list[Any] = [a]
    circle += [circle, circle, b]
    assert [id(t) for t in tensors_of(circle, in_objects=in_objects)] == [id(a), id(b)]
    around = Output(b)
    around.rest = around
    assert [id(t) for t in tensors_of([around, around], in_objects=True)] == [id(b), id(b)]


def test_other_things_are_found_the_same_way() -> None:
    assert found_in({"a": (1, "x"), "b": [2.0]}, lambda value: isinstance(value, int | float)) == [1, 2.0]


@pytest.mark.parametrize("spelling", [*DTYPE_SPELLINGS, *DTYPE_SPELLINGS.values(), "torch.half", " bf16 "])
def test_a_dtype_has_the_same_spellings_everywhere(spelling: str) -> None:
    name = dtype_named(spelling)
    if hasattr(torch, name):  # some came with later versions
        assert str(torch_dtype(spelling)) == f"torch.{name}"
    if name in ("float64", "float32", "float16", "bfloat16"):
        assert float_dtype(spelling) == name


def test_nothing_is_held_on_to() -> None:
    """The memory of a model is followed by when its tensors end, and the collector rests meanwhile."""
    tensor = torch.zeros(1)
    gone = weakref.ref(tensor)
    gc.disable()
    try:
        assert len(tensors_of([tensor, {"x": Output(tensor)}], in_objects=True)) == 2
        del tensor
        assert gone() is None
    finally:
        gc.enable()
