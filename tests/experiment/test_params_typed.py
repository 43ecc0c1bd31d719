"""Declared parameters: annotated class attributes, checked by pydantic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field

from luxmeter import BaseParams, Params
from luxmeter.errors import MissingNameError, UsageError


class Optim(BaseParams):
    lr: float = 0.1
    name: Literal["sgd", "adam"] = "sgd"


class Train(Params):
    """Trains a small net.

    The rest of this text is not part of the help.
    """

    KIND: ClassVar[str] = "train"

    lr: float = Field(0.01, gt=0, description="learning rate")
    layers: list[int] = [1, 2]
    note: str = ""
    tag: str | None = None
    width: int | str = 3
    debug: bool = False
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.5
    optim: Optim
    epoch: int = 400

    def warm(self) -> int:
        return self.epoch // 10


def test_defaults_order_and_methods() -> None:
    p = Train()
    assert list(p)[:6] == ["epoch", "eidx", "idx", "global_step", "device", "lr"]
    assert p.epoch == 400
    assert p.optim.lr == 0.1
    assert p.warm() == 40
    assert Train.KIND == p.KIND == "train"


def test_objects_share_no_default() -> None:
    a, b = Train(), Train()
    a.layers.append(3)
    a.optim.lr = 5
    assert b.layers == [1, 2]
    assert b.optim.lr == 0.1


def test_types_are_checked_on_every_set() -> None:
    p = Train()
    p.lr = "0.5"  # type: ignore[assignment]
    assert p.lr == 0.5
    for name, wrong in [
        ("lr", "fast"),
        ("lr", 0),
        ("dropout", 2),
        ("layers", ["a"]),
        ("epoch", 1.5),
        ("optim", 3),
    ]:
        before = p[name]
        with pytest.raises(UsageError, match=f"{name} cannot be") as caught:
            p[name] = wrong
        assert caught.value.slug == "wrong-type"
        assert p[name] == before
    with pytest.raises(UsageError):
        p.optim.name = "sgdd"  # type: ignore[assignment]
    with pytest.raises(UsageError):
        p.optim = {"name": "sgdd"}  # type: ignore[assignment]
    p.optim = {"name": "adam"}  # type: ignore[assignment]
    assert isinstance(p.optim, Optim)
    assert p.optim == {"lr": 0.1, "name": "adam"}


def test_new_names_in_code_are_allowed_until_locked() -> None:
    p = Train()
    p.extra = 1
    p.lock()
    with pytest.raises(UsageError):
        p.more = 2


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("--lr=1e-3", "lr", 1e-3),
        ("--lr=1", "lr", 1.0),
        ("--layers=[3,4]", "layers", [3, 4]),
        ("--layers=3,4", "layers", [3, 4]),
        ("--layers=(3,)", "layers", [3]),
        ("--note=007", "note", "007"),
        ("--note=3", "note", "3"),
        ("--note=none", "note", "none"),
        ("--note=[1,2]", "note", "[1,2]"),
        ('--note="q"', "note", '"q"'),
        ("--tag=3", "tag", "3"),
        ("--tag=none", "tag", None),
        ("--width=7", "width", 7),
        ("--width=auto", "width", "auto"),
        ("--debug", "debug", True),
        ("--debug=on", "debug", True),
        ("--debug=0", "debug", False),
        ("--no-debug", "debug", False),
        ("--epoch=1e3", "epoch", 1000),
        ("--epoch=007", "epoch", 7),
        ("--optim.name=adam", "optim.name", "adam"),
        ('--optim={"lr": 3}', "optim.lr", 3.0),
    ],
)
def test_on_the_command_line_the_declared_type_decides(argument: str, name: str, value: Any) -> None:
    read = Train().from_args([argument])[name]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--batch=3", "batch .* is not a parameter of Train"),
        ("--epochs=3", "Did you mean 'epoch'"),
        ("--optim.lrr=3", "Did you mean 'optim.lr'"),
        ("--optm.lr=3", "Did you mean 'optim'"),
        ("--optim.momentum=3", "not a parameter of Optim"),
        ("--lr=fast", "lr cannot be 'fast'"),
        ("--lr=-1", "lr cannot be"),
        ("--lr", "--lr on the command line has no value"),
        ('--optim={"lrr": 3}', "Did you mean 'optim.lr'"),
    ],
)
def test_on_the_command_line_what_is_wrong_is_refused_and_nothing_changes(
    argument: str, message: str
) -> None:
    p = Train()
    before = repr(p)
    with pytest.raises(UsageError, match=message):
        p.from_args(["--debug", argument])
    assert repr(p) == before


class Required(BaseParams):
    data: str
    size: int = 3


def test_a_declared_name_without_default_must_be_given() -> None:
    p = Required()
    with pytest.raises(MissingNameError):
        _ = p.data
    with pytest.raises(UsageError, match="--data="):
        p.from_args(["--size=4"])
    assert Required().from_args(["--data=x"]).data == "x"


class Open(BaseParams, takes_new_names=True):
    size: int = 3
    plain = 5


def test_a_class_can_say_that_it_takes_new_names() -> None:
    p = Open().from_args(["--other=1", "--plain=x"])
    assert p == {"size": 3, "plain": "x", "other": 1}
    with pytest.raises(UsageError):
        Open().from_args(["--sise=4"])


def test_types_of_the_function_around_and_types_defined_later() -> None:
    class Local(BaseParams):
        value: int = 1

    class Outer(BaseParams):
        local: Local
        later: Later

    class Later(BaseParams):
        x: int = 2

    assert Outer.__mro__[1] is BaseParams
    with pytest.raises(UsageError) as caught:
        Outer()
    assert caught.value.slug == "unknown-type"

    class Fine(BaseParams):
        local: Local
        later: Later

    assert Fine().later.x == 2


def test_wrong_defaults_are_found() -> None:
    class Wrong(BaseParams):
        lr: float = "fast"  # type: ignore[assignment]

    with pytest.raises(UsageError, match="lr cannot be 'fast'"):
        Wrong()


HELP = """\
usage: train.py [--NAME=VALUE ...] [@FILE ...]

Trains a small net.

parameters (Train):
  --data=str             where the images are (required)
  --lr=float             learning rate (default: 0.01)
  --debug=bool           (default: False)
  --optim.lr=float       (default: 0.1)
  --optim.name=sgd|adam  (default: sgd)
  --depth=int            (default: 18; allowed: 18, 50)

Other names are refused. @FILE reads a YAML, TOML or JSON file.
"""


def test_help_is_made_from_the_declared_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    script = tmp_path / "train.py"
    script.write_text(
        "from typing import Literal\n"
        "from pydantic import Field\n"
        "from luxmeter import BaseParams\n"
        "class Optim(BaseParams):\n"
        "    lr: float = 0.1\n"
        "    name: Literal['sgd', 'adam'] = 'sgd'\n"
        "class Train(BaseParams):\n"
        "    '''Trains a small net.'''\n"
        "    data: str = Field(description='where the images are')\n"
        "    lr: float = Field(0.01, description='learning rate')\n"
        "    debug: bool = False\n"
        "    optim: Optim\n"
        "p = Train()\n"
        "p.choice('depth', 18, 50)\n"
        "p.from_args()\n"
        "print('never reached')\n"
    )
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == HELP
