"""Tab in a shell: the protocol as the shells speak it, in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import luxmeter as lux
from luxmeter.store import KINDS, Lab, host_name, put_result, results_into
from luxmeter.view.cli import build_app
from luxmeter.view.completion import _KINDS, complete_run

HEAVY = ("sqlalchemy", "torch", "pyarrow", "duckdb", "numpy", "rich")
# As the entry point does it, and then says what it had to import.
PROGRAM = f"""
import atexit, sys
sys.argv[0] = "luxmeter"
atexit.register(lambda: sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules)))
from luxmeter.view.cli import main
main()
"""


@pytest.fixture
def lab() -> Lab:
    return Lab.open(Path.cwd() / ".luxmeter")


def made(lab: Lab, name: str) -> str:
    with lab.create_run(name) as run:
        return run.id


def tab(line: str, shell: str = "bash") -> tuple[list[str], str]:
    """What is offered behind this line, and what was imported for it."""
    said = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)} if shell == "bash" else {}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **said, "_LUXMETER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line},
    )  # fmt: skip
    assert "Traceback" not in done.stderr and done.returncode == 0
    return [word for word in done.stdout.split("\n") if word], done.stderr


def test_runs_are_offered_and_nothing_heavy_is_imported(lab: Lab) -> None:
    one, two = made(lab, "mnist"), made(lab, "cifar")
    lux.runs()  # now the index has these
    three = made(lab, "svhn")  # and this one not yet
    offered, imported = tab("luxmeter show ")
    assert (
        set(offered) == {"latest", "latest~1", one, two, three, "mnist", "cifar", "svhn"} and imported == ""
    )
    assert offered.index(three) < min(offered.index(one), offered.index(two))
    assert tab(f"luxmeter diff {one} ci")[0] == ["cifar"]
    assert tab("luxmeter rm mnist cifar sv")[0] == ["svhn"]
    assert tab("luxmeter ar")[0] == ["archive"]  # a command, as ever


def test_what_a_run_holds_is_offered(lab: Lab) -> None:
    run = made(lab, "mnist")
    folder = lab.folder / "runs" / run
    with results_into(folder):
        put_result("bench", "made up", "bench.json", lambda path: Path(path).write_text("{}"))
    assert complete_run("mnist/") == [("mnist/bench", "")]
    assert complete_run("latest/be") == [("latest/bench", "")]
    assert complete_run(f"{run}/tr") == [] and complete_run("nobody/") == []
    assert _KINDS == KINDS


def test_names_that_a_shell_would_obey_are_not_offered(lab: Lab) -> None:
    made(lab, "$(touch owned)")
    run = made(lab, "a b`touch owned`\"'")
    lux.runs()
    offered, _ = tab("luxmeter show ", "zsh")
    text = "\n".join(offered)
    assert run in text and "touch" in text and not set("$`") & set(text) and "a b?touch owned?" in text
    assert {word for word, _ in complete_run("")} >= {run, "latest"}
    assert all(" " not in word for word, _ in complete_run(""))


def test_tags_are_offered_and_archived_runs_are_not(lab: Lab) -> None:
    one, two = made(lab, "mnist"), made(lab, "old")
    lab.find(one).tag("best")
    lab.find(two).archive()
    lux.runs()
    words = [word for word, _ in complete_run("")]
    assert "best" in words and one in words


def test_without_a_lab_and_with_a_damaged_one(lab: Lab) -> None:
    run = made(lab, "mnist")
    lux.runs()
    index = lab.folder / "index" / f"{host_name()}.sqlite"
    for suffix in ("-wal", "-shm"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)
    index.write_bytes(b"no database" * 1000)
    assert run in tab("luxmeter show ")[0]  # from the folders
    damaged = made(lab, "half")
    (lab.folder / "runs" / damaged / "run.json").write_text("{")
    offered, _ = tab("luxmeter show ")
    assert run in offered and damaged not in offered
    shutil.rmtree(lab.folder)
    assert tab("luxmeter show ")[0] == []


def parameters() -> list[tuple[str, Any]]:
    group: Any = typer.main.get_command(build_app())
    commands = {**group.commands}
    for name, inner in group.commands.items():
        commands |= {f"{name} {other}": each for other, each in getattr(inner, "commands", {}).items()}
    return [(name, parameter) for name, command in commands.items() for parameter in command.params]


def test_runs_are_offered_wherever_one_can_be_named(lab: Lab) -> None:
    run = made(lab, "mnist")
    takes_a_run = [
        (name, parameter)
        for name, parameter in parameters()
        if parameter.metavar in ("RUN", "TRACE")
        or re.search(r"\blatest\b|^The run: id", parameter.help or "")
    ]
    without = []
    for name, parameter in takes_a_run:
        with click.Context(click.Command(name), resilient_parsing=True) as context:
            if run not in [item.value for item in parameter.shell_complete(context, run[:4])]:
                without.append(f"{name} {parameter.opts[0]}")
    assert len(takes_a_run) > 25 and without == ["eval --checkpoint"]  # which names a checkpoint


def test_it_can_be_installed(own_home: Path) -> None:
    named = {
        **os.environ,
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }  # the shell is named, not looked for
    program = [sys.executable, "-c", PROGRAM]
    shown = subprocess.run([*program, "--show-completion", "bash"], capture_output=True, text=True, check=True, env=named)  # fmt: skip
    assert "_LUXMETER_COMPLETE=complete_bash" in shown.stdout
    subprocess.run([*program, "--install-completion", "bash"], capture_output=True, check=True, env=named)
    assert any("_LUXMETER_COMPLETE" in path.read_text() for path in own_home.rglob("*.sh"))
