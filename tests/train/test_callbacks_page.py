"""docs/callbacks.md: its programs print what it says, its table has every callback with its options and its priority."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import traceback
from pathlib import Path

import pytest
import torch

import luxmeter.train
from luxmeter.train.callbacks.callback import HOOKS

PAGE = (Path(__file__).parents[2] / "docs" / "callbacks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def settled(text: str) -> list[str]:
    """Lines without what differs from run to run: ids, folders, times."""
    text = re.sub(r"\S*/runs/[2-9b-z]{5}-\d+-\d+/", "LAB/runs/ID/", text)
    text = re.sub(r"\b[2-9b-z]{5}-\d{8}-\d{6}\b", "ID", text)
    text = re.sub(r"^\d\d:\d\d:\d\d ", "HH:MM:SS ", text, flags=re.MULTILINE)
    text = re.sub(r"in \d:\d\d:\d\d$", "in TIME", text, flags=re.MULTILINE)
    text = re.sub(r'File "\S*/(?=\w+\.py)', 'File "', text)
    text = re.sub(r", line \d+, in", ", line N, in", text)
    text = re.sub(r"\d+(\.\d+)? (ms|s|min \d+ s)(?= \|)", "TIME", text)
    text = re.sub(r"torch [0-9][^ ]*", "torch VERSION", text)
    return text.splitlines()


def expect(shown: str, printed: str) -> None:
    """Every line that the page shows was printed, in this order; where it says `...`, others came between."""
    lines, at, may_skip = settled(printed), 0, False
    for line in settled(shown):
        if line == "...":
            may_skip = True
            continue
        assert line in lines[at:], f"{line!r} is not among\n" + "\n".join(lines[at:])
        found = lines.index(line, at)
        assert may_skip or found == at, f"{lines[at]!r} came before {line!r}"
        at, may_skip = found + 1, False


def output(capsys: pytest.CaptureFixture[str], file: str, *words: str) -> str:
    """What a program prints, run in this process; an error's traceback included."""
    failed = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [file, *words])
        patch.setattr(sys, "path", list(sys.path))
        try:
            runpy.run_path(file, run_name="__main__")
        except Exception as error:
            failed = "".join(traceback.format_exception(error))
    torch.autograd.set_detect_anomaly(False)
    return capsys.readouterr().out + failed


def console(command: str) -> str:
    [found] = [text for kind, text in BLOCKS if kind == "console" and text.startswith(f"$ {command}\n")]
    return found.partition("\n")[2]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_the_training(capsys: pytest.CaptureFixture[str], own_lab: Path) -> None:
    [program] = [text for kind, text in BLOCKS if kind == "python" and text.startswith("# train.py\n")]
    Path("train.py").write_text(program)
    expect(console("python train.py"), output(capsys, "train.py"))
    [report] = own_lab.glob("runs/*/files/report.md")
    expect(
        next(text for kind, text in BLOCKS if kind == "text" and text.startswith("# line")),
        report.read_text(),
    )
    expect(console("python train.py --lr 100"), output(capsys, "train.py", "--lr", "100"))
    [replay] = own_lab.glob("runs/*/files/nan-000009/replay.py")
    expect(console("python LAB/runs/ID/files/nan-000009/replay.py"), output(capsys, str(replay)))
    sys.modules.pop("replayed_train")


def test_a_callback_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    at = next(i for i, (kind, text) in enumerate(BLOCKS) if kind == "python" and "class Weights" in text)
    Path("tiny.py").write_text(BLOCKS[at][1])
    assert output(capsys, "tiny.py") == BLOCKS[at + 1][1]


def test_the_table_is_complete() -> None:
    told = dict(re.findall(r"^\| `(\w+)\(([^`]*)\)` \| \d+ \|", PAGE, re.MULTILINE))
    priorities = dict(re.findall(r"^\| `(\w+)\([^`]*\)` \| (\d+) \|", PAGE, re.MULTILINE))
    door = luxmeter.train
    known = {
        name: value
        for name in door.__all__
        if isinstance(value := getattr(door, name), type)
        and issubclass(value, door.Callback)
        and value is not door.Callback
    }
    assert told.keys() == known.keys()
    for name, kind in known.items():
        assert int(priorities[name]) == kind.priority, name
        options = {}
        if "__init__" in vars(kind):
            parameters = inspect.signature(kind).parameters.values()
            options = {
                one.name: repr(one.default)
                for one in parameters
                if one.kind is not one.VAR_KEYWORD and one.name != "clock"
            }
        shown = dict(part.split("=", 1) for part in re.split(r", (?=\w+=)", told[name]) if "=" in part)
        shown = {key: value.removesuffix(", **settings").replace('"', "'") for key, value in shown.items()}
        assert shown == options, name
    assert [int(number) for number in priorities.values()] == sorted(map(int, priorities.values()))


def test_every_hook_is_told() -> None:
    part = PAGE.split("## Write one", 1)[1]
    told = {
        name: given for name, given in re.findall(r"`(\w+)\(trainer(?:, (\w+))?\)`", part) if name in HOOKS
    }
    assert told == {name: given[0] if given else "" for name, given in HOOKS.items()}
