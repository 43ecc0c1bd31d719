"""Whether what a config names is there and takes the arguments it is given, before anything is made."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from luxmeter.errors import LuxmeterError, UsageError, near_names
from luxmeter.experiment import near_miss
from luxmeter.options import declared
from luxmeter.train.config.lines import shown
from luxmeter.train.config.plugins import loaded_plugins
from luxmeter.train.data import NAMES
from luxmeter.train.options import TrainerOptions
from luxmeter.train.registries import (
    CALLBACKS,
    DATASETS,
    EVALUATORS,
    LOSSES,
    MODULES,
    OPTIMIZERS,
    SAMPLERS,
    SCHEDULERS,
    TASKS,
    TRAINERS,
    TRANSFORMS,
    check,
    config_key_of,
)

if TYPE_CHECKING:
    from luxmeter.train.config.pyconfig import PyConfig

# What a TaskTrainer is made of; a name that is nearly one of them is a slip. All other names are the config's own.
PARTS = ("task", "data", "optimizer", "scheduler", "evaluators", "callbacks", "trainer", "epoch")
DEFAULT_TRAINER = "TaskTrainer"
_REFUSED = re.compile(r"takes no (?:argument )?'(\w+)'")
_KEY = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*): ")


def check_config(config: PyConfig) -> None:
    """Raise what is wrong, with file, line and key."""
    try:
        _check(config.values)
    except LuxmeterError as error:
        raise located(error, config) from error


def located(error: LuxmeterError, config: PyConfig, key: str = "") -> LuxmeterError:
    """The error with file and line of the key that it is about; `key` if it says none."""
    what, said = error.what, _KEY.match(error.what)
    key = config_key_of(error) or (said[1] if said and said[1].split(".")[0] in config.values else key)
    if said and f"{key}.".startswith(f"{said[1]}."):
        what = what[said.end() :]
    key = known_key(config, key)
    refused = _REFUSED.search(what)
    for inner in ("type" if error.slug == "unknown-name" else "", refused[1] if refused else ""):
        if inner and known_key(config, f"{key}.{inner}") != key:
            key = f"{key}.{inner}"
    where = f"{config.where(key)}: {key}" if key else shown(config.path)
    slug, next_step = error.slug, error.next_step
    if slug == "unknown-name":
        plugins = [f"{plugin.module} of {plugin.by}" for plugin in loaded_plugins()]
        next_step = f"{next_step} Plug-ins: {', '.join(plugins) or 'none'}."
    return UsageError(slug, f"{where}: {what}", next_step)


def known_key(config: PyConfig, key: str) -> str:
    """The key as far as the config has it."""
    values: Any = config.values
    known: list[str] = []
    for part in key.split(".") if key else ():
        if isinstance(values, Mapping) and part in values:
            values = values[part]
        elif isinstance(values, list | tuple) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            break
        known.append(part)
    return ".".join(known)


def _check(values: Mapping[str, Any]) -> None:
    from luxmeter.train.task.dataset import check_loader
    from luxmeter.train.task.trainer import TaskTrainer
    from luxmeter.train.trainer import device_of

    said = values.get("trainer", DEFAULT_TRAINER)
    kind = check(said, TRAINERS, key="trainer", more=("params",))
    _check_options(said, kind)
    for name in ("epoch", "steps"):
        number = values.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise _about(
                name,
                UsageError(
                    "train-length", f"{name}={number!r} trains nothing.", "Give a whole number from 1 on."
                ),
            )
    if "device" in values:
        try:
            device_of(values["device"])
        except UsageError as error:
            raise _about("device", error) from error
    if not (isinstance(kind, type) and issubclass(kind, TaskTrainer)):
        return  # what a Trainer of one's own reads, it alone knows
    if values.get("task") is None:
        raise _about(
            "task" if "task" in values else "",
            UsageError(
                "no-task", "There is no task.", 'Say what is trained: task = dict(type="TaskFlow", ...).'
            ),
        )
    for name, value in values.items():
        # Who imports a part and writes another one beside it has slipped, too, if the two are alike. Who derives from
        # TaskTrainer may read names of his own.
        parts = [
            one
            for one in PARTS
            if one not in values
            or (kind is TaskTrainer and type(value) is type(values[one]) and value != values[one])
        ]
        if name not in PARTS and (near := near_miss(name, parts)):
            raise _about(
                name,
                UsageError(
                    "config-key",
                    f"{kind.__name__} reads no {name!r}, but {near!r}.",
                    f"Did you mean {near!r}? If it is only for this file, call it _{name}.",
                ),
            )
    for name, loader in _items(values.get("data")):
        if name not in NAMES:
            raise _about(
                f"data.{name}",
                UsageError(
                    "config-key",
                    f"There is no use for data called {name!r}.",
                    near_names(name, NAMES) or f"Data is for {', '.join(NAMES)}.",
                ),
            )
        if isinstance(loader, Mapping):
            check_loader(loader, key=f"data.{name}")
    for key, cfg, registry, more in _configs(values):
        check(cfg, registry, key=key, more=more)


def _check_options(said: Any, kind: Any) -> None:
    """The options of a Trainer, which its signature does not name."""
    from luxmeter.train.trainer import Trainer

    if isinstance(said, Mapping) and isinstance(kind, type) and issubclass(kind, Trainer):
        known = [*declared(TrainerOptions), *inspect.signature(kind).parameters]
        for name in said:
            if name not in (*known, "type"):
                raise _about(
                    f"trainer.{name}",
                    UsageError(
                        "config-key",
                        f"{kind.__name__} has no option {name!r}.",
                        near_names(name, known) or f"It knows {', '.join(known)}.",
                    ),
                )
            option = declared(TrainerOptions).get(name)
            if option is not None and (wanted := option.wrong(said[name])):
                raise _about(
                    f"trainer.{name}",
                    UsageError(
                        "bad-trainer-option", f"{kind.__name__} cannot use {said[name]!r} there.", wanted
                    ),
                )


def _configs(values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """(key, config, kind, what it is given besides) of all that a TaskTrainer makes, without keys that are not arguments."""
    task = values.get("task")
    if task is not None:
        yield "task", task, TASKS, ()
    if isinstance(task, Mapping):
        for key, cfg in _several(task.get("sub_module_cfg"), "task.sub_module_cfg"):
            yield key, _without(cfg, "inputs", "outputs"), MODULES, ()
        for key, cfg in _several(task.get("loss_cfg"), "task.loss_cfg"):
            yield key, _without(cfg, "inputs", "loss_weight", "name"), LOSSES, ("name",)
    for name, loader in _items(values.get("data")):
        yield from _loader_configs(loader, f"data.{name}")
    yield "optimizer", _without(values.get("optimizer"), "groups"), OPTIMIZERS, ("params",)
    yield "scheduler", _without(values.get("scheduler"), "every", "monitor"), SCHEDULERS, ("optimizer",)
    for key, cfg in _several(values.get("evaluators"), "evaluators"):
        yield key, _without(cfg, "inputs"), EVALUATORS, ("task",)
    for key, cfg in _several(values.get("callbacks"), "callbacks"):
        yield key, cfg, CALLBACKS, ()


def _loader_configs(loader: Any, key: str) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    kinds = {"dataset": DATASETS, "samples": DATASETS, "sampler": SAMPLERS, "batch_sampler": SAMPLERS}
    for name, value in _items(loader):
        if name in kinds:
            more = ("data_source", "dataset") if kinds[name] is SAMPLERS else ()
            yield f"{key}.{name}", value, kinds[name], more
        elif name == "transforms":
            for number, one in enumerate(value or ()):
                yield f"{key}.transforms.{number}", _without(one, "on"), TRANSFORMS, ()


def _several(cfg: Any, key: str) -> Iterator[tuple[str, Any]]:
    """One config, or several in a list or by name, each with its key."""
    if isinstance(cfg, Mapping) and "type" not in cfg:
        yield from ((f"{key}.{name}", one) for name, one in cfg.items())
    elif isinstance(cfg, list | tuple):
        yield from ((f"{key}.{number}", one) for number, one in enumerate(cfg))
    elif cfg is not None:
        yield key, cfg


def _items(cfg: Any) -> Iterator[tuple[str, Any]]:
    yield from cfg.items() if isinstance(cfg, Mapping) else ()


def _without(cfg: Any, *names: str) -> Any:
    return (
        {name: value for name, value in cfg.items() if name not in names} if isinstance(cfg, Mapping) else cfg
    )


def _about(key: str, error: UsageError) -> UsageError:
    vars(error)["config_key"] = key
    return error
