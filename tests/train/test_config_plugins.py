"""Projects outside of ours: their classes are found by entry points, installed or not."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from luxmeter.errors import LuxmeterWarning, UsageError
from luxmeter.train import load_plugins, project_of, registries
from luxmeter.train.config.plugins import Plugin, find_plugins, importable, loaded_plugins

MODULE = """
import torch, json
from torch import nn
from torch.optim import SGD
from luxmeter import Trainer
from luxmeter.train import Callback, Evaluator, TaskFlow
class GateNet(nn.Module): ...
class GateLoss(nn.Module): ...
class GateOptimizer(torch.optim.Optimizer): ...
class GateSchedule(torch.optim.lr_scheduler.LRScheduler): ...
class GateData(torch.utils.data.Dataset): ...
class GateSampler(torch.utils.data.Sampler): ...
class GateEvaluator(Evaluator): ...
class GateMetric:
    def update(self): ...
    def compute(self): ...
class GateTask(TaskFlow): ...
class GateCallback(Callback): ...
class GateTrainer(Trainer): ...
class GateTransform:
    def __call__(self, x): ...
class OfNoKind: ...
class _Private(nn.Module): ...
def function(x): ...
"""
pytestmark = pytest.mark.usefixtures("own_names")


def installed(
    folder: Path, module: str, text: str, entry_points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pip leaves a package: its module, and what it says of itself."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(text)
    info = folder / f"{module}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(dedent(entry_points))
    monkeypatch.syspath_prepend(folder)


def test_every_class_gets_into_the_registry_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site", "gate", MODULE, "[luxmeter.plugins]\ngate = gate\n", monkeypatch)
    assert Plugin("gate", "gate", "gate 1.2") in load_plugins()
    found = {
        kind: sorted(name for name in getattr(registries, kind.upper())._things if name.startswith("Gate"))
        for kind in (
            "modules", "losses", "optimizers", "schedulers", "datasets", "samplers", "evaluators", "tasks",
            "callbacks", "trainers", "transforms",
        )
    }  # fmt: skip
    assert found == {
        "modules": ["GateLoss", "GateNet"], "losses": ["GateLoss"], "optimizers": ["GateOptimizer"],
        "schedulers": ["GateSchedule"], "datasets": ["GateData"], "samplers": ["GateSampler"],
        "evaluators": ["GateEvaluator", "GateMetric"], "tasks": ["GateTask"], "callbacks": ["GateCallback"],
        "trainers": ["GateTrainer"], "transforms": ["GateTransform"],
    }  # fmt: skip
    assert "SGD" not in registries.OPTIMIZERS._things  # only imported there
    load_plugins()  # a second time does nothing
    assert [plugin.module for plugin in loaded_plugins()] == ["gate"]


def test_the_name_of_a_kind_says_the_kind_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from json import dumps\ndef flip(x): ...\nclass Crop: ...\nhidden = 1\n__all__ = ['flip', 'Crop']\ndef other(): ...\n"
    installed(tmp_path / "site", "bend", text, "[luxmeter.plugins]\ntransforms = bend\n", monkeypatch)
    load_plugins()
    assert sorted(registries.TRANSFORMS._things) == ["Crop", "flip"]


def test_entry_points_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = importlib.metadata.entry_points
    monkeypatch.setattr("luxmeter.registry.entry_points", lambda: calls.append(1) or real())
    monkeypatch.syspath_prepend(tmp_path)  # another path: read anew, once
    find_plugins()
    find_plugins()
    assert "NothingLikeThat" not in registries.MODULES and "NothingLikeThat" not in registries.LOSSES
    assert len(calls) == 1


def test_a_project_that_is_not_installed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src" / "mill").mkdir(parents=True)
    (project / "configs" / "deep").mkdir(parents=True)
    (project / "src" / "mill" / "__init__.py").write_text("from mill.nets import MillNet\n")
    (project / "src" / "mill" / "nets.py").write_text(
        "from torch import nn\nclass MillNet(nn.Module): ...\ndef wheel(x): ...\n"
    )
    (project / "pyproject.toml").write_text(
        '[project]\nname = "mill"\n[project.entry-points."luxmeter.plugins"]\nmill = "mill"\n'
        '[project.entry-points."luxmeter.transforms"]\nround = "mill.nets:wheel"\n'
    )
    assert project_of(project / "configs" / "deep" / "a.py") == project
    before = list(sys.path)
    with importable(project):
        assert sys.path[:2] == [str(project / "src"), str(project)]
        load_plugins(project)
    assert sys.path == before
    assert registries.MODULES.get("MillNet").__module__ == "mill.nets"
    assert registries.TRANSFORMS.get("round").__name__ == "wheel"


def test_a_broken_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(
        tmp_path / "site",
        "rotten",
        "x = 1\ny = x / 0\n",
        "[luxmeter.plugins]\nrotten = rotten\n",
        monkeypatch,
    )
    with pytest.warns(
        LuxmeterWarning,
        match=r"rotten = 'rotten' of rotten 1\.2 cannot be loaded: ZeroDivisionError.*rotten\.py:2",
    ):
        load_plugins()  # another project's: told, and gone on without
    Path("pyproject.toml").write_text('[project.entry-points."luxmeter.plugins"]\nrotten = "rotten"\n')
    with pytest.raises(
        UsageError,
        match=r"of pyproject\.toml cannot be loaded: ZeroDivisionError: .*rotten\.py:2.*plugin-broken",
    ):
        load_plugins(Path.cwd())
    Path("pyproject.toml").write_text('[project.entry-points."luxmeter.losses"]\na = "no_such_module:a"\n')
    with pytest.raises(UsageError, match="The loss a = 'no_such_module:a'"):
        load_plugins(Path.cwd())
    Path("pyproject.toml").write_text("[project\n")
    with pytest.raises(UsageError, match=r"pyproject\.toml cannot be read"):
        load_plugins(Path.cwd())


def test_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from torch import nn\nclass Linear(nn.Module): ...\n"
    installed(tmp_path / "site", "shadow", text, "[luxmeter.plugins]\nshadow = shadow\n", monkeypatch)
    with pytest.warns(LuxmeterWarning, match="The module name 'Linear' is taken by <class 'torch.nn"):
        load_plugins()
    assert registries.MODULES.get("Linear").__module__.startswith("torch.")


def test_what_is_defined_anew_takes_the_place_of_itself() -> None:
    """A cell of a notebook, or a config with a class of its own, that is run a second time."""
    text = "@register\nclass Again: ...\n"
    for _ in range(2):
        names = {"register": registries.MODULES.register, "__name__": "a_notebook"}
        exec(text, names)
    assert registries.MODULES.get("Again") is names["Again"]
    with pytest.raises(UsageError, match="name-taken"):
        exec(text, {"register": registries.MODULES.register, "__name__": "another"})
