"""How a training is done: everything that can be chosen of a Trainer, checked before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from luxmeter.options import Check, at_least, checked_options, option

_POSITIVE = Check(
    lambda value: (
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0)
    ),
    "Give a number above zero.",
)
_DECAY = Check(
    lambda value: value is None or (isinstance(value, float) and 0 < value < 1), "Give a decay such as 0.999."
)
_COUNT = Check(
    lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0),
    "Give 1 or more, or None to keep every checkpoint.",
)
_COUNT_OR_CLOCK = Check(
    lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0),
    "Give 1 or more, or None to go by the clock.",
)
_SCHEDULE = Check(
    lambda value: not isinstance(value, str) or value in ("step", "epoch"),
    'Give "step", "epoch", a schedule such as Params.SCHE.Cos(right=1000), or a scheduler of torch.',
)


@dataclass(frozen=True)
class TrainerOptions:
    """What a Trainer does by itself."""

    accumulate: int = option(1, "Batches whose gradients make one step.", check=at_least(1))
    clip_norm: float | None = option(None, "Clip the gradients' norm to this.", check=_POSITIVE)
    clip_value: float | None = option(None, "Clip each gradient's values to this.", check=_POSITIVE)
    amp: Literal["bfloat16", "float16"] | None = option(None, "Compute in mixed precision.")
    ema: float | None = option(
        None, "Keep a moving average of the weights with this decay, and evaluate with it.", check=_DECAY
    )
    schedule: Any = option(
        None,
        'Who changes the learning rate: "step" or "epoch" (the schedulers it has), or a schedule.',
        check=_SCHEDULE,
    )
    compile: bool | str = option(False, "Compile the models (torch.compile); a name: with this backend.")
    parallel: Literal["ddp", "fsdp", "none"] | None = option(
        None,
        "With several processes: average gradients over them (ddp, also if nothing is said), shard the weights, too (fsdp), or let "
        "each train for itself (none).",
    )
    shard_units: Sequence[str] | str | None = option(
        None,
        "With parallel=fsdp: the classes of the modules that are gathered each for itself; None: blocks that come in lists.",
    )
    unused_parameters: bool = option(
        False, "With several processes: some parameters may get no gradient in a batch."
    )
    agree_every: int | None = option(
        None,
        "With several processes: batches from one look for what ends the training to the next; None: ten looks a second.",
        check=_COUNT_OR_CLOCK,
    )
    checkpoint: bool = option(True, "Save a checkpoint after each epoch.")
    max_to_keep: int | None = option(3, "So many checkpoints stay; None: all.", check=_COUNT)
    log_every: int = option(50, "Batches from one line of the log to the next.", check=at_least(1))
    quiet: bool = option(False, "No lines on the console.")
    full_traceback: bool = option(False, "Show errors with the frames of torch and Luxmeter.")
    tags: Sequence[str] | str = option((), "Tags for the run.")

    @property
    def takes_over(self) -> tuple[str, ...]:
        """The options by which backward and step are the Optimization callback's work. A compiled model may be stepped by anyone."""
        chosen = {
            "accumulate": self.accumulate > 1,
            "clip_norm": self.clip_norm is not None,
            "clip_value": self.clip_value is not None,
            "amp": self.amp is not None,
            "ema": self.ema is not None,
            "schedule": self.schedule is not None,
        }
        return tuple(name for name, is_set in chosen.items() if is_set)


class TrainerSettings(TypedDict, total=False):
    """The keyword arguments of `lux.Trainer`: the fields of TrainerOptions."""

    accumulate: int
    clip_norm: float | None
    clip_value: float | None
    amp: Literal["bfloat16", "float16"] | None
    ema: float | None
    schedule: Any
    compile: bool | str
    parallel: Literal["ddp", "fsdp", "none"] | None
    shard_units: Sequence[str] | str | None
    unused_parameters: bool
    agree_every: int | None
    checkpoint: bool
    max_to_keep: int | None
    log_every: int
    quiet: bool
    full_traceback: bool
    tags: Sequence[str] | str


def make_options(settings: TrainerSettings) -> TrainerOptions:
    """Checked options."""
    return checked_options(
        TrainerOptions,
        settings,
        who="Trainer()",
        unknown="unknown-trainer-option",
        bad="bad-trainer-option",
    )
