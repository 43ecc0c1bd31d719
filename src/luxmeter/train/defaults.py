"""The callbacks that every training has, unless one of their kind was hooked by the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luxmeter.errors import UsageError
from luxmeter.train.callbacks.callback import Callback
from luxmeter.train.callbacks.checkpoint import KeyErrorSave, ModelCheckpoint
from luxmeter.train.callbacks.control import Control
from luxmeter.train.callbacks.ema import EMAUpdate
from luxmeter.train.callbacks.metrics import Metrics
from luxmeter.train.callbacks.optimization import Optimization
from luxmeter.train.callbacks.profiling import TraceSteps
from luxmeter.train.callbacks.schedule import LRSchedule, UnusedSchedulers

if TYPE_CHECKING:
    from luxmeter.train.trainer import Trainer

_TRACED = 5  # steps, by trace=True; so many come before, and are not like the others
# By which callback an option acts.
_ACTS_BY: dict[type[Callback], tuple[str, ...]] = {
    Optimization: ("accumulate", "clip_norm", "clip_value", "amp"),
    EMAUpdate: ("ema",),
    LRSchedule: ("schedule",),
}


def add_defaults(trainer: Trainer) -> None:
    """Hook them."""
    options, add = trainer.options, trainer.callbacks.add_default
    add(
        Optimization(
            accumulate=options.accumulate,
            clip_norm=options.clip_norm,
            clip_value=options.clip_value,
            amp=options.amp,
            if_needed=not options.takes_over,
        )
    )
    add(Metrics())
    if options.ema is not None:
        add(EMAUpdate(options.ema))
    by: Any = options.schedule
    if by is not None:
        add(LRSchedule(every=by) if by in ("step", "epoch") else LRSchedule(by))
    elif trainer.schedulers and trainer.callbacks.find(LRSchedule) is None:
        add(UnusedSchedulers())
    if options.checkpoint:
        add(ModelCheckpoint())
        add(KeyErrorSave())
    add(Control())


def check_options(trainer: Trainer) -> None:
    """Refuse an option that a callback of the user's own, or another option, leaves without effect."""
    if trainer.options.shard_units is not None and trainer.options.parallel != "fsdp":
        raise UsageError(
            "shard-units",
            f"shard_units is set, but parallel is {trainer.options.parallel!r}: nothing is sharded.",
            'Give parallel="fsdp", or leave it out.',
        )
    for kind, names in _ACTS_BY.items():
        chosen = [name for name in names if name in trainer.options.takes_over]
        found = trainer.callbacks.find(kind)
        if chosen and found is not None and not trainer.callbacks.is_default(found):
            raise UsageError(
                "option-and-callback",
                f"{chosen[0]} is set, but {type(found).__name__} was hooked, which does not know of it.",
                f"Give it to {type(found).__name__}, or leave one of them out.",
            )


def trace_callback(trace: Any) -> TraceSteps | None:
    """What `train(trace=...)` means: None, True, a step, a range, or a TraceSteps."""
    if trace is None or trace is False:
        return None
    if isinstance(trace, TraceSteps):
        return trace
    if trace is True:
        return TraceSteps()  # of which steps is known when the training begins
    if isinstance(trace, int) and trace >= 0:
        return TraceSteps(range(trace, trace + 1))
    if isinstance(trace, range):
        return TraceSteps(trace)
    raise UsageError(
        "trace-steps", f"trace={trace!r} names no steps.", "Give True, a step such as 10, or range(10, 15)."
    )


def usual_steps(first: int) -> range:
    """The steps that trace=True means, of a training that begins at `first`."""
    return range(first + _TRACED, first + 2 * _TRACED)
