"""TaskTrainer: a Trainer for tasks, of objects or of a config; nobody has to write train_batch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from luxmeter.errors import UsageError, near_names
from luxmeter.experiment import BaseParams, random
from luxmeter.train.callbacks.schedule import LRSchedule
from luxmeter.train.data import NAMES
from luxmeter.train.options import TrainerSettings
from luxmeter.train.registries import CALLBACKS, TASKS, build, several
from luxmeter.train.task.dataset import make_loader
from luxmeter.train.task.evaluator import Evaluators
from luxmeter.train.task.optimizers import make_optimizer, make_scheduler
from luxmeter.train.task.task_flow import TaskFlow
from luxmeter.train.trainer import Trainer


@dataclass(frozen=True)
class _Given:
    """Objects that are no parameters, by name. No dict, in which a checkpoint would look for state."""

    parts: dict[str, Any]


class TaskTrainer(Trainer):
    """Trains and evaluates a TaskFlow: `TaskTrainer({"epoch": 3}, task=task, data={"train": loader}, optimizer={"type": "SGD", "lr": 0.1})`.

    Each part is an object or a config; what is not given is taken from the parameters of the same name: `params.task`,
    `params.data.train` (`eval`, `test`; made when they are used), `params.optimizer`, `params.scheduler`,
    `params.evaluators`, `params.callbacks`; `params.seed` is fixed first. Configs that are given become parameters, so that
    the run has them.
    """

    task: TaskFlow
    _how_to_optimize = 'Give one: optimizer={"type": "SGD", "lr": 0.1}.'

    def __init__(
        self,
        params: BaseParams | Mapping[str, Any] | None = None,
        *,
        task: Any = None,
        data: Mapping[str, Any] | None = None,
        optimizer: Any = None,
        scheduler: Any = None,
        evaluators: Any = None,
        **settings: Unpack[TrainerSettings],
    ) -> None:
        super().__init__(params, **settings)
        whole = {"task": task, "optimizer": optimizer, "scheduler": scheduler, "evaluators": evaluators}
        given = {**whole, **{f"data.{name}": one for name, one in (data or {}).items()}}
        for name, value in given.items():
            if value is not None and _is_config(value):
                self.params[name] = value
        self._given = _Given({n: v for n, v in given.items() if v is not None and not _is_config(v)})

    def initial_trainer(self, params: Any) -> None:
        """Make the task, what trains it and what evaluates it; the data when it is used."""
        if params.get("seed") is not None:
            random.fix_seed(params.seed)
        self.task = self._made_task()
        self.regist_databundler(**self._data())
        self.data.how_to_give = (
            'Give it: data={{"{name}": {{"dataset": ..., "batch_size": 32}}}}, in a config as data.{name}.'
        )
        optimizer, scheduler = self._part("optimizer"), self._part("scheduler")
        if optimizer is not None:
            self.optim = make_optimizer(optimizer, self.task)
        if scheduler is not None:
            self._schedule(scheduler)
        self.evaluators = Evaluators(self._part("evaluators"), self.task).hook(self)

    def initial_callback(self) -> None:
        """The callbacks that every Trainer has, and those of `params.callbacks`."""
        super().initial_callback()
        for _, cfg, key in several(self.params.get("callbacks"), "callbacks"):
            self.callbacks.add(build(cfg, CALLBACKS, key=key), key=key)

    def train_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: torch.device
    ) -> Any:
        """The losses that the task gives."""
        return self.task(batch_data)

    def eval_batch(
        self, eidx: int, idx: int, global_step: int, batch_data: Any, params: Any, device: torch.device
    ) -> Any:
        """Let the evaluators count what the task gives."""
        self.evaluators.add(self.task(batch_data), batch_data)

    def predict_batch(self, batch_data: Any, params: Any, device: torch.device) -> Any:
        """The task's predictions."""
        return self.task(batch_data)

    def _part(self, name: str) -> Any:
        """What was given under a name, or is among the parameters."""
        return self._given.parts.get(name, self.params.get(name))

    def _made_task(self) -> TaskFlow:
        cfg = self._part("task")
        if cfg is None:
            raise UsageError(
                "no-task",
                f"{type(self).__name__} has no task.",
                'Give one: TaskTrainer(params, task=TaskFlow(...)), or params.task = {"type": "TaskFlow", ...}.',
            )
        task = build(cfg, TASKS, key="task")
        if not isinstance(task, TaskFlow):
            raise UsageError(
                "no-task",
                f"The task is a {type(task).__name__}.",
                "Give a TaskFlow; it takes a module and a loss: TaskFlow(module, loss).",
            )
        return task.train() if not task.training else task

    def _data(self) -> dict[str, Any]:
        """Loaders, or what makes them at their first use."""
        cfgs: Any = self.params.get("data") or {}
        if not isinstance(cfgs, Mapping):
            raise UsageError(
                "data-incomplete", f"data is {cfgs!r}.", f"Give {', '.join(NAMES)}, each a config."
            )
        given = {name.removeprefix("data."): one for name, one in self._given.parts.items() if "." in name}
        found: dict[str, Any] = {}
        for name, one in {**dict(cfgs.items()), **given}.items():
            if name not in NAMES:
                raise UsageError(
                    "data-name",
                    f"There is no use for data called {name!r}.",
                    near_names(name, NAMES) or f"Data is for {', '.join(NAMES)}.",
                )
            found[name] = partial(make_loader, one, key=f"data.{name}") if isinstance(one, Mapping) else one
        return found

    def _schedule(self, cfg: Any) -> None:
        """Make the scheduler, and the callback that steps it."""
        if not hasattr(self, "optim"):
            raise UsageError("no-optimizer", "A scheduler needs an optimizer.", "Give one: optimizer={...}.")
        own: dict[str, Any] = {}
        if isinstance(cfg, Mapping):
            own = {name: cfg[name] for name in ("every", "monitor") if name in cfg}
            cfg = {name: value for name, value in dict(cfg.items()).items() if name not in own}
        made = make_scheduler(cfg, self.optim)
        if isinstance(made, LRScheduler):
            self.scheduler = made
        if self.options.schedule is not None or self.callbacks.find(LRSchedule) is not None:
            raise UsageError(
                "schedule-twice",
                "The learning rate is scheduled by a scheduler and by the Trainer's own schedule or an LRSchedule.",
                'Leave one of them out; a scheduler says "every": "step" itself.',
            )
        schedule = LRSchedule(None if isinstance(made, LRScheduler) else made, **own)
        # One that looks at what an evaluation gave comes behind it.
        schedule.hook(self, priority=65 if isinstance(made, ReduceLROnPlateau) else None)

    def _can_evaluate(self, which: str) -> bool:
        if type(self).eval_batch is TaskTrainer.eval_batch and not len(self.evaluators):
            self.notice(f"{type(self).__name__} has no evaluators: no {which} is made.")
            return False
        return super()._can_evaluate(which)


def _is_config(value: Any) -> bool:
    """Whether a value can stand among parameters: plain, and what it holds, too."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_config(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return all(_is_config(inner) for inner in value)
    return value is None or isinstance(value, str | int | float | type) or inspect.isroutine(value)
