"""`luxmeter new`: what it writes runs at once, and it never writes over anything."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from in_process import Command

import luxmeter as lux
from luxmeter.train import PyConfig, load_plugins, registries

TEMPLATES = Path(lux.__file__).parent / "train" / "config" / "templates"


def test_the_config_runs_as_it_is_and_learns(command: Command) -> None:
    said = command("new", "config")
    assert said.code == 0 and said.out == "Wrote config.py. Train it: luxmeter train config.py\n"
    said = command("train", "config.py", "epoch=2")
    assert said.code == 0, said.err
    (run,) = lux.runs()
    assert run.name == "fake_images_lr=0.05" and run.summary["eval/acc"]["last"] > 0.7  # of ten classes
    assert run.params["scheduler"]["T_max"] == 2


def test_a_file_is_not_written_over(command: Command) -> None:
    Path("deep").mkdir()
    assert command("new", "config", "deep/er/mine.py").code == 0
    assert "luxmeter train mine.py epoch=2" in Path("deep/er/mine.py").read_text()
    Path("deep/er/mine.py").write_text("precious = 1\n")
    assert "deep/er/mine.py is there already; nothing was written." in command.refused(
        "new", "config", "deep/er/mine.py"
    )
    assert Path("deep/er/mine.py").read_text() == "precious = 1\n"
    assert "config.yaml is no name for a Python file" in command.refused("new", "config", "config.yaml")
    assert "cannot be written: " in command.refused("new", "config", "deep/er/mine.py/config.py")


def project(command: Command, name: str) -> Path:
    said = command("new", "project", name)
    assert said.code == 0, said.err
    folder = Path(name).absolute()
    listed = sorted(re.findall(r"^Wrote (.*)$", said.out, re.MULTILINE))
    assert listed == sorted(
        str(Path(name) / path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )
    return folder


def test_a_project_is_whole(command: Command) -> None:
    folder = project(command, "Two-Moons")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        ".gitignore", ".pre-commit-config.yaml", "README.md", "pyproject.toml", "configs/base.py", "configs/small.py",
        "src/two_moons/__init__.py", "src/two_moons/datasets.py", "src/two_moons/losses.py", "src/two_moons/tasks.py",
        "tests/test_training.py",
    }  # fmt: skip
    assert not [file for file in files if "{{" in (folder / file).read_text()]
    said = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert said["name"] == "Two-Moons" and said["entry-points"] == {
        "luxmeter.plugins": {"two_moons": "two_moons"}
    }
    ruff = [sys.executable, "-m", "ruff"]
    for how in (["format", "--check"], ["check"]):  # its hooks have nothing to say
        done = subprocess.run([*ruff, *how, "."], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_project_trains_where_it_lies(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(command, "spirals")
    monkeypatch.chdir(folder)
    said = command("train", "configs/small.py", "epoch=3")
    assert said.code == 0, said.err
    (run,) = lux.runs()
    assert run.name == "small_lr=0.02" and run.summary["eval/acc"]["last"] > 0.8
    assert (
        run.params["scheduler"]["T_max"] == 3
        and run.params["task"]["sub_module_cfg"]["args"][0]["out_features"] == 32
    )
    assert {"pyproject.toml", "configs/base.py", "configs/small.py", "src/spirals/tasks.py"} <= set(
        run.snapshot.files
    )
    # From the project, the config that the run keeps does it once more; and the run is found by its code.
    assert command("train", run.folder / "files" / "config.py").code == 0
    assert lux.runs()[0].summary["train/loss"] == run.summary["train/loss"]


@pytest.mark.slow
def test_a_project_that_is_installed_plugs_in(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = project(command, "spirals")
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile", "--no-cache-dir",
         "--disable-pip-version-check", "--target", str(site), str(folder)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    monkeypatch.syspath_prepend(site)
    assert importlib.metadata.version("spirals") == "0.1.0"
    assert [plugin.by for plugin in load_plugins() if plugin.module == "spirals"] == ["spirals 0.1.0"]
    assert Path(sys.modules["spirals"].__file__ or "").is_relative_to(site)
    assert (
        "SpiralTask" in registries.TASKS
        and "FocalLoss" in registries.LOSSES
        and "Spirals" in registries.DATASETS
    )
    PyConfig.fromfile(folder / "configs" / "small.py").check()


@pytest.mark.parametrize("name", ["json", "luxmeter", "3d", "for", "torch", "é"])
def test_names_that_no_package_can_have(name: str, command: Command) -> None:
    assert "A project cannot be called" in command.refused("new", "project", name)
    assert not Path(name).exists()


def test_a_project_is_not_written_over_another(command: Command) -> None:
    Path("mine/configs").mkdir(parents=True)
    Path("mine/configs/base.py").write_text("precious = 1\n")
    Path("mine/README.md").write_text("precious\n")
    said = command.refused("new", "project", "mine")
    assert "and 1 more is there already; nothing was written." in said
    assert sorted(p.name for p in Path("mine").rglob("*") if p.is_file()) == ["README.md", "base.py"]
    Path("mine/configs/base.py").unlink()
    Path("mine/README.md").unlink()
    assert (
        command("new", "project", "mine").code == 0
    )  # into a folder that is there: a new git repository, say


def test_templates_come_with_the_package() -> None:
    """What pyproject.toml says of the files of the package takes every template in."""
    said = tomllib.loads((Path(lux.__file__).parents[2] / "pyproject.toml").read_text())
    (pattern,) = said["tool"]["setuptools"]["package-data"]["luxmeter.train.config"]
    listed = {path for path in (TEMPLATES.parent).glob(pattern) if path.is_file()}
    assert listed == {path for path in TEMPLATES.rglob("*") if path.is_file()} and len(listed) == 12
