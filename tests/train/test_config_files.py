"""Python config files: what is a value, inheritance by imports, values that follow, and where each came from."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from luxmeter.errors import UsageError
from luxmeter.train import PyConfig


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def refused(name: str, *overrides: str) -> str:
    with pytest.raises(UsageError) as error:
        PyConfig.fromfile(name, overrides)
    return str(error.value)


def test_values_and_what_is_none() -> None:
    write(
        "a.py",
        """\
        import os
        from math import pi
        from pathlib import Path as P
        lr = 0.1
        first, second = 1, "two"
        Sizes = list[int]
        _private = object()
        class Net: ...
        def make(): return lr
        square = lambda x: x * x
        for i in range(3):
            total = i
        with open(__file__) as file:
            length = len(file.read()) > 0
        if lr > 0:
            sign = +1
        area = pi * 2
        gone = 1
        del gone
        """,
    )
    config = PyConfig.fromfile("a.py")
    assert config.values == {
        "lr": 0.1, "first": 1, "second": "two", "total": 2, "length": True, "sign": 1, "area": 6.283185307179586,
    }  # fmt: skip
    assert config.params.lr == 0.1 and config.params.epoch == 10  # a Params, with its presets
    assert "lr" in repr(config)


def test_it_gives_a_tree_of_parameters() -> None:
    write(
        "a.py", "optimizer = dict(type='SGD', lr=0.1)\nlabels = {0: 'cat', 1: 'dog'}\ncopy = 3\nepoch = 4\n"
    )
    params = PyConfig.fromfile("a.py").params
    assert params.optimizer.lr == params["optimizer.lr"] == 0.1
    assert params.labels == {0: "cat", 1: "dog"} and params["copy"] == 3 and params.epoch == 4
    params.optimizer.lr = 0.5
    assert PyConfig.fromfile("a.py").params.optimizer.lr == 0.1


def test_nothing_is_left_behind() -> None:
    write("a.py", "from base import *\nfrom .inner.deep import depth\nimport whole\nwidth = whole.width\n")
    write("base.py", "lr = 0.1\n")
    write("inner/deep.py", "depth = 3\n")
    write("whole.py", "width = 8\n")
    before, path = set(sys.modules), list(sys.path)
    config = PyConfig.fromfile("a.py")
    assert config.values == {"lr": 0.1, "depth": 3, "width": 8}
    assert set(sys.modules) == before and sys.path == path
    assert not list(Path.cwd().rglob("__pycache__"))
    assert [file.name for file in config.files] == ["base.py", "deep.py", "whole.py", "a.py"]


def test_files_of_one_name_do_not_mix() -> None:
    for folder, lr in (("one", 0.1), ("two", 0.2)):
        write(f"{folder}/base.py", f"lr = {lr}\n")
        write(f"{folder}/a.py", "from base import *\n")
        write(f"{folder}/b.py", "from .base import lr as rate\n")
    assert PyConfig.fromfile("one/a.py").values == {"lr": 0.1}
    assert PyConfig.fromfile("two/a.py").values == {"lr": 0.2}
    assert PyConfig.fromfile("two/b.py").values == {"rate": 0.2}
    write("both.py", "from one.a import lr as first\nfrom two.a import lr as second\n")
    assert PyConfig.fromfile("both.py").values == {"first": 0.1, "second": 0.2}


def test_ways_to_import() -> None:
    write("shared/__init__.py", "seed = 7\n")
    write("shared/data.py", "batch = 4\n__all__ = ['batch']\nhidden = 1\n")
    write("more/one.py", "n = 1\n")
    write(
        "experiments/deep/a.py",
        """\
        from ...shared.data import *
        from ...shared import seed
        from ... import more_values as _more
        from ...more import one
        from json import dumps
        n = one.n + _more.n
        """,
    )
    write("more_values.py", "n = 41\n")
    assert PyConfig.fromfile("experiments/deep/a.py").values == {"batch": 4, "seed": 7, "n": 42}


def test_standard_modules_are_not_hidden_by_files() -> None:
    write("random.py", "raise RuntimeError\n")
    write("a.py", "import random\nlr = 0.1 if random.random() < 2 else 0\n")
    assert PyConfig.fromfile("a.py").values == {"lr": 0.1}


def test_a_file_runs_once_for_all_that_import_it() -> None:
    write("base.py", "model = dict(depth=1)\n")
    write("left.py", "from base import *\nmodel['depth'] += 1\n")
    write("right.py", "from base import model\nseen = model['depth']\n")
    write("a.py", "from left import *\nfrom right import seen\n")
    # One module, as in Python, for those that hold nothing in it.
    assert PyConfig.fromfile("a.py").values == {"model": {"depth": 2}, "seen": 2}
    assert PyConfig.fromfile("a.py").values["seen"] == 2  # and none is left for the next config


# -- values that refer to others ---------------------------------------------------------------------------------------


BASE = """\
lr = 0.1
epoch = 10
name = f"mlp_{lr}"
optimizer = dict(type="SGD", lr=lr)
warmup = dict(lr=optimizer["lr"] / 10, of=epoch * 2)
def scaled():
    return lr * 100
