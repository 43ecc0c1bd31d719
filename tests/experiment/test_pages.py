"""The pages on parameters, meters and logs print what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def pieces() -> list[tuple[str, int]]:
    return [
        (page, i)
        for page in ("params.md", "meters-and-logs.md")
        for i, (kind, text) in enumerate(blocks(page))
        if kind == "python" and not text.startswith("# train.py")
    ]


@pytest.mark.parametrize(("page", "index"), pieces())
def test_python(
    page: str, index: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    every = blocks(page)
    Path("example.py").write_text(every[index][1])
    runpy.run_path("example.py", run_name="__main__")
    shown = re.sub(r"^\d\d:\d\d:\d\d ", "HH:MM:SS ", capsys.readouterr().out, flags=re.MULTILINE)
    kind, expected = every[index + 1]
    assert kind == "text"
    assert shown == expected


def test_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    every = blocks("params.md")
    program = next(text for kind, text in every if kind == "python" and text.startswith("# train.py"))
    Path("train.py").write_text(program)
    commands = 0
    for kind, text in every:
        if kind != "console":
            continue
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            commands += 1
            assert command.startswith("python train.py ")
            runnable = command.replace("python", f"'{sys.executable}'", 1)
            done = subprocess.run(["bash", "-c", runnable], capture_output=True, text=True)
            assert done.stdout == expected, command
    assert commands == 3
