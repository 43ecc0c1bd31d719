"""Meters: values in and out, names, formats."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from luxmeter import Meter
from luxmeter.errors import MissingNameError, UsageError


def test_values_come_out_as_they_went_in() -> None:
    m = Meter()
    loss = torch.ones(1, requires_grad=True) * 2
    m.loss = loss
    m["acc"] = 0.5
    m.update({"n": 3})
    assert m.loss is loss
    assert m.loss.requires_grad
    assert (m.acc, m["n"]) == (0.5, 3)
    assert list(m) == ["loss", "acc", "n"]
    assert dict(m.items())["n"] == 3
    assert len(m) == 3
    assert "acc" in m
    assert m.get("x", 1) == 1
    del m.n
    assert "n" not in m
    assert "acc" in dir(m)


def test_a_name_with_an_underscore_is_the_name() -> None:
    m = Meter()
    assert m.a_ == "a"
    assert m.train_loss_ == "train_loss"
    with pytest.raises(UsageError):
        m.a_ = 3
    with pytest.raises(UsageError):
        m["a_"] = 3
    assert len(m) == 0


def test_a_missing_name_gets_a_suggestion() -> None:
    m = Meter({"loss": 1.0})
    for use in (str, float, int, bool, len, list, abs, sorted, "{:.2f}".format, lambda los: los > 3, lambda los: los == 3, lambda los: los.item(), lambda los: los[0]):  # fmt: skip
        with pytest.raises(AttributeError, match=r"Did you mean 'loss'\?"):
            use(m.los)
    with pytest.raises(MissingNameError, match=r"Did you mean 'loss'\?"):
        _ = m["los"]
    with pytest.raises(MissingNameError):
        del m.los
    assert repr(m.los) == "<The meter has no value 'los'.>"
    assert "los" not in m and m.get("los") is None
    assert list(m) == ["loss"]


def test_a_sum_begins_with_its_first_value() -> None:
    m = Meter()
    for i in range(1, 4):
        m.sum = m.sum + i
        m.left -= i
        m.product = m.product * i
        m.tensor += torch.full((2,), float(i))
        m.front = i + m.front
    assert (m.sum, m.left, m.product, m.tensor.tolist(), m.front) == (6, -6, 6, [6.0, 6.0], 6)
    m.half = m.half / 2
    assert m.half == 0.5


def test_names_of_methods_are_items_only() -> None:
    m = Meter()
    for name in ("percent", "update", "merge", "int"):
        with pytest.raises(UsageError):
            setattr(m, name, 1)
    m["percent"] = 0.5
    assert str(m) == "@percent=0.5000"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1, "1"), (True, "True"), ("two", "two"), (None, "None"), (0.70718, "0.7072"), (3.13524635465, "3.1352"), (0.0, "0.0000"),
        (-2.5, "-2.5000"), (1e-5, "1e-05"), (0.00052345678, "0.0005235"), (123456.789, "123456.7890"),
        (float("nan"), "nan"), (float("inf"), "inf"), (torch.tensor(0.25), "0.2500"), (torch.tensor([0.25]), "0.2500"),
        (torch.tensor([[3]]), "3"), (torch.tensor([1, 2]), "tensor([1, 2])"), (torch.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],..."),
        (torch.ones(2, requires_grad=True), "tensor([1., 1.])"), (np.float32(0.5), "0.5000"), (np.int64(3), "3"),
        (np.array([0.5]), "0.5000"), (np.array([[1, 2], [3, 4]]), "[[1 2]..."), ([4], "[4]"), ({5: "6"}, "{5: '6'}"),
        ("two\nlines", "two..."), (1 + 2j, "(1+2j)"), (torch.zeros((), device="meta"), "tensor(..., device='meta', size=())"),
    ],
)  # fmt: skip
def test_how_values_print(value: Any, shown: str) -> None:
    assert str(Meter({"v": value})) == f"@v={shown}"


def test_formats() -> None:
    m = Meter(
        {
            "a": 0.236,
            "b": 0.236,
            "c": 2.6,
            "d": torch.tensor([0.5]),
            "e": 1234.5,
            "f": [1],
            "g": 0.5,
            "h": "text",
        }
    )
    m.percent(m.a_)
    m.float(m.b_, 2)
    m.int(m.c_)
    m.tensorfloat(m.d_, 1)
    m.format(m.e_, ".1e")
    m.format(m.f_, lambda x: f"<{len(x)}>")
    m.percent("g", 0)
    m.percent("h")
    assert str(m) == "@a=23.60%  @b=0.24  @c=3  @d=0.5  @e=1.2e+03  @f=<1>  @g=50%  @h=text"
    assert m.a == 0.236


def test_a_format_set_before_the_value_holds() -> None:
    m = Meter()
    m.percent(m.acc_)
    m.acc = torch.tensor(0.5)
    assert repr(m) == "@acc=50.00%"


def test_printing_never_fails() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    m = Meter({"a": Broken(), "b": 1.0})
    m.format("b", lambda x: x.nope)
    assert str(m) == "@a=<Broken that cannot be shown: RuntimeError>  @b=1.0000"


def test_scalars() -> None:
    m = Meter({"a": 1, "b": torch.tensor(0.5), "c": "x", "d": torch.ones(2), "e": np.float32(2), "f": True})
    assert m.scalars() == {"a": 1, "b": 0.5, "e": 2.0, "f": True}


def test_copies() -> None:
    m = Meter({"a": 0.5})
    m.percent("a")
    for twin in (copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert str(twin) == "@a=50.00%"
    other = Meter()
    other.update(m)
    assert str(other) == "@a=50.00%"
