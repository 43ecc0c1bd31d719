"""The pages on configs and projects print what they say; times, ids and losses are this machine's."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import Command

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGING = [
    (r"\d\d:\d\d:\d\d INFO", "HH:MM:SS INFO"),
    (r"\d+:\d\d:\d\d", "H:MM:SS"),
    (r"\b[0-9a-hjkmnp-tv-z]{5}(-\d{8}-\d{6})?(?= (finished|failed|again)|:|\s+(epoch|name|train)| is\b| and\b|$)", "ID"),
    (r"((?:finished|failed|passed) in) [\d.]+ ?m?s", r"\1 T"),
    (r"memory: \d+", "memory: N"),
    (r"(\w+: )\d+\.\d+(e[+-]\d+)?", r"\1F"),
    (r"((train|eval)/\w+ )[\d.]+( -> [\d.]+ \([+-][\d.]+%\))?", r"\1F"),
]  # fmt: skip


def plain(text: str) -> str:
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def said(words: str, command: Command) -> str:
    if words.startswith("cd "):
        os.chdir(words[3:])
        return ""
    program, *rest = words.split()
    if program == "luxmeter":
        done = command(*rest)
        return done.out + done.err
    assert program == "python"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *rest, "-p", "no:cacheprovider"], capture_output=True, text=True, env=environment
    )
    return result.stdout


@pytest.mark.parametrize("page", ["configs.md", "project-template.md"])
def test_page(
    page: str, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    seen = 0
    for number, (kind, text) in enumerate(blocks):
        named = re.match(r"# (\w+\.py)\n", text)
        if kind == "python" and named:
            Path(named[1]).write_text(text)
        elif kind == "python":
            capsys.readouterr()
            Path("example_of_page.py").write_text(text)
            runpy.run_path("example_of_page.py")
            assert plain(capsys.readouterr().out) == plain(blocks[number + 1][1])
            seen += 1
        elif kind == "console":
            for words, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                assert plain(said(words, command)) == plain(expected), words
                seen += 1
    assert seen >= 8
