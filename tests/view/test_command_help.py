"""`luxmeter --help`: commands in their groups, whole sentences, the terminal's width, words for what options take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from luxmeter.view.cli import COMMANDS, build_app


def shown(*, columns: int) -> str:
    """As a person sees it: typer's test runner has a width of its own."""
    env = {**os.environ, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "luxmeter", "--help"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_every_command_is_in_one_group() -> None:
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    named = [name for group in COMMANDS.values() for name in group]
    assert sorted(named) == sorted(commands) and len(set(named)) == len(named)


@pytest.mark.parametrize("name", [name for group in COMMANDS.values() for name in group])
def test_one_command_alone_is_the_same(name: str) -> None:
    alone: Any = typer.main.get_command(build_app(name))
    whole: Any = typer.main.get_command(build_app())
    assert name in alone.commands
    assert [p.opts for p in alone.commands[name].params] == [p.opts for p in whole.commands[name].params]


def test_groups_and_whole_sentences() -> None:
    said = shown(columns=100)
    titles = re.findall(r"^(\w+):$", said, re.MULTILINE)
    assert titles == ["Options", *COMMANDS]
    assert "..." not in said.partition("Measure:")[2]
    assert max(map(len, said.splitlines())) <= 100


def test_it_is_as_wide_as_the_terminal() -> None:
    narrow, wide = (shown(columns=n) for n in (70, 108))
    assert max(map(len, narrow.splitlines())) <= 70 < max(map(len, wide.splitlines())) <= 108


def test_what_an_option_takes_is_a_word() -> None:
    """Not `<list[str]>`: no Python type."""
    app = build_app()
    for name in (name for group in COMMANDS.values() for name in group):
        said = CliRunner().invoke(app, [name, "--help"]).output
        assert not re.search(r"<(str|int|float|path|list)|list\[", said), name
