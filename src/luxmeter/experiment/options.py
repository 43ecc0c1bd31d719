"""How an experiment is kept: everything that can be chosen, checked before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment.capture.watch_files import KeepLimits

if TYPE_CHECKING:
    from luxmeter.store import Lab


@dataclass(frozen=True)
class ExperimentOptions:
    """What is kept of an experiment."""

    tags: Sequence[str] | str = ()
    note: str = ""
    parent: Any = None  # an Experiment, a run or a run's id; None: the experiment this one is made in
    watch: Sequence[str | PathLike[str]] | str | PathLike[str] = ()  # folders whose files are the run's
    lab: Lab | str | PathLike[str] | None = None  # where the run rests; None: the lab that holds here
    code: bool = True  # keep the code that runs
    output: bool | Literal["all"] = (
        True  # keep what is printed; "all": by native code and other processes too
    )
    output_bytes: int = 16 << 20  # at most so much of it
    system_s: float = 5.0  # seconds between samples of CPU, memory and GPU; 0: none
    watch_s: float = 5.0  # seconds between looks into watched folders; 0: only at the end
    keep_file_bytes: int = KeepLimits.file_bytes  # larger files in watched folders are hashed, not kept
    keep_total_bytes: int = KeepLimits.total_bytes
    tensorboard: str | PathLike[str] | None = (
        None  # a folder: what is logged is written there as an event file too
    )
    quiet: bool = False  # no line at the end
    all_ranks: bool = False  # a run for every rank, not for rank 0 alone


class ExperimentSettings(TypedDict, total=False):
    """The keyword arguments of `lux.Experiment`: the fields of ExperimentOptions."""

    tags: Sequence[str] | str
    note: str
    parent: Any
    watch: Sequence[str | PathLike[str]] | str | PathLike[str]
    lab: Lab | str | PathLike[str] | None
    code: bool
    output: bool | Literal["all"]
    output_bytes: int
    system_s: float
    watch_s: float
    keep_file_bytes: int
    keep_total_bytes: int
    tensorboard: str | PathLike[str] | None
    quiet: bool
    all_ranks: bool


def make_options(settings: ExperimentSettings) -> ExperimentOptions:
    """Checked options."""
    known = [field.name for field in fields(ExperimentOptions)]
    for name in settings:
        if name not in known:
            raise UsageError(
                "unknown-experiment-option",
                f"Experiment() has no option {name!r}.",
                suggestion(name, known) or f"It knows {', '.join(known)}.",
            )
    options = ExperimentOptions(**settings)
    for name in ("system_s", "watch_s", "output_bytes", "keep_file_bytes", "keep_total_bytes"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise UsageError(
                "bad-experiment-option",
                f"Experiment() cannot use {name}={value!r}.",
                "Give a number of 0 or more.",
            )
    if options.output not in (True, False, "all"):
        raise UsageError(
            "bad-experiment-option",
            f"Experiment() cannot use output={options.output!r}.",
            'Give True, False or "all".',
        )
    return options


def listed(given: Any) -> tuple[Any, ...]:
    """One thing or several, as a tuple."""
    return (given,) if isinstance(given, str | PathLike) else tuple(given)
