"""The page on resuming, rolling back, evaluating and controlling prints what it says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import luxmeter as lux
from luxmeter.errors import LuxmeterError
from luxmeter.experiment.reproduce import rerun
from luxmeter.train import Control, own_run, requests
from luxmeter.view.cli import build_app

PAGE = Path(__file__).parent.parent.parent / "docs" / "resume-evaluate-control.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def settled(text: str) -> str:
    """Without what differs from run to run and from machine to machine: ids, folders, times, measured numbers."""
    text = re.sub(rf"{re.escape(str(Path.cwd()))}/", "", text)
    text = re.sub(
        r"\b[2-9b-z]{5}(-\d{8}-\d{6})?\b(?= \(points|/eval| points:| to before|/files| finished|: epoch)",
        "ID",
        text,
    )
    text = re.sub(r"^\d\d:\d\d:\d\d ", "TIME ", text, flags=re.MULTILINE)
    text = re.sub(r"\d:\d\d:\d\d$|in [0-9.]+ m?s;", "TIME", text, flags=re.MULTILINE)
    return re.sub(r" +[-+(]*[0-9]*\.[0-9]+(e-\d+)?%?\)?", " N", re.sub(r"(?<=lr )0\.\d+", "RATE", text))


class Typed:
    """Commands of the page in this process: another Python for each would take seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        monkeypatch.setattr(rerun, "_wait", self.wait)

    def said(self, command: str) -> str:
        """What it prints, stdout and stderr as they come."""
        name, *words = shlex.split(command)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            if name == "python":
                self.execute(Path(words[0]).absolute(), words[1:])
                own_run.close_open()
            else:
                assert name == "luxmeter"
                try:
                    build_app()(words, standalone_mode=False)
                except LuxmeterError as error:
                    out.write(f"luxmeter: {error}\n")
        return out.getvalue()

    def execute(self, file: Path, argv: list[str]) -> None:
        main = ModuleType("__main__")
        main.__file__ = str(file)
        with self.patch.context() as patch:
            patch.setitem(sys.modules, "__main__", main)
            patch.setattr(sys, "argv", [str(file), *argv])
            exec(compile(file.read_text(), str(file), "exec"), main.__dict__)

    def wait(self, words: list[str], cwd: Path, variables: dict[str, str], *, output: int) -> int:
        with self.patch.context() as patch:
            patch.setattr(os, "environ", variables)
            patch.chdir(cwd)
            with contextlib.suppress(SystemExit):
                self.execute(Path(words[1]), words[2:])
            own_run.close_open()
        return 0


class AskedAt(lux.Callback):
    """Types commands when a step has come; whoever waits for an answer lets the training look."""

    priority = 94

    def __init__(self, step: int, commands: list[str], typed: Typed) -> None:
        self.step, self.commands, self.typed = step, commands, typed
        self.said: list[str] = []

    def after_batch(self, trainer: Any, result: Any) -> None:
        if trainer.position.done == self.step and not self.said:
            trainer.logger.set_level("fatal")
            control = trainer.callbacks.find(Control)
            self.typed.patch.setattr(requests, "sleep", lambda _: control._obey(trainer))
            self.said = [self.typed.said(command) for command in self.commands]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    monkeypatch.setenv("LUXMETER_HOME", str(Path.cwd() / ".luxmeter"))
    lux.Logger(
        "before"
    ).end_inline()  # one line is open on all the process's console: another test may have left it so
    yield Typed(monkeypatch)


def test_console(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    consoles = [COMMAND.findall(text) for kind, text in blocks if kind == "console"]
    Path("train.py").write_text(blocks[0][1])
    for command, expected in [pair for console in consoles[:3] for pair in console]:
        assert settled(typed.said(command)) == settled(expected), command
    asked = AskedAt(120, [command for command, _ in consoles[3]], typed)
    real = lux.Trainer.initial_callback
    monkeypatch.setattr(lux.Trainer, "initial_callback", lambda self: (real(self), asked.hook(self)))
    typed.said("python train.py epoch=100000")
    assert [settled(text) for text in asked.said] == [settled(expected) for _, expected in consoles[3]]
    assert [len(console) for console in consoles] == [2, 1, 3, 7]
    assert lux.runs()[0].state == "finished" and lux.runs()[0].metric("control/lr").values.tolist() == [0.01]
