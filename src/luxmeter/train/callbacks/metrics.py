"""What batches return, into the epoch's averages and into the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from luxmeter.errors import UsageError
from luxmeter.experiment import Meter
from luxmeter.store import RunWriter, number_of
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

_FLUSH = 50  # batches whose values stay on an accelerator: reading one waits for all that was asked of it


class Metrics(Callback):
    """Logs every number of what train_batch returns as `train/<name>`, and the averages of evaluations and tests."""

    priority = 20

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[int, dict[str, Any]]] = []
        self._writer: RunWriter | None = None
        self._waits = False

    def before_train(self, trainer: Trainer) -> None:
        """Find where to write."""
        self._writer = trainer.experiment.writer if trainer.experiment is not None else None
        self._waits = trainer.device.type != "cpu"
        self._waiting = []

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Take what the batch returned."""
        if result.__class__ is Tensor:
            result = {"loss": result}
        elif result is None:
            return
        elif not isinstance(result, Meter | Mapping):
            raise UsageError(
                "batch-result",
                f"{type(trainer).__name__}.train_batch returned a {type(result).__name__}.",
                "Return a Meter, a dict, the loss, or None.",
            )
        trainer.meter.update(result)
        if self._writer is None:
            return
        step = trainer.position.global_step
        if self._waits:
            self._waiting.append((step, {k: _kept(v) for k, v in result.items()}))
            if len(self._waiting) >= _FLUSH:
                self._flush()
        else:
            self._log(step, result)

    def after_epoch(self, trainer: Trainer, meter: Any) -> None:
        """Write what waits."""
        self._flush()

    def after_eval(self, trainer: Trainer, meter: Any) -> None:
        """Log the averages."""
        self._log_averages(trainer, "eval", meter)

    def after_test(self, trainer: Trainer, meter: Any) -> None:
        """Log the averages."""
        self._log_averages(trainer, "test", meter)

    def after_train(self, trainer: Trainer) -> None:
        """Write what waits."""
        self._flush()

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """Write what waits."""
        self._flush()

    def _log(self, step: int, values: Any) -> None:
        names, found = self._names, {}
        for name, value in values.items():
            number = value if value.__class__ is float else number_of(value)
            if number is not None:
                whole = names.get(name)
                if whole is None:
                    whole = names[name] = f"train/{name}"
                found[whole] = number
        if found and self._writer is not None:
            self._writer.log(found, step)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for step, values in waiting:
            self._log(step, values)

    def _log_averages(self, trainer: Trainer, which: str, meter: Any) -> None:
        if trainer.experiment is not None and len(meter):
            found = {
                f"{which}/{n}": number
                for n, value in meter.to_dict().items()
                if (number := number_of(value)) is not None
            }
            trainer.experiment.log(found, step=trainer.position.done)


def _kept(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
