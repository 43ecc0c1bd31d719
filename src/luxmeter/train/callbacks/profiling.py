"""Chosen steps of a training measured: by Luxmeter's own trace, or by torch.profiler; both into the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import torch

from luxmeter.calls import Trace, TraceSettings, trace
from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class _Steps(Callback):
    """Something that is begun before one step and ended after another."""

    priority = 0

    def __init__(self, steps: range) -> None:
        if not isinstance(steps, range) or not len(steps) or steps.step != 1 or steps.start < 0:
            raise UsageError("trace-steps", f"{steps!r} names no steps.", "Give such as range(10, 15).")
        self.steps = steps

    def before_batch(self, trainer: Trainer, batch: Any) -> None:
        """Begin, if it is the first of the steps."""
        if trainer.position.global_step == self.steps.start:
            self.begin(trainer)

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """End, if it is the last of the steps."""

    def after_train(self, trainer: Trainer) -> None:
        """End, if the training was shorter."""
        self.end(trainer)

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """End."""
        self.end(trainer)

    def begin(self, trainer: Trainer) -> None:
        """Begin to measure."""
        raise NotImplementedError

    def end(self, trainer: Trainer) -> None:
        """End, and keep what was measured; nothing if it was not begun."""
        raise NotImplementedError


class TraceSteps(_Steps):
    """The API calls of some steps (lux.trace), into the run: `luxmeter show RUN/trace`."""

    def __init__(self, steps: range = range(5, 10), **settings: Unpack[TraceSettings]) -> None:
        super().__init__(steps)
        self.settings = settings
        self._trace: Trace | None = None

    def begin(self, trainer: Trainer) -> None:
        """Start the trace."""
        self._trace = trace(**self.settings)
        self._trace.start()

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Count the step; stop behind the last."""
        if self._trace is not None and trainer.position.global_step + 1 >= self.steps.stop:
            self.end(trainer)

    def end(self, trainer: Trainer) -> None:
        """Stop the trace."""
        if self._trace is not None:
            began, self._trace = self._trace, None
            began.stop()
            trainer.logger.info(
                f"Steps {self.steps.start} to {self.steps.stop - 1} are traced: show RUN/trace"
            )


class ProfilerCallback(_Steps):
    """torch.profiler over some steps; its trace lies in the run as `profile-<step>.json`."""

    def __init__(self, steps: range = range(5, 10), **settings: Any) -> None:
        super().__init__(steps)
        self.settings = settings
        self._profiler: torch.profiler.profile | None = None

    def begin(self, trainer: Trainer) -> None:
        """Start the profiler."""
        self._profiler = torch.profiler.profile(**self.settings)
        self._profiler.start()

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """Tell it of the step; stop behind the last."""
        if self._profiler is not None:
            if trainer.position.global_step + 1 >= self.steps.stop:
                self.end(trainer)
            else:
                self._profiler.step()

    def end(self, trainer: Trainer) -> None:
        """Stop it and put its trace into the run."""
        if self._profiler is None:
            return
        began, self._profiler = self._profiler, None
        began.stop()
        experiment = trainer.experiment
        if experiment is not None and experiment.writer is not None:
            from luxmeter import scratch

            with scratch.folder("profile") as folder:
                file = folder / "profile.json"
                began.export_chrome_trace(str(file))
                kept = experiment.add_file(file, f"profile-{self.steps.start}.json")
            trainer.logger.info(f"Steps {self.steps.start} to {self.steps.stop - 1} are profiled: {kept}")
