"""Ignite's engines, logged into a run: `LuxmeterHandler("mnist", params=...).attach(trainer, evaluators={"val": e})`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.experiment.integrations.target import Given, RunTarget
from luxmeter.experiment.options import ExperimentSettings
from luxmeter.store import number_of

try:
    from ignite.engine import Events  # type: ignore[import-not-found,unused-ignore]
except ImportError as error:
    raise MissingExtraError(
        "no-ignite", f"This handler needs Ignite: {error}.", "Install it with: pip install pytorch-ignite"
    ) from error


class LuxmeterHandler:
    """Logs a training into the given experiment, the active run, or one of its own (by name)."""

    def __init__(
        self,
        experiment: Given = None,
        *,
        params: Mapping[str, Any] | None = None,
        **settings: Unpack[ExperimentSettings],
    ) -> None:
        self.target = RunTarget(experiment, settings=settings)
        self._params = dict(params or {})

    def attach(
        self,
        trainer: Any,
        *,
        evaluators: Mapping[str, Any] | None = None,
        every: int = 1,
        output: Callable[[Any], Mapping[str, Any]] | None = None,
        optimizer: Any = None,
        checkpoints: Iterable[Any] = (),
    ) -> LuxmeterHandler:
        """Log the trainer's output every so many iterations, its metrics each epoch, each evaluator's when it ends.

        `output` makes values of what a step returns (a number is the loss). `optimizer`: its learning rates are
        logged. `checkpoints` are Ignite's Checkpoint handlers, whose folders are watched.
        """
        if every < 1:
            raise UsageError("log-every", f"Every {every} iterations means never.", "Give 1 or more.")
        add = trainer.add_event_handler
        add(Events.STARTED, self._begin, list(checkpoints))
        add(Events.ITERATION_COMPLETED(every=every), self._step, output or _values, optimizer)
        add(Events.EPOCH_COMPLETED, self._metrics, "train", trainer)
        add(Events.EXCEPTION_RAISED, self._exception)
        add(Events.TERMINATE, self._end)
        add(Events.COMPLETED, self._end)
        for name, evaluator in (evaluators or {}).items():
            evaluator.add_event_handler(Events.COMPLETED, self._metrics, name, trainer)
        return self

    def _begin(self, engine: Any, checkpoints: list[Any]) -> None:
        params = {
            "trainer": {"max_epochs": engine.state.max_epochs, "epoch_length": engine.state.epoch_length}
        }
        self.target.begin(name="ignite", params={**self._params, **params})
        for handler in checkpoints:
            folder = getattr(getattr(handler, "save_handler", None), "dirname", None)
            if folder is not None:
                self.target.watch(Path(folder))

    def _step(self, engine: Any, output: Callable[[Any], Mapping[str, Any]], optimizer: Any) -> None:
        values = {f"train/{key}": value for key, value in output(engine.state.output).items()}
        if optimizer is not None:
            groups = optimizer.param_groups
            for i, group in enumerate(groups):
                values["lr" if len(groups) == 1 else f"lr/{i}"] = group["lr"]
        if values:
            self.target.log(values, engine.state.iteration)

    def _metrics(self, engine: Any, name: str, trainer: Any) -> None:
        numbers = {f"{name}/{key}": value for key, value in engine.state.metrics.items()}
        # An evaluator that runs without a training (before it, or alone) has no step of the trainer's.
        step = trainer.state.iteration or engine.state.iteration
        if numbers:
            self.target.log(numbers, step)

    def _exception(self, engine: Any, error: BaseException) -> None:
        self.target.end(error)
        # With a handler for exceptions Ignite takes them as dealt with; ours alone must not swallow one.
        if len(engine._event_handlers[Events.EXCEPTION_RAISED]) == 1:
            raise error

    def _end(self, engine: Any) -> None:
        self.target.end()


def _values(output: Any) -> Mapping[str, Any]:
    """The numbers in what a training step returned: one number is the loss."""
    if isinstance(output, Mapping):
        return {str(key): value for key, value in output.items() if number_of(value) is not None}
    return {"loss": output} if number_of(output) is not None else {}
