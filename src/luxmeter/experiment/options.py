"""How an experiment is kept, and how it is run once more: everything that can be chosen, checked before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from luxmeter.options import Check, at_least, checked_options, option

if TYPE_CHECKING:
    from luxmeter.store import Lab


def listed(given: Any) -> tuple[Any, ...]:
    """One thing or several, as a tuple."""
    return (given,) if isinstance(given, str | PathLike) else tuple(given)


_AMOUNT = at_least(0)
_OUTPUT = Check(lambda value: value in (True, False, "all"), 'Give True, False or "all".')


@dataclass(frozen=True)
class ExperimentOptions:
    """What is kept of an experiment."""

    tags: Sequence[str] | str = option((), "A tag for the run; may come again.", many=True, flags="--tag")
    note: str = option("", "A note on the run.")
    parent: Any = option(None, "An Experiment, a run or a run's id; None: the one this is made in.")
    watch: Sequence[str | PathLike[str]] | str | PathLike[str] = option(
        (), "Files that appear or change there are the run's.", many=True, metavar="FOLDER"
    )
    lab: Lab | str | PathLike[str] | None = option(
        None, "Where the run rests; None: the lab that holds here."
    )
    code: bool = option(True, "Keep the code.")
    output: bool | Literal["all"] = option(  # "all": by native code and other processes too
        True, "Keep what is printed.", check=_OUTPUT
    )
    output_bytes: int = option(16 << 20, "At most so much of what is printed.", check=_AMOUNT)
    read_output: bool = option(False, "Read metrics in what is printed: lines such as `epoch 3 loss 0.51`.")
    system_s: float = option(5.0, "Seconds between samples of CPU, memory and GPU; 0: none.", check=_AMOUNT)
    watch_s: float = option(
        5.0, "Seconds between looks into watched folders; 0: only at the end.", check=_AMOUNT
    )
    keep_file_bytes: int = option(
        64 << 20, "Larger files in watched folders are hashed, not kept.", check=_AMOUNT
    )
    keep_total_bytes: int = option(1 << 30, "At most so much of watched folders is kept.", check=_AMOUNT)
    tensorboard: str | PathLike[str] | None = option(
        None, "A folder: what is logged is written there as an event file, too."
    )
    quiet: bool = option(False, "No line at the end.")
    all_ranks: bool = option(False, "A run for every rank, not for rank 0 alone.")


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
    read_output: bool
    system_s: float
    watch_s: float
    keep_file_bytes: int
    keep_total_bytes: int
    tensorboard: str | PathLike[str] | None
    quiet: bool
    all_ranks: bool


@dataclass(frozen=True)
class RerunOptions:
    """How a run's program is started once more: keyword arguments of `start_rerun`."""

    links: Sequence[str] = option(
        (), "A path of the project, such as data, to link beside the code.", many=True, flags="--link"
    )
    folder: Path | None = option(None, "Put the code here and keep it; else a temporary folder.")
    python: str = option("", "Another interpreter than this one.")
    quiet: bool = option(False, "Do not show the program's own output.", flags="-q --quiet")
    trust: bool = option(False, "Run its program though the run was not made here by you.")


def make_options(settings: ExperimentSettings) -> ExperimentOptions:
    """Checked options."""
    return checked_options(
        ExperimentOptions,
        settings,
        who="Experiment()",
        unknown="unknown-experiment-option",
        bad="bad-experiment-option",
    )
