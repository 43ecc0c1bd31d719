"""Chosen steps of a training measured: by Luxmeter's own trace, or by torch.profiler; both into the run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Unpack

import torch

from luxmeter import scratch
from luxmeter.calls import Trace, TraceSettings, trace
from luxmeter.errors import UsageError, suggestion
from luxmeter.ranks import is_main
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.dist import barrier, broadcast_object

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


class _Steps(Callback):
    """Something that is begun before one step and ended after another, when the optimizer has stepped.

    Steps count from 0, as global_step does. A training that begins inside them, resumed say, has the rest of them measured.
    """

    priority = 45  # behind Optimization, Metrics, EMAUpdate and LRSchedule: the whole step is measured

    def __init__(self, steps: range) -> None:
        if not isinstance(steps, range) or not len(steps) or steps.step != 1 or steps.start < 0:
            raise UsageError("trace-steps", f"{steps!r} names no steps.", "Give such as range(10, 15).")
        self.steps = steps
        self._first: int | None = None  # that is measured
        self._last = -1

    def before_batch(self, trainer: Trainer, batch: Any) -> None:
        """Begin, if it is the first of the steps."""
        step = trainer.position.global_step
        if self._first is None and step in self.steps and self._last < 0:
            self.begin(trainer)
            self._first = step

    def after_batch(self, trainer: Trainer, result: Any) -> None:
        """End, if it is the last of the steps."""
        if self._first is not None:
            self._last = trainer.position.global_step
            if self._last + 1 >= self.steps.stop:
                self._finish(trainer)
                if trainer._training.in_step is not None:
                    barrier()  # what is read from here on is that of all ranks
            else:
                self.next_step()

    def after_train(self, trainer: Trainer) -> None:
        """End, if the training was shorter; say so if it had none of the steps."""
        self._finish(trainer)
        if self._last < 0:
            asked = f"{self.steps.start} to {self.steps.stop - 1}"
            trainer.logger.warn(f"{type(self).__name__}: none of the steps {asked} was trained on")
        self._last = -1  # another training may begin inside them

    def on_exception(self, trainer: Trainer, error: BaseException) -> None:
        """End."""
        self._finish(trainer)
        self._last = -1

    def _finish(self, trainer: Trainer) -> None:
        if self._first is None:
            return
        first, self._first = self._first, None
        # Of a step that failed what there is.
        self.end(trainer, first, max(first, self._last))

    def begin(self, trainer: Trainer) -> None:
        """Begin to measure."""
        raise NotImplementedError

    def next_step(self) -> None:
        """A step is over, and not the last."""

    def end(self, trainer: Trainer, first: int, last: int) -> None:
        """End, and put what was measured into the run."""
        raise NotImplementedError


class TraceSteps(_Steps):
    """The API calls of some steps (lux.trace, with its settings), into the run: `luxmeter show RUN/trace`."""

    def __init__(self, steps: range = range(5, 10), **settings: Unpack[TraceSettings]) -> None:
        super().__init__(steps)
        trace(**settings)  # refuses what it does not know, now and not in the middle of a training
        self.settings = settings
        self._trace: Trace | None = None

    def begin(self, trainer: Trainer) -> None:
        """Start the trace; of other ranks than the first, beside its own."""
        folder = None
        if is_main():
            self._trace = trace(**self.settings).start()
            folder = str(self._trace.folder)
        if trainer._training.in_step is not None:
            folder = broadcast_object(folder)
            if not is_main():
                self._trace = trace(**{**self.settings, "keep": folder}).start()
            barrier()  # else the first step would seem to wait for the ranks whose trace begins last

    def next_step(self) -> None:
        """Mark it."""
        if self._trace is not None:
            self._trace.step()

    def end(self, trainer: Trainer, first: int, last: int) -> None:
        """Stop the trace."""
        if self._trace is not None:
            began, self._trace = self._trace, None
            began.step()
            began.stop()
            trainer.logger.info(f"Steps {first} to {last} are traced: luxmeter show {_run(trainer)}/trace")


class ProfilerCallback(_Steps):
    """torch.profiler.profile (with its settings) over some steps; its trace lies in the run as `profile-<first step>.json`."""

    def __init__(self, steps: range = range(5, 10), **settings: Any) -> None:
        super().__init__(steps)
        known = set(inspect.signature(torch.profiler.profile).parameters) - {"schedule", "on_trace_ready"}
        for name in settings:
            if name not in known:
                raise UsageError(
                    "profiler-setting",
                    f"ProfilerCallback was given {name!r}, which it does not take.",
                    suggestion(name, known)
                    or f"It takes {', '.join(sorted(known))}; which steps, says steps=.",
                )
        self.settings = settings
        self._profiler: torch.profiler.profile | None = None

    def begin(self, trainer: Trainer) -> None:
        """Start the profiler."""
        self._profiler = torch.profiler.profile(**self.settings)
        self._profiler.start()

    def next_step(self) -> None:
        """Mark it."""
        if self._profiler is not None:
            self._profiler.step()

    def end(self, trainer: Trainer, first: int, last: int) -> None:
        """Stop it and put its trace into the run."""
        if self._profiler is None:
            return
        began, self._profiler = self._profiler, None
        began.stop()
        experiment = trainer.experiment
        if experiment is not None and experiment.writer is not None:
            with scratch.folder("profile") as folder:
                file = folder / "profile.json"
                began.export_chrome_trace(str(file))
                lies = experiment.add_file(file, f"profile-{first}.json")
            trainer.logger.info(f"Steps {first} to {last} are profiled: {lies}")


def _run(trainer: Trainer) -> str:
    return (trainer.experiment.id[:5] if trainer.experiment is not None else "") or "RUN"
