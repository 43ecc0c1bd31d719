"""Whatever `==` tells apart is apart in what a run keeps; what is the same is kept the same."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import math
import operator
import os
import re
import subprocess
import sys
import threading
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from luxmeter import BaseParams
from luxmeter.described import Described, canonical, described
from luxmeter.errors import UsageError
from luxmeter.experiment.experiment import plain_params
from luxmeter.files import from_json, json_text, to_json
from luxmeter.identity import same
from luxmeter.store.rows import flatten

S = BaseParams.SCHE


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Mood(enum.Enum):
    RED = 1


class Bits(enum.Flag):
    A = 1
    B = 2


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Other(Plain):
    pass


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Failing:
    def __repr__(self) -> str:
        raise ValueError("no words")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ValueError("no state")


@dataclasses.dataclass
class One:
    x: Any = 1


@dataclasses.dataclass
class Two:
    x: Any = 1


class Model(pydantic.BaseModel):
    x: int = 1


class Twin(pydantic.BaseModel):
    x: int = 1


def local_class(y: int) -> Any:
    @dataclasses.dataclass
    class Local:
        x: int = 1

        def method(self) -> int:
            return y

    return Local()


def local_twin() -> Any:
    class Local:
        def method(self) -> int:
            return 2

    return Local()


def adder(n: int) -> Callable[[int], int]:
    return lambda x: x + n


def optim(name: str, **options: Any) -> Any:
    return BaseParams().create_optim(name, **options)


MAKE: list[Callable[[], Any]] = [
    # each makes a value that no other makes; made twice it is kept the same
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: 1, lambda: 0.5, lambda: math.nan, lambda: math.inf,
    lambda: -math.inf, lambda: 10**5000, lambda: 10**5000 + 1, lambda: "", lambda: "1", lambda: "True", lambda: "nan",
    lambda: "None", lambda: "\udcff", lambda: "\udcfe", lambda: "a\0", lambda: "(1, 2)", lambda: "b'x'", lambda: "{1}",
    lambda: b"x", lambda: b"", lambda: b"a" * 500, lambda: b"a" * 501, lambda: 1j, lambda: 2j,
    lambda: [1, 2], lambda: (1, 2), lambda: [[1], 2], lambda: [(1,), 2], list, lambda: (), dict,
    lambda: {1, 2}, lambda: {1, "2"}, lambda: set(), lambda: {"a", "b", "c", "d"}, lambda: {"$set": 1},
    lambda: {1: "a"}, lambda: {"1": "a"}, lambda: {True: "a"}, lambda: {"True": "a"}, lambda: {None: "a"},
    lambda: {"None": "a"}, lambda: {1.5: "a"}, lambda: {'"1"': "a"}, lambda: {(1, 2): "a"}, lambda: {"(1, 2)": "a"},
    lambda: {"[1]": "a"}, lambda: {'"[1]"': "a"},
    lambda: {b"a": 1}, lambda: {"b'a'": 1}, lambda: {Colour.RED: 1}, lambda: {"Colour.RED": 1},
    lambda: {"a": {"b": 1}, "a.b": 2}, lambda: {"a": {"b": 2}, "a.b": 1}, lambda: {"$type": "One", "x": 1},
    lambda: {"$value": {"digest": "x"}}, lambda: {"$tuple": [1, 2]}, lambda: {"$float": "nan"}, lambda: {"$repr": "a"},
    lambda: S.Cos(0, 1, 0, 10), lambda: S.Linear(0, 1, 0, 10), lambda: S.Log(0, 1, 0, 10), lambda: S.Exp(0, 1, 0, 10),
    lambda: S.PeriodCos(0, 1, 0, 10), lambda: S.HalfPeriodCos(0, 1, 0, 10), lambda: S.Cos(0, 1, 0, 11),
    lambda: S.Const(0.5), lambda: S.Power(1, 2, 0.5), lambda: S.List([S.Cos(0, 1, 0, 10)]),
    lambda: S.List([S.Linear(0, 1, 0, 10)]), lambda: [S.Cos(0, 1, 0, 10)], lambda: [S.Linear(0, 1, 0, 10)],
    lambda: S.Cos, lambda: S.Linear, lambda: optim("SGD", lr=0.1), lambda: optim("Adam", lr=0.1),
    lambda: optim("SGD", lr=0.2), lambda: torch.float32, lambda: torch.float16, lambda: "torch.float32",
    lambda: torch.device("cpu"), lambda: torch.device("cuda:0"), lambda: "cpu", lambda: torch.channels_last,
    lambda: torch.strided, lambda: np.dtype("int8"), lambda: np.dtype("int16"), lambda: np.int8,
    lambda: Path("a"), lambda: Path("b"), lambda: "a", lambda: Colour.RED, lambda: Colour.BLUE, lambda: Mood.RED,
    lambda: Bits.A, lambda: Bits.A | Bits.B, lambda: "Colour.RED",
    lambda: One(), lambda: Two(), lambda: One(2), lambda: [One()], lambda: [Two()], lambda: One(Two()), lambda: {"x": 1},
    lambda: One, lambda: Two, lambda: Model(), lambda: Twin(), lambda: Model(x=2), lambda: Plain(1), lambda: Plain(2),
    lambda: Other(1), lambda: Slotted(1), lambda: Slotted(2), lambda: types.SimpleNamespace(x=1),
    lambda: argparse.Namespace(x=1), lambda: local_class(1), lambda: local_twin(),
    lambda: len, lambda: print, lambda: adder(1), lambda: adder(2), lambda: (lambda x: x), lambda: (lambda x: x + 1),
    lambda: (lambda x=1: x), lambda: (lambda x=2: x), lambda: (lambda y: [z - 1 for z in y]), lambda: (lambda y: [z + 1 for z in y]),
    lambda: torch.relu, lambda: torch.nn.functional.relu, lambda: torch.nn.ReLU, lambda: operator.add, lambda: np.add,
    lambda: functools.partial(int, base=2), lambda: functools.partial(int, base=3), lambda: functools.partial(float),
    lambda: functools.partial(adder(1), 2), lambda: functools.partial(adder(2), 2), lambda: "abc".upper,
    lambda: Plain(1).__init__, lambda: operator.itemgetter(1), lambda: operator.itemgetter(2),
    lambda: operator.attrgetter("a"), lambda: re.compile("a"), lambda: re.compile("a", re.I),
    lambda: np.array([1, 2]), lambda: np.array([2, 1]), lambda: np.array([[1, 2]]), lambda: np.array([1, 2], np.int8),
    lambda: np.array([1.0, 2.0]), lambda: np.array([math.nan]), lambda: np.zeros(5000), lambda: np.eye(1, 5000, 2500)[0],
    lambda: np.array(["a"]), lambda: np.array([{}, 1], object), lambda: np.array([1 + 2j]), lambda: np.longdouble(0.1),
    lambda: np.array([0.1], np.longdouble), lambda: np.datetime64("2026-01-01"), lambda: np.zeros(0), lambda: np.zeros((0, 2)),
    lambda: torch.tensor([1, 2]), lambda: torch.tensor([1.0, 2.0]), lambda: torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    lambda: torch.zeros(5000), lambda: torch.eye(5000)[2500].clone(), lambda: torch.eye(3).to_sparse(), lambda: torch.eye(3),
    lambda: torch.nn.Parameter(torch.ones(7)), lambda: torch.zeros(2, dtype=torch.complex64),
    lambda: range(3), lambda: range(4), lambda: slice(3), lambda: datetime.date(2026, 1, 1), lambda: datetime.timedelta(1),
    lambda: datetime.datetime(2026, 1, 1), lambda: decimal.Decimal("0.1"), lambda: decimal.Decimal("0.2"),
    lambda: fractions.Fraction(1, 3), lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2), lambda: collections.deque([1]),
    lambda: collections.deque([2]), lambda: collections.deque([1], maxlen=3), lambda: ValueError("a"), lambda: ValueError("b"),
    lambda: KeyError("a"), lambda: itertools.count(1), lambda: itertools.count(2), lambda: Ellipsis, lambda: list[int],
    lambda: list[str], lambda: torch.nn.Linear(2, 2, bias=False, device="cpu").half() and torch.nn.ReLU(),
    lambda: torch.nn.GELU(), lambda: torch.nn.GELU("tanh"), lambda: np.random.default_rng(1), lambda: np.random.default_rng(2),
]  # fmt: skip


def kept(value: Any) -> str:
    """What files keep of a parameter, as lists and comparisons see it."""
    text = json_text(plain_params({"v": value}))
    import json

    again = from_json(json.loads(text))
    flat = to_json(flatten(again))
    assert canonical(to_json(flatten(from_json(to_json(again))))) == canonical(flat)
    return canonical(flat)


def test_no_two_different_values_are_kept_alike_and_the_same_twice_is_kept_the_same() -> None:
    seen: dict[str, int] = {}
    for place, make in enumerate(MAKE):
        first, second = kept(make()), kept(make())
        assert first == second, make()
        assert first not in seen, (make(), MAKE[seen[first]]())
        seen[first] = place


def test_the_hash_tells_the_same_apart_or_refuses() -> None:
    seen: dict[str, int] = {}
    for place, make in enumerate(MAKE):
        try:
            digest, again = BaseParams({"v": [make()]}).hash(), BaseParams({"v": [make()]}).hash()
        except UsageError as refused:
            assert refused.slug == "no-stable-hash"  # lambdas, and what only closures tell
            continue
        assert digest == again, make()
        if digest in seen:  # parameters are a mapping, whatever class of ours holds them
            assert {type(make()), type(MAKE[seen[digest]]())} == {dict}, (make(), MAKE[seen[digest]]())
        seen[digest] = place


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0), (0.0, -0.0), (np.float64(0.5), 0.5), (np.bool_(True), True), (np.int8(3), 3), ([0.0], [-0.0]),
        ({1: 2}, {1.0: 2}), ({1, 2}, frozenset({2, 1})), (b"a", bytearray(b"a")), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.array([0.0]), np.array([-0.0])), (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.tensor([0.0], dtype=torch.bfloat16), torch.tensor([-0.0], dtype=torch.bfloat16)),
        (np.array([0j]), np.array([complex(-0.0, -0.0)])), (math.nan, -math.nan),
        (BaseParams(lr=1), {"lr": 1}), (optim("SGD", lr=1), {"name": "SGD", "lr": 1}),
        (torch.ones(2, requires_grad=True), torch.ones(2)), (np.arange(6)[::2], np.array([0, 2, 4])),
    ],
)  # fmt: skip
def test_what_is_equal_is_kept_the_same(a: Any, b: Any) -> None:
    assert kept(a) == kept(b)
    assert same(a, b)


@pytest.mark.parametrize("make", [object, Failing, lambda: torch.zeros(2, device="meta"), lambda: iter_of_itself(),
                                  lambda: (i for i in range(3)), lambda: threading.Lock()])  # fmt: skip
def test_what_nothing_can_be_read_of_is_the_same_as_nothing_else(make: Callable[[], Any]) -> None:
    one, two = make(), make()
    assert kept(one) != kept(two)
    found = described({"v": one})["v"]
    assert isinstance(found, Described | list)
    assert "unknown" in str(found)


def iter_of_itself() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers())
TEXTS = st.one_of(
    st.text(),
    st.sampled_from(
        ["1", "True", "$type", "$tuple", "None", "a b", '"1"', "on", "[1]", "", '"[1]"', "[True]"]
    ),
)
LEAVES = st.one_of(
    NUMBERS, TEXTS, st.binary(), st.frozensets(st.integers()), st.dates(), st.decimals(allow_nan=False), st.uuids(),
    st.sampled_from([Colour.RED, Mood.RED, torch.float32, torch.int8, torch.device("cpu"), Path("a"), S.Cos, len]),
    st.builds(S.Cos, st.integers(0, 2), st.integers(0, 2)), st.builds(S.Linear, st.integers(0, 2), st.integers(0, 2)),
    st.builds(One, st.integers(0, 3)), st.builds(Two, st.integers(0, 3)),
)  # fmt: skip
KEYS = st.one_of(
    TEXTS.filter(lambda k: "." not in k), st.integers(), st.booleans(), st.none(), st.binary(max_size=3)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(One, inner),
    ),
    max_leaves=6,
)


def equal(a: Any, b: Any) -> bool:
    """`==`, with not-a-number equal to itself and True apart from 1: as is documented."""
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a is b
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and all(
            any(equal(k, other) and equal(v, b[other]) for other in b) for k, v in a.items()
        )
    if isinstance(a, One | Two) and type(a) is type(b):
        return equal(a.x, b.x)
    if isinstance(a, float | complex) and isinstance(b, float | complex) and a != a and b != b:
        return repr(a).replace("-nan", "nan") == repr(b).replace("-nan", "nan")
    return bool(a == b)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, VALUES)
@example({"a": 1, "$type": "One"}, One(1))
@example({1: 0, "1": 1}, {"1": 0, 1: 1})
def test_kept_differs_exactly_where_the_values_differ(a: Any, b: Any) -> None:
    numbers = isinstance(a, int | float | complex | decimal.Decimal)
    if numbers and type(a) is not type(b) and {type(a), type(b)} != {int, float}:
        return  # 1 == 1+0j == Decimal(1): kept by what they are
    assert (kept(a) == kept(b)) == equal(a, b), (a, b)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_the_same_value_is_kept_the_same_twice(value: Any) -> None:
    import copy

    assert kept(value) == kept(copy.deepcopy(value))
    once = described({"v": value})
    assert described(once) == once


PROGRAM = """
import sys
from luxmeter.described import described, canonical
from luxmeter.files import to_json
class Thing:
    def __init__(self): self.tags = {"a", "b", "c", "d"}
    def __repr__(self): return f"Thing({self.tags})"
