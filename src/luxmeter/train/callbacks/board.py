"""A training's curves as event files of TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from luxmeter.errors import UsageError
from luxmeter.experiment import Meter, TensorBoardFiles, hide_params
from luxmeter.store import Histogram, inside, layout, number_of
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class BoardCallback(Callback):
    """Writes event files into the run's `board` folder: `tensorboard --logdir LAB/runs` shows them.

    Every `every` batches the numbers that train_batch returned (`train/loss`) and the learning rates (`lr`); the averages of
    evaluations and tests; the parameters, in the tab HPARAMS. `histograms=n`: how the weights are spread, every n epochs.
    On an accelerator, reading a number waits for it: there `every` should not be small. Needs the package tensorboard.
    """

    priority = 75

    def __init__(self, every: int = 10, *, rates: bool = True, histograms: int = 0) -> None:
        for name, number, least in (("every", every, 1), ("histograms", histograms, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise UsageError(
                    "board-every",
                    f"{name}={number!r} does not say how often.",
                    f"Give a whole number from {least} on.",
                )
        self.every = every
        self.rates = rates
        self.histograms = histograms
        self._files: TensorBoardFiles | None = None

    def before_train(self, trainer: Trainer) -> None:
        """Begin an event file."""
        self._files = _made(trainer)
        if self._files is not None:
            self._files.set_params(hide_params(trainer.experiment.params if trainer.experiment else {}))

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Write what the batch gave, if it is time."""
        done = trainer.position.done
        if self._files is None or done % self.every:
            return
        values = {"loss": result} if isinstance(result, Tensor | float | int) else result
        found = {}
        if isinstance(values, Meter | Mapping):
            found = {f"train/{name}": value for name, value in _numbers(values).items()}
        if self.rates:
            found |= _rates(trainer)
        if found:
            self._files.log(found, trainer.position.global_step)

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Write the weights' histograms, if it is time."""
        if self._files is not None and self.histograms and trainer.position.eidx % self.histograms == 0:
            for name, model in trainer.models.items():
                weights = {
                    f"weights/{name}.{key}": Histogram(value) for key, value in model.named_parameters()
                }
                if weights:
                    self._files.log(weights, trainer.position.done)

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """Write the averages."""
        self._write_averages(trainer, "eval", meter)

    def after_test(self, trainer: Trainer, meter: Any) -> None:
        """Write the averages."""
        self._write_averages(trainer, "test", meter)

    def after_train(self, trainer: Trainer) -> None:
        """Close the file."""
        self._close("finished")

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Close the file."""
        self._close("failed")

    def _write_averages(self, trainer: Trainer, which: str, meter: Meter) -> None:
        values = {f"{which}/{name}": value for name, value in _numbers(meter.to_dict()).items()}
        files = self._files or _made(trainer)  # an evaluation outside of a training has a file of its own
        if files is None:
            return
        files.log(values, trainer.position.done)
        if files is not self._files:
            files.close()

    def _close(self, state: str) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close(state)


def _made(trainer: Trainer) -> TensorBoardFiles | None:
    """An event file in the run; None where there is no run."""
    writer = trainer.experiment.writer if trainer.experiment is not None else None
    return None if writer is None else TensorBoardFiles(inside(writer.folder / layout.FILES, "board"))


def _numbers(values: Any) -> dict[str, Any]:
    found = {name: number_of(value) for name, value in values.items()}
    return {name: number for name, number in found.items() if number is not None}


def _rates(trainer: Trainer) -> dict[str, float]:
    rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return {"lr" if len(rates) == 1 else f"lr/{i}": float(rate) for i, rate in enumerate(rates)}
