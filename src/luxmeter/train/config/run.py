"""From a config to a trained run: checked, built, trained, evaluated; the run keeps the config as it was resolved."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from luxmeter import __version__
from luxmeter.errors import CheckpointError, LuxmeterError, UsageError
from luxmeter.experiment import Saver, find_run, job_given, random
from luxmeter.files import sha256_of
from luxmeter.ranks import is_main
from luxmeter.store import Run
from luxmeter.train import checkpoints
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.config.plugins import is_in_run, project_of
from luxmeter.train.config.pyconfig import PyConfig
from luxmeter.train.config.schema import DEFAULT_TRAINER, known_key, located
from luxmeter.train.data import NAMES
from luxmeter.train.dist import agree, broadcast_object, current_group, ensure_group
from luxmeter.train.registries import TRAINERS, build, config_key_of
from luxmeter.train.task.trainer import TaskTrainer
from luxmeter.train.trainer import Trainer


def train_config(
    config: PyConfig,
    *,
    name: str | None = None,
    resume: bool | str | PathLike[str] = False,
    debug: bool = False,
) -> Trainer:
    """Train what a config says, in a run of its own; the Trainer, which has done.

    What is wrong with the config is told before there is a run. `name`: of the run; else `name` in the config, or its
    file's. `resume` as of Trainer.train. `debug`: no workers read data, errors are shown whole, the run is tagged `debug`.
    """
    ensure_group()
    config.check()
    agree(**_to_be_the_same(config))
    resume = _known_on_all_ranks(resume)
    random.fix_seed(config.default("seed", 0))
    files = config.written()
    trainer = make_trainer(config, debug=debug)
    trainer._training.where = partial(_where, config)
    with trainer:
        with _located(config):
            experiment = trainer.initial_exp(name or _name(config))
        _make_data(trainer, debug=debug)
        if experiment.writer is not None:
            for file, body in files.items():
                experiment.writer.put_file(file, body)
            project = project_of(config.path)
            for path in (*config.files, *([project / "pyproject.toml"] if project else [])):
                experiment.keycode(path)
        steps, epochs = config.values.get("steps"), config.values.get("epoch")
        end = _EvaluatedAtEnd(None if steps else trainer.params.epoch).hook(trainer)
        trainer.train(resume=resume, steps=steps, epochs=epochs)
        end.evaluate(trainer)
    return trainer


def make_trainer(config: PyConfig, *, debug: bool = False) -> Trainer:
    """The Trainer of a config; one that the config describes whole is built, its data included."""
    said = config.values.get("trainer", DEFAULT_TRAINER)
    options: dict[str, Any] = dict(said) if isinstance(said, Mapping) else {"type": said}
    if debug:
        tags = options.get("tags", ())
        options["tags"] = [*([tags] if isinstance(tags, str) else tags), "debug"]
        options["full_traceback"] = True
    with _located(config, "trainer"):
        trainer = build(options, TRAINERS, key="trainer", params=config.params)
        if not isinstance(trainer, Trainer):
            raise UsageError(
                "config-trainer",
                f"The trainer is a {type(trainer).__name__}.",
                "Name a class that derives from Trainer.",
            )
    if _is_described(trainer):
        with _located(config):
            trainer.initialise()
        for which in _all_data(trainer):
            with _located(config, f"data.{which}", all_errors=True):
                trainer.data[which]
    return trainer


def _is_described(trainer: Trainer) -> bool:
    """Whether nothing but the config says how it is built: code of the user's may need the run that is to come."""
    kind = type(trainer)
    return (
        isinstance(trainer, TaskTrainer)
        and kind.initial_trainer is TaskTrainer.initial_trainer
        and kind.initial_callback is TaskTrainer.initial_callback
    )


def _all_data(trainer: Trainer) -> list[str]:
    """The data that is made before the training: all, so that an error in what is read last comes first."""
    return [name for name in NAMES if name in trainer.data and job_given() is None]


def _make_data(trainer: Trainer, *, debug: bool) -> None:
    """Make it; for a debugger it is read without workers."""
    for which in _all_data(trainer):
        loader: Any = trainer.data[which]
        if debug and getattr(loader, "num_workers", None):
            if hasattr(loader, "read_here"):
                loader.read_here()
            else:
                loader.num_workers = loader.timeout = 0


