"""The hash of parameters: the same everywhere for the same values, different for different ones."""

from __future__ import annotations

import datetime
import enum
import functools
import json
import math
import os
import subprocess
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import pytest
import torch

from luxmeter import BaseParams, Params
from luxmeter.errors import UsageError
from luxmeter.experiment.params.schedules import CosSchedule, LinearSchedule


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


DIFFERENT: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 1e300, math.nan, math.inf, "", "1", "a", "None", b"a", 1j, [1, 2], (1, 2), [2, 1],
    [[1], 2], [1, [2]], [12], ["1,2"], {1, 2}, {1: 2}, {"1": 2}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": {"b": 1}},
    {"a.b": 1}, np.array([1, 2]), np.array([2, 1]), np.array([[1, 2]]), np.array([1, 2], dtype=np.int8),
    np.array([1.0, 2.0]), np.array(["a"]), np.array(["b"]), np.array([{}, 1], dtype=object), np.zeros(2000),
    np.eye(1, 2000, 1000)[0], torch.tensor([1, 2]), torch.tensor([2, 1]), torch.tensor([1.0, 2.0]),
    torch.tensor([1.0, 2.0], dtype=torch.bfloat16), torch.zeros(0), torch.zeros(0, 2), torch.tensor(1.0),
    torch.zeros(2000), torch.eye(2000)[0], torch.eye(3).to_sparse(), torch.float32, torch.float16,
    torch.device("cpu"), torch.device("cuda:1"), Path("a"), Path("b"), Colour.RED, Colour.BLUE, len, print, int, Plain,
    Plain(1), Plain(2), CosSchedule(0, 1, 0, 5), CosSchedule(0, 1, 0, 6), LinearSchedule(0, 1, 0, 5), range(3), range(4),
    datetime.date(2026, 11, 15), datetime.timedelta(1), functools.partial(int, base=2), functools.partial(int, base=3),
    np.dtype("int8"), json, "abc".upper, "abd".upper,
]  # fmt: skip


def test_different_values_have_different_hashes() -> None:
    hashes = {}
    for value in DIFFERENT:
        p = BaseParams()
        p["outer.value"] = value
        digest = p.hash()
        assert len(digest) == 32
        assert digest not in hashes, (value, hashes[digest])
        hashes[digest] = value


def test_equal_values_have_equal_hashes() -> None:
    def digest(value: Any) -> str:
        return BaseParams(v=[value]).hash()

    base = np.arange(12).reshape(3, 4)
    pairs: list[tuple[Any, Any]] = [
        (1, 1.0), (0.0, -0.0), (math.nan, -math.nan), (np.float64(0.5), 0.5), (np.int8(3), 3), (base.T, base.T.copy()),
        (base[:, ::2], base[:, ::2].copy()), (base.astype(">i4"), base.astype("<i4")),
        (torch.arange(6).reshape(2, 3).T, torch.arange(6).reshape(2, 3).T.contiguous()),
        (torch.ones(2, requires_grad=True), torch.ones(2)), (torch.ones(4)[:2], torch.ones(2)),
        (PurePosixPath("a/b"), PureWindowsPath("a\\b")), ({1, 2, 3}, {3, 2, 1}), (Plain([1]), Plain([1])),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ]  # fmt: skip
    for a, b in pairs:
        assert digest(a) == digest(b), (a, b)


def test_the_order_of_setting_does_not_count_but_the_level_does() -> None:
    a, b = BaseParams(x=1, y={"z": 2}), BaseParams(y={"z": 2}, x=1)
    assert a.hash() == b.hash()
    assert a.hash() != BaseParams(x=1, y={}, z=2).hash()
    assert a.hash() != BaseParams(x=1, y={"zz": 2}).hash()
    before = a.hash()
    a.y.z = 3
    assert a.hash() != before


PROGRAM = """
import torch, numpy as np, pathlib
from luxmeter import Params
from luxmeter.experiment.params.schedules import CosSchedule
p = Params(device="cpu", names={"a", "b", "c"}, w=torch.arange(5).float() / 3, a=np.linspace(0, 1, 7))
p.optim = {"lr": 0.1, "betas": (0.9, 0.999)}
p.where = pathlib.Path("data/x")
p.schedule = CosSchedule(0.1, 0.0, 0, 100)
p.loss = torch.nn.functional.cross_entropy
print(p.hash())
"""


def test_the_hash_is_the_same_in_other_processes_and_never_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        check=True,
    )
    exec(PROGRAM, {})
    # Written down: runs are found again by it, so a new version of the program must give the same.
    assert done.stdout == capsys.readouterr().out == "e3848178463cacff6a6607d34e8046e9\n"


@pytest.mark.parametrize(
    "value", [lambda x: x, object(), torch.zeros(2, device="meta")], ids=["lambda", "object", "meta"]
)
def test_what_has_no_stable_hash_is_refused(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        BaseParams(v=value).hash()
    assert caught.value.slug == "no-stable-hash"


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="holds itself"):
        BaseParams(v=loop).hash()


def test_a_value_that_comes_twice_is_no_loop() -> None:
    part = [1]
    assert BaseParams(v=[part, part]).hash() == BaseParams(v=[[1], [1]]).hash()


def test_presets_count() -> None:
    assert Params(epoch=3).hash() != Params(epoch=4).hash()
