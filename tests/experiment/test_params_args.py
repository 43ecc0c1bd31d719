"""The command line and the environment of free parameters, and who wins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from luxmeter import BaseParams, Params
from luxmeter.errors import UsageError
from luxmeter.experiment.params.level import near_miss


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("0.01", 0.01), ("0.10", 0.1), ("1e-3", 1e-3), ("(1,2)", (1, 2)), ("[1,2]", [1, 2]),
        ("2026-11-15", "2026-11-15"), ("12e4567", "12e4567"), ("007", "007"), ("on", "on"), ("true", True),
        ("none", None), ("-5", -5), ("", ""), ("a=b", "a=b"), ('"3"', "3"), ("__import__('os')", "__import__('os')"),
    ],
)  # fmt: skip
def test_without_a_declared_type_the_text_says_what_it_is(text: str, value: Any) -> None:
    read = Params().from_args([f"--new={text}"]).new
    assert read == value
    assert type(read) is type(value)


def test_the_forms_of_an_option() -> None:
    p = Params(flag=True, off=False, batch_size=1).from_args(
        ["--a=1", "--b", "2", "c=3", "--neg", "-4", "--half", "-.5", "--d.e.f=6", "--off", "--no-flag",
         "--batch-size=7", "--last"]
    )  # fmt: skip
    assert p.flat() | {"device": ""} == {
        "epoch": 10, "eidx": 1, "idx": 0, "global_step": 0, "device": "", "flag": False, "off": True,
        "batch_size": 7, "a": 1, "b": 2, "c": 3, "neg": -4, "half": -0.5, "d.e.f": 6, "last": True,
    }  # fmt: skip


def test_a_flag_does_not_swallow_the_next_argument() -> None:
    p = BaseParams(debug=False, lr=1).from_args(["--debug", "lr=2"])
    assert p == {"debug": True, "lr": 2}
    assert BaseParams(debug=True).from_args(["--debug", "false"]).debug is False


def test_an_option_that_needs_a_value_gets_one() -> None:
    with pytest.raises(UsageError, match="--lr=VALUE"):
        BaseParams(lr=0.1).from_args(["--lr"])
    with pytest.raises(UsageError):
        Params().from_args(["--epoch", "--lr=3"])


def test_the_last_of_two_wins() -> None:
    assert Params().from_args(["--epoch=1", "--epoch=2"]).epoch == 2


@pytest.mark.parametrize("stray", ["train", "-x", "--", "=3", "-x=3"])
def test_stray_arguments_are_refused(stray: str) -> None:
    with pytest.raises(UsageError):
        Params().from_args([stray])


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("--epochs=3", "epoch"), ("--epcoh=3", "epoch"), ("--Epoch=3", "epoch"), ("--devcie=cpu", "device"),
        ("--globalstep=1", "global_step"), ("--optim.lrr=1", "optim.lr"), ("--optmi.lr=1", "optim"),
        ("--optim.momentun=1", "optim.momentum"), ("--bacthsize=1", "batch_size"),
    ],
)  # fmt: skip
def test_a_near_miss_is_always_refused(argument: str, meant: str) -> None:
    p = Params(optim={"lr": 0.1, "momentum": 0.9}, batch_size=3)
    before = repr(p)
    with pytest.raises(UsageError, match=f"Did you mean '{meant}'"):
        p.from_args(["--fine=1", argument])
    assert repr(p) == before


def test_new_names_are_taken() -> None:
    p = Params(layer1=1, lr=0.1).from_args(
        ["--layer2=2", "--lr2=3", "--weight_decay=0", "--optim.wd=1", "--seed=5"]
    )
    assert (p.layer2, p.lr2, p.weight_decay, p.optim.wd, p.seed) == (2, 3, 0, 1, 5)


def test_new_names_may_look_like_each_other() -> None:
    p = Params().from_args(["--train_dir=a", "--train_dirs=b", "--net.width=1", "--net.widths=2"])
    assert (p.train_dir, p.train_dirs, p.net) == ("a", "b", {"width": 1, "widths": 2})


def test_nothing_is_set_below_a_plain_value() -> None:
    p = BaseParams(a=1, b=None)
    with pytest.raises(UsageError, match="a is 1"):
        p.from_args(["--a.b=2"])
    assert p.from_args(["--b.c=2"]).b == {"c": 2}


def test_locked_parameters_take_no_new_name_from_the_command_line() -> None:
    with pytest.raises(UsageError, match="locked"):
        Params().lock().from_args(["--seed=5"])


def test_bounds_hold_on_the_command_line() -> None:
    p = Params()
    p.choice("net", "a", "b")
    with pytest.raises(UsageError):
        p.from_args(["--net=c"])
    assert p.from_args(["--net=b"]).net == "b"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("epoch", ["epoch"], None), ("lr", ["wd"], None), ("seed", ["epoch"], None), ("lrr", ["lr"], "lr"),
        ("layer3", ["layer2"], None), ("batch", ["batch_size"], None), ("ephoc", ["epoch"], "epoch"), ("idx", ["eidx"], "eidx"),
    ],
)  # fmt: skip
def test_near_misses(name: str, known: list[str], meant: str | None) -> None:
    assert near_miss(name, known) == meant


def test_environment() -> None:
    variables = {
        "APP_EPOCH": "7", "APP_OPTIM__LR": "0.5", "APP_BATCH_SIZE": "3", "APP_NEW__DEEP": "on", "PATH": "/bin", "APP_": "x",
    }  # fmt: skip
    p = Params(optim={"lr": 0.1}, batch_size=1).from_env("APP_", environ=variables)
    assert (p.epoch, p.optim.lr, p.batch_size, p.new.deep) == (7, 0.5, 3, "on")
    assert "path" not in p
    with pytest.raises(UsageError, match="the environment"):
        Params().from_env("APP_", environ={"APP_EPOCHS": "3"})


def test_environment_without_prefix_reads_only_known_names() -> None:
    p = Params().from_env("", environ={"EPOCH": "7", "PATH": "/bin"})
    assert p.epoch == 7
    assert "path" not in p


def test_real_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAMS_EPOCH", "9")
    assert Params().from_env().epoch == 9


@pytest.fixture
def file() -> Path:
    path = Path("p.yaml")
    path.write_text("a: file\nb: file\nc: file\nd: file\nn:\n  x: file\n  y: file\n")
    return path


ENVIRON = {"P_B": "env", "P_C": "env", "P_D": "env", "P_N__X": "env"}
ARGUMENTS = ["--c=args", "--d=args"]


def test_defaults_file_environment_command_line_code(file: Path) -> None:
    p = BaseParams(z="default", a="default", b="default", c="default", d="default")
    p.from_file(file).from_env("P_", environ=ENVIRON).from_args(ARGUMENTS)
    p.d = "code"
    assert p == {
        "z": "default", "a": "file", "b": "env", "c": "args", "d": "code", "n": {"x": "env", "y": "file"},
    }  # fmt: skip


def test_the_order_of_the_sources_does_not_matter(file: Path) -> None:
    p = BaseParams(z="default", a="default", b="default", c="default", d="default")
    p.from_args(ARGUMENTS)
    p.d = "code"
    p.n = {"x": "code"}
    p.from_env("P_", environ=ENVIRON).from_file(file)
    assert p == {
        "z": "default", "a": "file", "b": "env", "c": "args", "d": "code", "n": {"x": "code", "y": "file"},
    }  # fmt: skip


def test_what_code_sets_below_after_the_command_line_stays(file: Path) -> None:
    p = BaseParams(n={"x": "default", "y": "default"}, a="default").from_args(["--a=args"])
    p.n.x = "code"
    assert p.from_file(file).n == {"x": "code", "y": "file"}


def test_what_code_sets_before_the_command_line_is_a_default(file: Path) -> None:
    p = BaseParams(a=1)
    p.a = 2
    assert p.from_args(["--a=3"]).a == 3
    p = BaseParams(a=1).from_file(file)
    p.a = "code"
    assert p.from_args(["--a=3"]).a == 3
    assert p.choice("a", 1, 3) == 3  # a bound declared late does not undo the command line
    with pytest.raises(UsageError):
        p.arange("a", 0, -1, 1)


def test_a_file_named_on_the_command_line_stands_below_it(file: Path) -> None:
    p = BaseParams().from_args(["--a=args", "@p.yaml"])
    assert p.a == "args"
    assert p.b == "file"


def test_program(tmp_path: Path) -> None:
    script = tmp_path / "p.py"
    script.write_text("from luxmeter import BaseParams\np = BaseParams(epoch=1)\np.from_args()\nprint(p)\n")

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(script), *argv], capture_output=True, text=True)

    assert run("--epoch", "3").stdout == "BaseParams[('epoch', 3)]\n"
    wrong = run("--epochs", "3")
    assert wrong.returncode != 0
    assert "Did you mean 'epoch'?" in wrong.stderr
    shown = run("-h")
    assert shown.returncode == 0
    assert "--epoch=int" in shown.stdout
    assert "Other names are new parameters." in shown.stdout
