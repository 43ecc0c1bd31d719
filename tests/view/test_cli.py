"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from luxmeter import __version__
from luxmeter.store import Lab


def luxmeter(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "luxmeter", *args], capture_output=True, text=True, check=False
    )


def test_version_and_help() -> None:
    assert luxmeter("--version").stdout == f"luxmeter {__version__}\n"
    text = luxmeter("--help").stdout
    for verb in ("doctor", "init", "config", "reindex", "gc"):
        assert verb in text


def commands() -> list[str]:
    import typer

    from luxmeter.view.cli import build_app

    return sorted(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", commands())
def test_every_command_shows_an_example(verb: str) -> None:
    done = luxmeter(verb, "--help")
    assert done.returncode == 0
    assert f"luxmeter {verb}" in done.stdout.partition("Example:")[2], "its --help shows no example"


def test_doctor() -> None:
    done = luxmeter("doctor")
    assert "recorder core" in done.stdout and "chosen by" in done.stdout and "tensorboard" in done.stdout
    seen = json.loads(luxmeter("doctor", "--json").stdout)
    assert seen["versions"]["luxmeter"] == __version__
    assert seen["core"]["in use"] in ("c", "python")
    assert seen["store"]["lab"].endswith(".luxmeter")
    assert (done.returncode == 1) == bool(seen["problems"])


def test_doctor_names_problems_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.json").write_text('{"format": 99, "id": "x"}')
    monkeypatch.setenv("LUXMETER_HOME", str(tmp_path / "lab"))
    done = luxmeter("doctor")
    assert done.returncode == 1
    assert "PROBLEM" in done.stdout and "Update luxmeter" in done.stdout


def test_init_and_reindex(tmp_path: Path) -> None:
    assert luxmeter("reindex").returncode == 2
    place = Path.cwd() / ".luxmeter"
    assert luxmeter("init").stdout == f"Made a lab in {place}\n"
    assert luxmeter("init").stdout == f"There is already a lab in {place}\n"
    with Lab.open(place).create_run("a"):
        pass
    assert luxmeter("reindex").stdout == f"The index of {place} holds 1 run\n"
    assert json.loads(luxmeter("gc", "--json").stdout)["trashed"] == 0


def test_config_as_documented() -> None:
    luxmeter("init")
    assert luxmeter("config", "-l").stdout == ""
    assert luxmeter("config", "--global", "datasets", "/data").stdout == "datasets = /data\n"
    luxmeter("config", "--local", "lr", "0.1")
    assert luxmeter("config", "-l").stdout == "datasets = /data\nlr = 0.1\n"
    assert luxmeter("config", "--global", "-l").stdout == "datasets = /data\n"
    assert luxmeter("config", "--local", "-l").stdout == "lr = 0.1\n"
    assert luxmeter("config", "lr").stdout == "0.1\n"
    assert json.loads(luxmeter("config", "-l", "--json").stdout) == {
        "global": {"datasets": "/data"},
        "local": {"lr": 0.1},
    }
    assert luxmeter("config", "--global", "-u", "datasets").returncode == 0
    assert luxmeter("config", "--local", "-u", "lr").returncode == 0
    assert luxmeter("config", "-l").stdout == ""


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["config"], "config-no-name"),
        (["config", "a", "1"], "config-no-scope"),
        (["config", "--global", "--local", "-l"], "config-both-scopes"),
        (["config", "--global", "-u", "nothing"], "setting-not-set"),
        (["config", "--local", "a", "1"], "no-lab-for-local"),
        (["config", "nothing"], "unknown-setting"),
        (["reindex"], "no-lab"),
    ],
)
def test_bad_input_is_one_line_without_traceback(args: list[str], match: str) -> None:
    done = luxmeter(*args)
    assert done.returncode == 2
    assert match in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_unknown_command_is_an_error() -> None:
    assert luxmeter("no-such-verb").returncode == 2
