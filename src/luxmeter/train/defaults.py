"""The callbacks that every training has, unless one of their kind was hooked by the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.checkpoint import KeyErrorSave, ModelCheckpoint
from luxmeter.train.callbacks.control import Control
from luxmeter.train.callbacks.ema import EMAUpdate
from luxmeter.train.callbacks.metrics import Metrics
from luxmeter.train.callbacks.optimization import Optimization
from luxmeter.train.callbacks.profiling import TraceSteps
from luxmeter.train.callbacks.schedule import LRSchedule

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer


def add_defaults(trainer: Trainer) -> None:
    """Hook them."""
    options, callbacks = trainer.options, trainer.callbacks
    if callbacks.find(Optimization) is None:
        Optimization(
            accumulate=options.accumulate,
            clip_norm=options.clip_norm,
            clip_value=options.clip_value,
            amp=options.amp,
            if_needed=not options.takes_over,
        ).hook(trainer)
    if callbacks.find(Metrics) is None:
        Metrics().hook(trainer)
    if options.ema is not None and callbacks.find(EMAUpdate) is None:
        EMAUpdate(options.ema).hook(trainer)
    by: Any = options.schedule
    if by is not None and callbacks.find(LRSchedule) is None:
        (LRSchedule(every=by) if by in ("step", "epoch") else LRSchedule(by)).hook(trainer)
    if options.checkpoint and callbacks.find(ModelCheckpoint) is None:
        ModelCheckpoint().hook(trainer)
    if options.checkpoint and callbacks.find(KeyErrorSave) is None:
        KeyErrorSave().hook(trainer)
    if callbacks.find(Control) is None:
        Control().hook(trainer)


def trace_callback(trace: Any) -> TraceSteps | None:
    """What `train(trace=...)` means: None, True, a step, a range or (first, last), or a TraceSteps."""
    if trace is None or trace is False:
        return None
    if isinstance(trace, TraceSteps):
        return trace
    if trace is True:
        return TraceSteps(range(5, 10))
    if isinstance(trace, int):
        return TraceSteps(range(trace, trace + 1))
    if isinstance(trace, range):
        return TraceSteps(trace)
    raise UsageError(
        "trace-steps", f"trace={trace!r} names no steps.", "Give True, a step such as 10, or range(10, 15)."
    )
