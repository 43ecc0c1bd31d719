"""`key=value`: read by what it replaces, refused where it does not fit."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest
import torch

from luxmeter.errors import UsageError
from luxmeter.train import PyConfig
from luxmeter.train.config.overrides import parse_overrides, read_like


class Mode(enum.Enum):
    TRAIN = 1
    EVAL = 2


@pytest.mark.parametrize(
    ("text", "old", "value"),
    [
        ("3", 1, 3), ("-3", 1, -3), ("1e3", 1, 1000), ("3.0", 1, 3),
        ("3", 0.5, 3.0), ("1e-3", 0.5, 0.001), ("inf", 0.5, float("inf")),
        ("1.10", "1.0", "1.10"), ("007", "x", "007"), ("none", "x", "none"), ("a=b", "x", "a=b"), ("", "x", ""), ("true", "x", "true"),
        ("true", False, True), ("off", True, False), ("0", True, False), ("Yes", False, True),
        ("none", 1, None), ("None", [1], None), ("null", True, None),
        ("1", None, 1), ("x", None, "x"), ("[1, 2]", None, [1, 2]), ("none", None, None),
        ("1,2,3", [4], [1, 2, 3]), ("[1, 2]", [4], [1, 2]), ("5", [4], [5]), ("[]", [4], []), ("", [4], []),
        ("0.8,1", (0.9, 0.99), (0.8, 1.0)), ("(1, 2)", (0, 0), (1, 2)), ("1,2", (0.5, 1), (1.0, 2.0)),
        ("a,1.10", ["x"], ["a", "1.10"]), ("'a, b', c", ["x"], ["a, b", "c"]), ("true,no", [False], [True, False]),
        ("[1, a, 2.5]", [], [1, "a", 2.5]), ("[[1, 2], [3]]", [[0]], [[1, 2], [3]]), ("1,a", [1, "b"], [1, "a"]),
        ('{"a": 1}', {"b": 2}, {"a": 1}), ("{1, 2}", None, "{1, 2}"), ("1,2", {5}, {1, 2}),
        ("b.txt", Path("a.txt"), Path("b.txt")), ("EVAL", Mode.TRAIN, Mode.EVAL), ("2", Mode.TRAIN, Mode.EVAL),
        ("bfloat16", torch.float16, torch.bfloat16), ("torch.int8", torch.float16, torch.int8),
        ("cuda:1", torch.device("cpu"), torch.device("cuda:1")), ("Adam", torch.optim.SGD, "Adam"),
    ],
)  # fmt: skip
def test_a_text_is_read_by_what_it_replaces(text: str, old: Any, value: Any) -> None:
    read = read_like(text, old)
    assert read == value and type(read) is type(value)
    if isinstance(value, list | tuple):
        assert [type(one) for one in read] == [type(one) for one in value]


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        ("abc", 1, "a whole number"), ("1.5", 1, "a whole number"), ("true", 1, "a whole number"), ("inf", 1, "a whole number"),
        ("nan", 1, "a whole number"), ("abc", 0.5, "a number"), ("true", 0.5, "a number"), ("007", 0.5, "a number"),
        ("maybe", True, "true or false"), ("2", True, "true or false"),
        ("1,x", [1], "'x' is in it. Give a whole number for each."), ("1.5", (1, 2), "for each"), ("[1", [1], "a list"),
        ("x", {"a": 1}, "key.inner=value"), ("[1]", {"a": 1}, "JSON"),
        ("TEST", Mode.TRAIN, "one of TRAIN, EVAL"), ("float17", torch.float16, "a dtype"), ("nowhere", torch.device("cpu"), "a device"),
        ("1", 1 + 2j, "no text stands for such a value"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit(text: str, old: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        read_like(text, old)


CONFIG = """\
lr = 0.1
width: int | None = None
ratio: float = 1
name: str = None
data = dict(
    train=dict(batch_size=4, shuffle=True),
    sizes=[1, 2],
    stages=[dict(n=1), dict(n=2)],
)
point = (1, 2)
labels = {0: "cat"}
"""


@pytest.fixture
def path() -> Path:
    path = Path("a.py")
    path.write_text(CONFIG)
    return path


def values(path: Path, *overrides: str) -> dict[str, Any]:
    return PyConfig.fromfile(path, overrides).values


def test_keys_inside(path: Path) -> None:
    found = values(
        path, "data.train.batch_size=8", "data.sizes.1=5", "data.stages.0.n=7", "point.0=3", "labels.0=dog"
    )
    assert found["data"] == {
        "train": {"batch_size": 8, "shuffle": True}, "sizes": [1, 5], "stages": [{"n": 7}, {"n": 2}],
    }  # fmt: skip
    assert found["point"] == (3, 2) and found["labels"] == {0: "dog"}


def test_a_declared_type_counts_before_the_value(path: Path) -> None:
    found = values(path, "width=3", "ratio=2", "name=1.10")
    assert found["width"] == 3 and found["name"] == "1.10"
    assert found["ratio"] == 2.0 and type(found["ratio"]) is float
    with pytest.raises(
        UsageError, match=r"a\.py:2: width is None and cannot be 'wide'\. Give a value of type"
    ):
        values(path, "width=wide")


def test_presets_of_every_training(path: Path) -> None:
    config = PyConfig.fromfile(path, ["epoch=3", "device=meta"])
    assert config.params.epoch == 3 and config.params.device == "meta" and "eidx" not in config.values
    with pytest.raises(UsageError, match=r"epoch cannot be 'many' \(epoch=many\)\. Give a whole number"):
        values(path, "epoch=many")
    with pytest.raises(UsageError, match="override-unknown"):
        values(path, "global_step=3")


def test_new_keys(path: Path) -> None:
    found = values(
        path, "+seed=3", "+data.train.num_workers=2", "+data.sizes.2=9", '+loss={"type": "MSELoss"}'
    )
    assert (
        found["seed"] == 3
        and found["data"]["train"]["num_workers"] == 2
        and found["data"]["sizes"] == [1, 2, 9]
    )
    assert found["loss"] == {"type": "MSELoss"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("wheels=3", "a.py has no 'wheels' (wheels=3). It has lr, width, ratio, name, data, point, labels, epoch, device, seed. "
                     "A new one is written +wheels=3. [override-unknown]"),
        ("dta.sizes=3", "a.py has no 'dta' (dta.sizes=3). Did you mean 'data'? [override-unknown]"),
        ("data.trian.shuffle=0", "a.py:5: data has no 'trian' (data.trian.shuffle=0). Did you mean 'data.train'? [override-unknown]"),
        ("data.train.batchsize=0", "a.py:6: data.train has no 'batchsize' (data.train.batchsize=0). Did you mean "
                                   "'data.train.batch_size'? A new one is written +data.train.batchsize=0. [override-unknown]"),
        ("data.sizes.2=0", "a.py:7: data.sizes has no '2' (data.sizes.2=0). It has 0, 1. A new one is written "
                           "+data.sizes.2=0. [override-unknown]"),
        ("+data.sizes.4=0", "a.py:7: data.sizes has no '4' (+data.sizes.4=0). It has 0, 1."),
        ("+data.trian.x=0", "a.py:5: data has no 'trian' (+data.trian.x=0). Did you mean 'data.train'? [override-unknown]"),
        ("lr.inner=0", "a.py:1: lr is 0.1, so lr.inner=0 can set nothing inside. Write lr=... for the whole of it."),
        ("+lr=0", "a.py:1: lr is there already, so +lr=0 adds nothing. Write lr=0 to change it. [override-not-new]"),
        ("+data.train.shuffle=0", "a.py:6: data.train.shuffle is there already"),
        ("data=0", "a.py:5: data is {'train': {'batch_size': 4, 'shuffle': True}, 'sizes': [1... and cannot be '0'. Name one"),
        ("lr", "'lr' changes no key of the config. Write key=value"),
        ("=3", "'=3' changes no key"), ("a..b=3", "'a..b=3' changes no key"), ("a b=3", "'a b=3' changes no key"),
    ],
)  # fmt: skip
def test_what_is_refused(path: Path, word: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        values(path, word)
    assert str(error.value).startswith(said), error.value


def test_overrides_in_python_are_taken_as_they_are(path: Path) -> None:
    sizes = [7]
    config = PyConfig.fromfile(path, {"lr": "a text", "data.sizes": sizes, "+new": (1,)})
    assert (
        config.values["lr"] == "a text"
        and config.values["data"]["sizes"] == [7]
        and config.values["new"] == (1,)
    )
    config.values["data"]["sizes"].append(8)
    assert sizes == [7]
    with pytest.raises(UsageError, match="override-unknown"):
        PyConfig.fromfile(path, {"data.sise": 1})


def test_later_ones_count_and_a_whole_dict_replaces_all(path: Path) -> None:
    found = values(path, "lr=0.3", 'data.train={"batch_size": 1}', "data.train.batch_size=2", "lr=0.4")
    assert found["lr"] == 0.4 and found["data"]["train"] == {"batch_size": 2}


def test_a_type_may_differ_between_files() -> None:
    """What decides is the value that the name has in the end."""
    Path("base.py").write_text("lr = None\nhalf = None if lr is None else lr / 2\n")
    Path("a.py").write_text("from base import *\nlr = 0.1\n")
    assert values(Path("a.py"), "lr=3") == {"lr": 3.0, "half": 1.5}
    with pytest.raises(UsageError, match=r"a\.py:2: lr is 0\.1 and cannot be 'x'"):
        values(Path("a.py"), "lr=x")


def test_how_an_override_is_shown() -> None:
    assert [str(one) for one in parse_overrides(["a.b=1 2", "+c=x=y"])] == ["a.b=1 2", "+c=x=y"]
    assert [str(one) for one in parse_overrides({"a": 1, "+c": "x"})] == ["a=1", "+c='x'"]