scale = scaled()
steps = [epoch * i for i in (1, 2)]
"""


def test_what_is_derived_follows_an_override() -> None:
    write("base.py", BASE)
    values = PyConfig.fromfile("base.py", ["lr=0.2", "epoch=3"]).values
    assert values == {
        "lr": 0.2, "epoch": 3, "name": "mlp_0.2", "optimizer": {"type": "SGD", "lr": 0.2},
        "warmup": {"lr": 0.02, "of": 6}, "scale": 20.0, "steps": [3, 6],
    }  # fmt: skip


def test_what_is_derived_follows_a_dotted_override() -> None:
    write("base.py", BASE + "again = optimizer\ntwin = dict(optimizer)\n")
    values = PyConfig.fromfile("base.py", ["optimizer.lr=0.5", "+optimizer.nesterov=true"]).values
    assert values["lr"] == 0.1 and values["warmup"]["lr"] == 0.05
    assert (
        values["optimizer"]
        == values["again"]
        == values["twin"]
        == {"type": "SGD", "lr": 0.5, "nesterov": True}
    )


def test_an_override_stays_whatever_the_file_does_later() -> None:
    write(
        "a.py",
        "lr = 0.1\nlr *= 2\nhalf = lr / 2\noptimizer = dict(lr=lr)\noptimizer['lr'] = 7.0\noptimizer['wd'] = 0.0\n",
    )
    assert PyConfig.fromfile("a.py").values == {"lr": 0.2, "half": 0.1, "optimizer": {"lr": 7.0, "wd": 0.0}}
    values = PyConfig.fromfile("a.py", ["lr=0.5", "optimizer.lr=3", "optimizer.wd=1"]).values
    assert values == {"lr": 0.5, "half": 0.25, "optimizer": {"lr": 3.0, "wd": 1.0}}


def test_two_names_for_one_dict_can_be_overridden_apart() -> None:
    write("a.py", "train = dict(size=4)\neval = train\ntest = train\n")
    values = PyConfig.fromfile("a.py", ["train.size=8", "eval.size=2"]).values
    assert values == {"train": {"size": 8}, "eval": {"size": 2}, "test": {"size": 8}}


def test_the_files_that_a_config_imports_follow_too() -> None:
    write("base.py", BASE)
    write("small.py", "from base import *\ndevice = 'cpu'\n")
    values = PyConfig.fromfile("small.py", ["lr=0.2"]).values
    assert values["optimizer"]["lr"] == 0.2 and values["scale"] == 20.0 and values["device"] == "cpu"
    write("taken.py", "from base import optimizer, lr as rate\n")
    assert PyConfig.fromfile("taken.py", ["rate=0.3"]).values == {
        "optimizer": {"type": "SGD", "lr": 0.3},
        "rate": 0.3,
    }


def test_a_plain_value_of_a_file_holds_in_those_it_imports() -> None:
    """As if the base had been run with that override; an expression of what was imported is plain Python."""
    write("base.py", BASE)
    write("middle.py", "from base import *\nepoch = 50\n")
    write("top.py", "from middle import *\nlr = 0.3\n")
    values = PyConfig.fromfile("top.py").values
    assert values["warmup"] == {"lr": 0.03, "of": 100} and values["steps"] == [50, 100]
    values = PyConfig.fromfile("top.py", ["epoch=2"]).values  # the command line counts more
    assert values["warmup"] == {"lr": 0.03, "of": 4} and values["epoch"] == 2
    write("twice.py", "from base import *\nlr = lr * 2\n")
    values = PyConfig.fromfile("twice.py").values
    assert values["lr"] == 0.2 and values["optimizer"]["lr"] == 0.1
    write("before.py", "lr = 9\nfrom base import *\n")
    assert PyConfig.fromfile("before.py").values["lr"] == 0.1


def test_a_dict_of_a_file_replaces_only_there() -> None:
    """What reads a key of the one it replaces would not find it."""
    write("base.py", "optimizer = dict(lr=0.1, momentum=0.9)\nhalf = optimizer['momentum'] / 2\n")
    write("a.py", "from base import *\noptimizer = dict(lr=0.2)\n")
    assert PyConfig.fromfile("a.py").values == {"optimizer": {"lr": 0.2}, "half": 0.45}


def test_an_error_says_what_is_held() -> None:
    write("base.py", "lr = 0.1\nhalf = lr / 2\n")
    write("a.py", "from base import *\nlr = 'fast'\n")
    assert "base.py:2 (of half): TypeError: unsupported operand" in (said := refused("a.py"))
    assert said.endswith("(lr is held by a.py:2). Correct that line of the config. [config-failed]")
    write("b.py", "n = 3\nshare = 1 / n\n")
    assert "ZeroDivisionError: division by zero (n is held by n=0)." in refused("b.py", "n=0")


def test_names_that_are_not_taken_over_are_not_held() -> None:
    write("base.py", "lr = 0.1\noptimizer = dict(lr=lr)\n")
    write("a.py", "from base import optimizer\nlr = 5\n")
    assert PyConfig.fromfile("a.py").values == {"optimizer": {"lr": 0.1}, "lr": 5}
    write("b.py", "from base import optimizer\n")
    said = refused("b.py", "lr=3.0")
    assert said.startswith("b.py has no 'lr' (lr=3.0): it is in base.py alone, base.py:1.")
    assert "from base import lr" in said and "[override-unknown]" in said


# -- where ---------------------------------------------------------------------------------------------------------------


def test_every_key_knows_its_file_and_line() -> None:
    write("base.py", "common = dict(\n    shuffle=True,\n    workers=2,\n)\nlr = 0.1\n")
    write(
        "a.py",
        """\
        from base import *
        data = dict(
            train={
                "batch": 4,
                **common,
            },
            eval=dict(common, batch=8),
            stages=[
                dict(n=1),
                dict(n=2),
            ],
        )
        data["test"] = dict(batch=1)
        data["train"]["batch"] = 5
        data.update(extra=dict(
            deep=1))
        model = net = dict(width=1)
        """,
    )
    config = PyConfig.fromfile("a.py", ["+data.added=1", "lr=0.2"])
    found = {
        key: config.where(key)
        for key in (
            "data", "data.train", "data.train.batch", "data.eval.batch", "data.stages.1.n", "data.test.batch",
            "data.extra.deep", "common.workers", "net.width", "data.stages.7",
        )
    }  # fmt: skip
    assert found == {
        "data": "a.py:2", "data.train": "a.py:3", "data.train.batch": "a.py:14", "data.eval.batch": "a.py:7",
        "data.stages.1.n": "a.py:10", "data.test.batch": "a.py:13", "data.extra.deep": "a.py:16",
        "common.workers": "base.py:3", "net.width": "a.py:17", "data.stages.7": "a.py:8",
    }  # fmt: skip
    assert config.where("lr") == "the override lr=0.2"
    assert config.where("data.added") == "the override +data.added=1"


def test_a_key_of_a_dict_that_has_a_name_of_its_own() -> None:
    write(
        "a.py",
        "common = dict(\n    lr=1,\n)\ntrain = common\nnested = dict(inner=common)\nwide = {**common}\n",
    )
    config = PyConfig.fromfile("a.py")
    assert [config.where(k) for k in ("train.lr", "nested.inner.lr", "wide.lr")] == ["a.py:2"] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lr = 1\noptimizer = dict(\n    lr=lrr)\n", "a.py:3 (of optimizer): NameError: name 'lrr' is not defined."),
        ("lr = (\n", "a.py:1: '(' was never closed: lr = (."),
        ("def f():\n    return 1 / 0\n\nlr = f()\n", "a.py:2 (of lr): ZeroDivisionError: division by zero."),
        ("from bsae import *\n", "a.py:1: No module named 'bsae'. Did you mean 'base'."),
        ("from .bsae import *\n", "a.py:1: There is no file bsae to import in .. Did you mean 'base'."),
        ("\nfrom base import lrs\n", "a.py:2: base.py has no 'lrs'. Did you mean 'lr'."),
        ("\nfrom broken import *\n", "broken.py:2 (of lr): TypeError: "),
        ("from torch import nothing_such\n", "a.py:1: cannot import name 'nothing_such' from 'torch'"),
        ("rng = object()\n", "a.py:1: rng cannot be kept in a config: it is a object."),
        ("data = dict(\n  f=lambda: 1)\n", "a.py:2: data.f cannot be kept in a config: no module gives the function <lambda>"),
        ("a = {}\na['a'] = a\n", "a.py:2: a.a.a cannot be kept in a config: it holds itself"),
        ("\nepoch = 'many'\n", "a.py:2: epoch cannot be 'many': Input should be a valid integer"),
        ("import luxmeter\nx = luxmeter.Params().nothing\n", "a.py:2 (of x): Params has no parameter 'nothing'."),
    ],
)  # fmt: skip
def test_every_error_says_file_line_and_key(text: str, said: str) -> None:
    write("base.py", "lr = 0.1\n")
    write("broken.py", "x = 1\nlr = x + 'a'\n")
    write("a.py", text)
    message = refused("a.py")
    assert message.startswith(said), message
    assert "\n" not in message


def test_files_that_import_each_other() -> None:
    write("a.py", "from b import *\n")
    write("b.py", "x = 1\nfrom a import *\n")
    assert refused("a.py").startswith(
        "b.py:2: the files import each other in a circle: a.py -> b.py -> a.py."
    )


def test_no_config() -> None:
    write("small.py", "")
    assert "No such file or directory. Did you mean 'small.py'? [config-unreadable]" in refused("smal.py")
    assert "[config-unreadable]" in refused("absent/small.py")
    assert "is no Python file by its suffix '.yaml'" in refused("small.yaml")
    assert PyConfig.fromfile("small.py").values == {}


def test_classes_of_a_config_know_their_file(tmp_path: Path) -> None:
    """What a file defines works as in a module: functions see its names, imports inside functions find its neighbours."""
    write("numbers_of.py", "n = 3\n")
    write(
        "a.py",
        """\
        from __future__ import annotations
        from dataclasses import dataclass
        import luxmeter as lux
        class P(lux.BaseParams):
            width: int = 2
        @dataclass
        class Shape:
            a: int = 1
        def later():
            from .numbers_of import n
            return n + P().width
        value = later()
        kind = dict(type=Shape)
        """,
    )
    config = PyConfig.fromfile("a.py")
    assert config.values["value"] == 5
    made: Any = config.params.kind.type()
    assert made.a == 1
