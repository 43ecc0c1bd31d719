"""Plug-ins: modules of other projects whose classes a config can name, without a decorator on any of them.

A project offers them as entry points, in its pyproject.toml:

    [project.entry-points."luxmeter.plugins"]
    my_project = "my_project"
    transforms = "my_project.augment"

Each class of such a module gets into the registry of its kind, which its base class tells. Under the name of a kind
(`modules`, `losses`, `transforms`, ...) all classes and functions of the module are of that kind. The project that a config
lies in need not be installed: its pyproject.toml is read.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

from luxmeter.errors import LuxmeterError, UsageError, warn_once
from luxmeter.registry import Registry, entry_points_of
from luxmeter.store import layout
from luxmeter.train.config.lines import shown

GROUP = "luxmeter.plugins"
KINDS = (
    "modules", "losses", "optimizers", "schedulers", "datasets", "samplers", "transforms", "evaluators", "tasks",
    "callbacks", "trainers",
)  # fmt: skip


@dataclass(frozen=True)
class Plugin:
    """A module that a project offers."""

    name: str
    module: str
    by: str  # who offers it: `my-project 0.1`, or a pyproject.toml
    kind: str = ""  # of all that it holds; else each class tells its own


_loaded: dict[str, Plugin] = {}  # by module


def find_plugins(project: Path | None = None) -> list[Plugin]:
    """Those of installed packages, and of the project in this folder."""
    found: dict[str, Plugin] = {}
    for point in entry_points_of(GROUP):
        by = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an installed package"
        found[point.value] = _plugin(point.name, point.value, by)
    for name, value in _said(project).get(GROUP, {}).items():
        found[value] = _plugin(name, value, shown(_file(project)))  # type: ignore[arg-type]
    return list(found.values())


def load_plugins(project: Path | None = None) -> list[Plugin]:
    """Import them and register what they hold. One that cannot be imported is told; if it is the project's, refused."""
    found = find_plugins(project)
    own = "" if project is None else shown(_file(project))
    for plugin in found:
        try:
            _register(plugin, importlib.import_module(plugin.module))
            _loaded[plugin.module] = plugin
        except Exception as error:
            problem = f"The plug-in {plugin.name} = {plugin.module!r} of {plugin.by} cannot be loaded: {_said_of(error)}."
            if plugin.by == own:
                raise UsageError(
                    "plugin-broken", problem, "Correct it, or take it out of its entry points."
                ) from error
            warn_once("plugin-skipped", problem, "Training goes on without it.", key=plugin.module)
    _register_single(project)
    return found


def loaded_plugins() -> list[Plugin]:
    """Those that were loaded in this process."""
    return list(_loaded.values())


def project_of(config: Path) -> Path | None:
    """The folder of the project that a config lies in: the nearest one above it that has a pyproject.toml.

    For the config that a run keeps, the project around the current folder.
    """
    folder = config.absolute().parent
    start = Path.cwd() if is_in_run(config) else folder
    return next((one for one in (start, *start.parents) if _file(one).is_file()), None)


def is_in_run(config: Path) -> bool:
    """Whether a config is one that a run keeps."""
    folder = config.absolute().parent
    return folder.name == layout.FILES and (folder.parent / "run.json").is_file()


@contextlib.contextmanager
def importable(project: Path | None) -> Iterator[None]:
    """Inside, modules of a project that is not installed are found, and those of the current folder, as by `python -m`."""
    wanted = [Path.cwd()] if project is None else [project / "src", project, Path.cwd()]
    before = list(sys.path)
    sys.path[:0] = [
        str(folder) for folder in dict.fromkeys(wanted) if folder.is_dir() and str(folder) not in before
    ]
    try:
        yield
    finally:
        sys.path[:] = before


def _plugin(name: str, value: str, by: str) -> Plugin:
    return Plugin(name, value.partition(":")[0].strip(), by, name if name in KINDS else "")


def _register(plugin: Plugin, module: ModuleType) -> None:
    for name, value in _public(module).items():
        registries = [_registry(plugin.kind)] if plugin.kind else _registries_of(value)
        for registry in registries:
            registry.register(name, value)


def _public(module: ModuleType) -> dict[str, Any]:
    """The classes and functions that a module, or a module inside it, defines."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    inside = (module.__name__, f"{module.__name__}.")
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and (value.__module__ == inside[0] or value.__module__.startswith(inside[1]))
    }


def _registry(kind: str) -> Registry[Any]:
    from luxmeter.train import registries

    found: Registry[Any] = getattr(registries, kind.upper())
    return found


def _registries_of(value: Any) -> list[Registry[Any]]:
    """By its base class; none for what is of no kind, or of several."""
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset, Sampler

    from luxmeter.train.callbacks.callback import Callback
    from luxmeter.train.task.evaluator import Evaluator
    from luxmeter.train.task.task_flow import TaskFlow
    from luxmeter.train.trainer import Trainer

    if not inspect.isclass(value):
        return []
    kinds = {
        Trainer: "trainers", TaskFlow: "tasks", Callback: "callbacks", Evaluator: "evaluators", Optimizer: "optimizers",
        LRScheduler: "schedulers", Dataset: "datasets", Sampler: "samplers",
    }  # fmt: skip
    for base, kind in kinds.items():
        if issubclass(value, base):
            return [_registry(kind)]
    if issubclass(value, nn.Module):
        is_loss = value.__name__.endswith("Loss")
        return [_registry("modules"), *([_registry("losses")] if is_loss else [])]
    if callable(getattr(value, "update", None)) and callable(getattr(value, "compute", None)):
        return [_registry("evaluators")]
    return [_registry("transforms")] if "__call__" in vars(value) else []


def _register_single(project: Path | None) -> None:
    """The entry points of single things (`luxmeter.losses`, ...) of a project that is not installed."""
    groups = _said(project)
    for kind in KINDS:
        for name, value in groups.get(f"luxmeter.{kind}", {}).items():
            registry = _registry(kind)
            try:
                registry.register(name, EntryPoint(name, value, f"luxmeter.{kind}").load())
            except (ImportError, AttributeError) as error:
                raise UsageError(
                    "plugin-broken",
                    f"The {registry.kind} {name} = {value!r} of {shown(_file(project))} cannot be loaded: {error}.",  # type: ignore[arg-type]
                    "Correct it, or take it out of its entry points.",
                ) from error


def _file(project: Path) -> Path:
    return project / "pyproject.toml"


def _said(project: Path | None) -> dict[str, dict[str, str]]:
    """The entry points that a project declares, by group."""
    if project is None:
        return {}
    try:
        said = tomllib.loads(_file(project).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            "plugin-broken", f"{shown(_file(project))} cannot be read: {error}.", "Correct it."
        ) from error
    groups: dict[str, dict[str, str]] = said.get("project", {}).get("entry-points", {})
    return groups


def _said_of(error: Exception) -> str:
    """The error, with the line that it came from."""
    if isinstance(error, LuxmeterError):
        return error.what.rstrip(".")
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<frozen")
    ]
    at = "" if len(frames) < 2 else f" ({shown(Path(frames[-1].filename))}:{frames[-1].lineno})"
    return f"{type(error).__name__}: {error}{at}"
