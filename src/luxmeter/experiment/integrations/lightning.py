"""Lightning's trainer, logged into a run: `Trainer(callbacks=[LuxmeterCallback("mnist")])`.

What `self.log` gives goes to the run as Lightning would give it to any logger (its steps, its cadence, its
averages); hyperparameters become parameters, checkpoints are traced by content, an exception is the run's end.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Unpack

from luxmeter.errors import MissingExtraError
from luxmeter.experiment.integrations.target import Given, RunTarget
from luxmeter.experiment.options import ExperimentSettings


def _package() -> Any:
    """Lightning under the name that the program uses; the two names are two sets of classes."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    if "lightning.pytorch" not in sys.modules and "pytorch_lightning" in sys.modules:
        names.reverse()
    problem: ImportError | None = None
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            problem = problem or error
    raise MissingExtraError(
        "no-lightning",
        f"This callback needs Lightning: {problem}.",
        "Install it with: pip install lightning",
    ) from problem


_pl = _package()


class LuxmeterLogger(_pl.loggers.logger.Logger):  # type: ignore[misc,name-defined]
    """Lightning's side of logging. `LuxmeterCallback` puts one in; alone it serves `Trainer(logger=...)`."""

    def __init__(
        self,
        experiment: Given = None,
        *,
        target: RunTarget | None = None,
        **settings: Unpack[ExperimentSettings],
    ) -> None:
        super().__init__()
        self._target = target or RunTarget(experiment, settings=settings)
        self._is_alone = target is None

    @property
    def experiment(self) -> RunTarget:
        """Where it logs to; begun when first used."""
        if self._target.state == "new" and self._is_alone:
            self._target.begin(name="lightning", params={})
        return self._target

    @property
    def name(self) -> str:
        """The run's name; Lightning's default folder for checkpoints is named by it."""
        return self._target.name or "luxmeter"

    @property
    def version(self) -> str:
        """The run's id."""
        return self._target.id or "0"

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Called by Lightning."""
        if _pl.utilities.rank_zero_only.rank == 0:
            self.experiment.log(metrics, step or 0)

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Called by Lightning."""
        if _pl.utilities.rank_zero_only.rank == 0:
            given = vars(params) if isinstance(params, Namespace) else dict(params)
            self.experiment.add_params({str(key): value for key, value in given.items()})

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Called by Lightning: its checkpoints' folder is watched from the first one on."""
        if self._is_alone and checkpoint_callback.dirpath:
            self._target.watch(checkpoint_callback.dirpath)

    def finalize(self, status: str) -> None:
        """Called by Lightning at the end. Which exception it was only a callback is told."""
        if self._is_alone:
            self._target.end(None if status == "success" else RuntimeError(f"Lightning ended as {status}."))


class LuxmeterCallback(_pl.Callback):  # type: ignore[misc,name-defined]
    """Logs a training into the given experiment, the active run, or one of its own (by name)."""

    def __init__(self, experiment: Given = None, **settings: Unpack[ExperimentSettings]) -> None:
        self.target = RunTarget(experiment, settings=settings)
        self._logger: LuxmeterLogger | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begin the run, and be one of the trainer's loggers."""
        self.target.begin(name=type(pl_module).__name__, params=_params(trainer))
        if self._logger is None:
            self._logger = LuxmeterLogger(target=self.target)
        if self._logger not in trainer.loggers:
            trainer.loggers = [*trainer.loggers, self._logger]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning has settled where checkpoints go."""
        for callback in trainer.checkpoint_callbacks:
            if getattr(callback, "dirpath", None):
                self.target.watch(callback.dirpath)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run with what happened."""
        self.target.end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Note the best checkpoint and end the run."""
        for callback in trainer.checkpoint_callbacks if stage == "fit" else []:
            if getattr(callback, "best_model_path", ""):
                self.target.text("checkpoint/best", str(callback.best_model_path), trainer.global_step)
                if callback.best_model_score is not None:
                    self.target.log({"checkpoint/best_score": callback.best_model_score}, trainer.global_step)
        self.target.end()
        if self._logger is not None:
            trainer.loggers = [logger for logger in trainer.loggers if logger is not self._logger]


def _params(trainer: Any) -> dict[str, Any]:
    """What the trainer adds to the module's hyperparameters."""
    found: dict[str, Any] = {}
    seed = os.environ.get("PL_GLOBAL_SEED", "")  # where seed_everything leaves it
    if seed.lstrip("-").isdigit():
        found["seed"] = int(seed)
    names = ("max_epochs", "max_steps", "precision", "accumulate_grad_batches", "gradient_clip_val")
    found["trainer"] = {
        name: value for name in names if (value := getattr(trainer, name, None)) not in (None, -1)
    }
    return found
