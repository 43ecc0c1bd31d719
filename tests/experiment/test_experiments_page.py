"""The page on experiments prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "experiments.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def settled(text: str) -> str:
    """Without what differs from run to run: ids and durations."""
    text = re.sub(r"\b(luxmeter: \w+|against) [2-9b-z]{5}\b", r"\1 ID", text)
    return re.sub(r"in [0-9.]+ s;", "in TIME;", text)


def test_console() -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for kind, text in blocks:
        if kind == "python" and (named := re.match(r"# (\w+\.py)\n", text)):
            Path(named[1]).write_text(text)
    commands = 0
    for kind, text in blocks:
        if kind != "console":
            continue
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            commands += 1
            words = command.split()
            words[:1] = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=120
            )
            assert settled(done.stdout) == settled(expected), command
    assert commands == 5