def _to_be_the_same(config: PyConfig) -> dict[str, str]:
    """What ranks that train together must all have: the config as resolved, and the code that it stands on."""
    if current_group().world_size == 1:
        return {}
    text = config.dump().partition("\n")[2]  # without the heading, which says where it lies
    project = project_of(config.path) or config.path.parent
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {Path(file) for file in loaded if file and Path(file).is_relative_to(project)} | {*config.files}
    inside = sorted(file for file in files if file.is_file() and "site-packages" not in file.parts)
    code = [f"{os.path.relpath(file, project)} {sha256_of(file)[:12]}" for file in inside]
    versions = {"Python": platform.python_version(), "torch": torch.__version__, "luxmeter": __version__}
    return {**versions, "config": text, "code": "\n".join(code)}


def _known_on_all_ranks(resume: bool | str | PathLike[str]) -> bool | str | PathLike[str]:
    """As rank 0 finds it: before long there is a new run, and `latest` is another one."""
    found: Any = None
    if is_main():
        try:
            found = _known_checkpoint(resume)
        except LuxmeterError as error:
            found = error
    found = broadcast_object(found)
    if isinstance(found, LuxmeterError):
        raise found
    return found  # type: ignore[no-any-return]


def _known_checkpoint(resume: bool | str | PathLike[str]) -> bool | str | PathLike[str]:
    """What to go on from, found before there is a new run: `latest` is the one before."""
    if isinstance(resume, bool) or Path(resume).is_file():
        return resume
    run = find_run(str(resume))
    if not Saver(checkpoints.save_folder(run), cleans=False).find_checkpoints():
        raise CheckpointError(
            "checkpoint-absent",
            f"The run {run.name} ({run.id}) has no checkpoint.",
            "Train it with checkpoints on, or name another run.",
        )
    return run.folder


def _where(config: PyConfig, key: str) -> str:
    """`small.py:12, task.loss_cfg.ce`: as far as the config has the key; empty if it has nothing of it."""
    known = known_key(config, key)
    return f"{config.where(known)}, {known}" if known else ""


def _name(config: PyConfig) -> str:
    """What the run is called: as the config says, as the run whose config it is, or as its file."""
    said = config.values.get("name")
    if isinstance(said, str) and said.strip():
        return said
    if is_in_run(config.path):
        return Run(config.path.parent.parent).name
    return config.path.stem


@contextmanager
def _located(config: PyConfig, key: str = "", *, all_errors: bool = False) -> Iterator[None]:
    """Errors that come of the config say its file, line and key; `all_errors`: whatever comes is of `key`."""
    try:
        yield
    except LuxmeterError as error:
        raise located(error, config, key) from error
    except Exception as error:
        if not (all_errors or config_key_of(error)):
            raise
        key = known_key(config, config_key_of(error) or key)
        raise UsageError(
            "config-build",
            f"{config.where(key)}: {key}: It cannot be made: {type(error).__name__}: {' '.join(str(error).split())}.",
            "Correct its arguments; --debug shows where it came from.",
        ) from error


class _EvaluatedAtEnd(Callback):
    """Sees to it that what was trained in the end is evaluated and tested, however often that was done before."""

    priority = 61  # behind EvalCallback

    def __init__(self, last_epoch: int | None) -> None:
        self._last_epoch = last_epoch
        self._steps: dict[str, int] = {}  # after which it was

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """It was evaluated."""
        self._steps["eval"] = trainer.position.done

    def after_test(self, trainer: Trainer, meter: Any) -> None:
        """It was tested."""
        self._steps["test"] = trainer.position.done

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """The last one is the end."""
        if trainer.position.eidx == self._last_epoch:
            self.evaluate(trainer)

    def evaluate(self, trainer: Trainer) -> None:
        """What was not done at this step."""
        for which in ("eval", "test"):
            if which in trainer.data and self._steps.get(which) != trainer.position.done:
                trainer.evaluate(which)
                self._steps[which] = trainer.position.done
