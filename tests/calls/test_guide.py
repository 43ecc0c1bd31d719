"""docs/tracing.md: its snippets run, its options exist, its output is of the kind that the example prints."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import luxmeter as lux
from luxmeter.calls.options import TraceOptions

ONE_CORE = "what the page says is held against the core that a reader has"

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "tracing.md").read_text(encoding="utf-8")


def part(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    lines = [line for line in part(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.fixture
def names() -> dict[str, Any]:
    """What the page's first snippet takes for granted, and what it leaves behind."""
    net = Net()
    found: dict[str, Any] = {"net": net, "nn": nn, "x": torch.randn(32, 8), "y": torch.randint(0, 4, (32,))}
    found["optimizer"] = torch.optim.Adam(net.parameters())
    exec(re.findall(r"```python\n(.*?)```", part("Trace a piece of code"), re.DOTALL)[0], found)
    return found


def test_the_output_is_of_the_kind_shown() -> None:
    shown = part("Trace a piece of code").split("```\n")[2].splitlines()
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "trace.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    shown, printed = (_without_places(lines) for lines in (shown, done.stdout.splitlines()))
    assert _kinds(shown) == _kinds(printed[: len(shown)])


def _without_places(lines: list[str]) -> list[str]:
    """Where the time outside went, and whether that is worth a word, is another matter in each run."""
    return [line for line in lines if not line.startswith(("outside the calls", "  "))]


def _kinds(lines: list[str]) -> list[list[str]]:
    """Names and counts, without times: in an order that does not hang on them."""
    times = re.compile(r"[\d,.]+ (?:s|ms|us|ns)\b,?|(?<!\S)[\d,]+\.\d+%?,?(?!\S)")
    return sorted(times.sub("", line).split() for line in lines)


def test_everything_to_look_at_is_there(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    codes = [code for _, cell in rows("Look at it") for code in re.findall(r"`([^`]+)`", cell)]
    assert len(codes) >= 14
    for code in codes:
        if code.startswith('"'):
            assert len(names["t"].table(eval(code))) > 0, code
        else:
            exec(code, names)
    assert "Tensor.backward" in capsys.readouterr().out


def test_every_option_exists_and_works(tmp_path: Path) -> None:
    known = {field.name for field in fields(TraceOptions)}
    told = [code for cell, _ in rows("Choose what is recorded") for code in re.findall(r"`([^`]+)`", cell)]
    assert {code.partition("=")[0] for code in told} == known
    values = {
        "only": "['torch.add']",
        "skip": "['torch.add']",
        "also": "['json']",
        "lines_in": "['json']",
        "max_signatures": "16",
        "max_pending": "100_000",
        "waits_for": "None",
        "framework": "'torch'",
    }
    for number, code in enumerate(told):
        option, _, value = code.partition("=")
        if option == "keep":
            value = repr(str(tmp_path / f"{number}-{eval(value)}"))
        with eval(f"lux.trace({option}={values.get(option, value)})", {"lux": lux}) as t:
            torch.add(torch.ones(2), 1.0)
        assert option in ("sample", "skip", "budget") or t.table()["torch.add"].n == 1, code


def test_what_is_kept_is_read_again(names: dict[str, Any]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", part("Keep it"), re.DOTALL)
    lines = code.splitlines()
    exec("\n".join(lines[:2]), names)
    for folder in ("rank-0", "rank-1"):
        shutil.copytree("my-trace", folder)
    exec(lines[2], names)
    assert lux.load_trace("rank-0", "rank-1").table()["torch.nn.Linear"].n == 80