def f(x): return x
print(canonical(to_json(described([{"a", "b", "c"}, Thing(), f, lambda x: x + 1, str({"k": f}) and None]))))
print(described(Thing()))
"""


def test_another_process_keeps_the_same() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1 and "unknown" not in said.pop()


def test_a_function_defined_anew_is_another(tmp_path: Path) -> None:
    """As in a notebook: the same name in `__main__`, other code."""
    done = subprocess.run(
        [sys.executable, "-c",
         "from luxmeter.described import described\n"
         "from luxmeter import BaseParams\n"
         "def f(x): return x\n"
         "class A:\n  def go(self): return 1\n"
         "one, hash_one = described([f, A, A()]), BaseParams(f=f, a=A()).hash()\n"
         "def f(x): return -x\n"
         "class A:\n  def go(self): return 2\n"
         "two, hash_two = described([f, A, A()]), BaseParams(f=f, a=A()).hash()\n"
         "print([a != b for a, b in zip(one, two)], hash_one != hash_two)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[True, True, True] True\n"


def test_a_description_reads_well_and_survives_copies() -> None:
    import copy
    import pickle

    found = described({"p": Path("data/x"), "t": torch.float32, "c": Colour.RED, "s": {2, 1}, "b": b"x"})
    assert [str(v) for v in found.values()] == ["data/x", "torch.float32", "Colour.RED", "{1, 2}", "b'x'"]
    for value in found.values():
        assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
        assert from_json(to_json(value)) == value
        assert str(value) != value and value != str(value)
