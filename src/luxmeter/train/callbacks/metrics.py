"""What batches return, into the epoch's averages and into the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from luxmeter.errors import UsageError
from luxmeter.experiment import Meter
from luxmeter.store import RunWriter, number_of
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

# Its methods are those underneath: a trace shows the user's calls, not ours.
_TENSOR: Any = getattr(torch._C, "TensorBase", Tensor)


class Metrics(Callback):
    """Logs every number of what train_batch returns as `train/<name>`, and the averages of evaluations and tests."""

    priority = 20

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._alone = Meter()  # holds a loss that came without one: a Meter of every batch's own takes longer
        self._writer: RunWriter | None = None

    def before_train(self, trainer: Trainer) -> None:
        """Find where to write."""
        self._writer = trainer.experiment.writer if trainer.experiment is not None else None

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Take what the batch returned."""
        if result.__class__ is Tensor:
            number = _number(result)
            self._alone["loss"] = result if number is None else number
            trainer.meter.update(self._alone)
            if number is not None and self._writer is not None:
                self._writer.log({"train/loss": number}, trainer.position.global_step)
            return
        values = metrics_in(result, trainer, "train")
        if values is None:
            return
        trainer.meter.update(values)
        if self._writer is None:
            return
        names, found = self._names, {}
        for name, value in values.items():
            number = value if value.__class__ is float else _number(value)
            if number is not None:
                whole = names.get(name)
                if whole is None:
                    whole = names[name] = f"train/{name}"
                found[whole] = number
        if found:
            self._writer.log(found, trainer.position.global_step)

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """Log the averages."""
        self._log_averages(trainer, "eval", meter)

    def after_test(self, trainer: Trainer, meter: Any) -> None:
        """Log the averages."""
        self._log_averages(trainer, "test", meter)

    def _log_averages(self, trainer: Trainer, which: str, meter: Any) -> None:
        # They are those of all ranks, and rank 0 has the run.
        if trainer.experiment is not None and trainer.experiment.writer is not None and len(meter):
            found = {
                f"{which}/{n}": number
                for n, value in meter.to_dict().items()
                if (number := number_of(value)) is not None
            }
            trainer.experiment.log(found, step=trainer.position.done)


def _number(value: Any) -> Any:
    """number_of, with the usual loss first. Of an accelerator's tensor it is a copy, read later: nothing waits for it here."""
    if value.__class__ is Tensor and value.is_cpu and not value.ndim:
        number = _TENSOR.item(value)
        if number.__class__ is float:
            return number
    return number_of(value)


def metrics_in(result: Any, trainer: Trainer, which: str) -> Meter | Mapping[str, Any] | None:
    """What train_batch, eval_batch or test_batch returned, as metrics by name: the loss alone is one, too."""
    if isinstance(result, Meter | Mapping) or result is None:
        return result
    if isinstance(result, Tensor):
        return {"loss": result}
    # Of an evaluation it may be anything.
    if which == "train" and isinstance(result, int | float | np.number) and not isinstance(result, bool):
        return {"loss": result}
    raise UsageError(
        "batch-result",
        f"{type(trainer).__name__}.{which}_batch returned a {type(result).__name__}.",
        "Return a Meter, a dict of metrics, the loss, or None.",
    )
