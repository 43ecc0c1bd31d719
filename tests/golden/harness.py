"""Runs a command over a copy of the inputs, in this process, and writes down what came of it, alike on every machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main

from luxmeter.view import cli

HERE = Path(__file__).parent
_LONG_AGO = 1_577_836_800  # 2020: files of the copy have rested long, whenever it was made
_WRITING: dict[str, Any] = {"encoding": "utf-8", "write_through": True}
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_ID = re.compile(r"\b[23456789bcdfghjkmnpqrstvwxz]{5}-\d{8}-\d{6}\b")
_MADE = re.compile(r"(luxmeter-rerun-)\w+")  # a temporary folder
_LONG = re.compile(r"-?\b\d+\.\d{11,}(?:e[-+]?\d+)?\b")  # what the last bits decide is the processor's
_TOOK = re.compile(r'("seconds": )[\d.e-]+')  # how long an analysis took
_KNOWN_IDS = {p.name for where in ("runs", "trash") for p in (HERE / "inputs" / "lab" / where).iterdir()}


_build = cli.build_app
_at_width = functools.cache(
    lambda command, columns: _build(command)
)  # help is laid out for the terminal's width
_parser = functools.cache(typer.main.get_command)


class Bench:
    """A fresh copy of the inputs as the current folder of a quiet, narrow, timeless world."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.work = root, root / "here"
        shutil.copytree(HERE / "project", self.work, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(HERE / "inputs", self.work, dirs_exist_ok=True)
        (self.work / "lab").rename(self.work / ".luxmeter")
        for path in self.work.rglob("*"):
            os.utime(path, (_LONG_AGO, _LONG_AGO))
        (root / "tmp").mkdir()
        for name, value in {
            "HOME": root / "home", "XDG_CONFIG_HOME": root / "home" / ".config", "TMPDIR": root / "tmp", "TZ": "UTC",
            "COLUMNS": 120, "LINES": 40, "NO_COLOR": 1, "TERM": "dumb", "LANG": "C.UTF-8", "PYTHONIOENCODING": "utf-8",
            "GIT_CEILING_DIRECTORIES": root,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, str(value))
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.chdir(self.work)
        # The name in "Usage:" is taken from how the process was started: as `luxmeter`.
        monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
        monkeypatch.setattr("sys.path", list(sys.path))
        # Parsers are made once, not for each of some hundred commands: a third of the time.
        monkeypatch.setattr(cli, "build_app", lambda command="": _at_width(command, os.environ["COLUMNS"]))
        monkeypatch.setattr(typer.main, "get_command", _parser)
        time.tzset()

    def transcript(self, lines: list[str]) -> str:
        """Each command line with its output and, if it is not 0, its exit code."""
        return "\n".join(self._said(line) for line in lines)

    def _said(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "cat":
            return f"$ {line}\n{self.plain(shown_file(self.work / words[1]))}"
        at = re.fullmatch(r"@(\d+)", words[0])
        code, out, err = self._on_terminal(int(at[1]), words[1:]) if at else self.luxmeter(*words)
        said = f"$ luxmeter {line}\n{out}"
        if err:
            said += "".join(f"stderr: {part}\n" for part in err.splitlines())
        return self.plain(said + (f"exit code {code}\n" if code else ""))

    def _on_terminal(self, width: int, words: list[str]) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            patch.setenv("TERM", "xterm")
            code, out, err = self.luxmeter(*words, screen=True)
        return code, _STYLE.sub("", out), _STYLE.sub("", err)

    def luxmeter(self, *words: str, screen: bool = False) -> tuple[int, str, str]:
        """Exit code, output and error output of a command, run in this process."""
        out, err = (_Screen if screen else io.TextIOWrapper)(io.BytesIO(), **_WRITING), _stream()
        before = sys.argv
        sys.argv = ["luxmeter", *words]
        code: Any = 0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                runpy.run_module("luxmeter", run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            sys.argv = before
        return int(code), _text(out), _text(err)

    def process(self, *words: str) -> tuple[int, str, str]:
        """The same of a command that becomes another program: in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "luxmeter", *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str) -> Any:
        """What a command says with --json."""
        code, out, err = self.luxmeter(*words, "--json")
        assert out, f"luxmeter {' '.join(words)} --json: exit code {code}, {err}"
        return json.loads(out)

    def plain(self, text: str) -> str:
        """Without what must differ: where the copy lies, the interpreter, ids made just now, the last digits of numbers."""
        text = text.replace(str(self.root), "<root>").replace(sys.executable, "<python>")
        text = _MADE.sub(r"\1<new>", _LONG.sub(lambda found: f"{float(found[0]):.12g}", text))
        text = _TOOK.sub(r"\1~", text)
        text = _ID.sub(lambda found: found[0] if found[0] in _KNOWN_IDS else "<new id>", text)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


class _Screen(io.TextIOWrapper):
    """What is written as to a terminal."""

    def isatty(self) -> bool:
        return True


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), **_WRITING)


def _text(stream: io.TextIOWrapper) -> str:
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()


def shown_file(path: Path) -> str:
    """A written file as text: pages tag by tag, tables as rows, pictures by what they say."""
    if path.suffix == ".html":
        return _page(path.read_text())
    if path.suffix == ".svg":
        words = re.findall(r"<!-- (.*?) -->|<text[^>]*>(.*?)</text>", path.read_text())
        return "\n".join(drawn or written for drawn, written in words)
    if path.suffix == ".png":
        head = path.read_bytes()[:24]
        return f"PNG {int.from_bytes(head[16:20])} x {int.from_bytes(head[20:24])}"
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        fields = [f"{field.name}: {field.type}" for field in table.schema]
        return "\n".join([*fields, *(json.dumps(row, default=str) for row in table.to_pylist())])
    if path.suffix == ".json":
        return json.dumps(json.loads(path.read_text()), indent=1)
    return path.read_text()


def _page(text: str) -> str:
    """One tag a line; data as JSON; of programs and styles their digest."""
    # What all pages share is not held here: styles, the script, and the policy that names both by their hash.
    text = re.sub(r"<style>.*?</style>", "<style>...</style>", text, flags=re.DOTALL)
    text = re.sub(r'(<script type="module">).*?(</script>)', r"\1...\2", text, flags=re.DOTALL)
    text = re.sub(r"'sha256-[^']*'", "'sha256-...'", text)

    def body(found: re.Match[str]) -> str:
        opening, inner, closing = found.groups()
        with contextlib.suppress(ValueError):
            return f"{opening}\n{json.dumps(json.loads(inner), indent=1)}\n{closing}"
        return f"{opening}sha256 {hashlib.sha256(inner.encode()).hexdigest()[:16]}{closing}"

    text = re.sub(r"(<(?:script|style)[^>]*>)(.*?)(</(?:script|style)>)", body, text, flags=re.DOTALL)
    return re.sub(r">\s*<", ">\n<", text)
