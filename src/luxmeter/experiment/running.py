"""The experiments of this process that have not ended, and what ends them when the program does."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from luxmeter.described import DescribedMapping
from luxmeter.experiment.capture import redaction
from luxmeter.store import Ending, RunWriter


class OpenExperiment(Protocol):
    """What is asked of an experiment that has not ended."""

    def is_here(self) -> bool:
        """Whether this process began it."""

    def after_fork(self) -> None:
        """In a child."""

    def end_as(self, outcome: Ending) -> None:
        """End it."""

    def log_from(self, source: str, values: Mapping[str, Any], step: int | None) -> None:
        """Keep what the program told somebody else."""

    def discard(self) -> None:
        """Leave no run."""


_open: list[OpenExperiment] = []
_offered: OpenExperiment | None = (
    None  # the run of the whole program, which its first own experiment takes over
)
_named = False  # and whether the user gave that run its name
_exit: SystemExit | None = None
_program: Ending | None = None
_errors_before: list[BaseException | None] = []


def add(experiment: OpenExperiment) -> None:
    """It has begun."""
    if not _open:
        _errors_before[:] = [
            getattr(sys, "last_value", None)
        ]  # at a prompt, errors of before are not its own
    _open.append(experiment)


def remove(experiment: OpenExperiment) -> None:
    """It has ended."""
    if experiment in _open:
        _open.remove(experiment)


def newest_here() -> OpenExperiment | None:
    """The experiment of this process that was begun last and goes on."""
    return next((each for each in reversed(_open) if each.is_here()), None)


@contextlib.contextmanager
def listening_for_exit() -> Iterator[None]:
    """Hear what sys.exit() is given: an experiment without a with-block cannot see the exception pass."""
    real = sys.exit

    def listened(status: Any = None, /) -> Any:
        global _exit
        _exit = SystemExit(status)
        return real(status)

    sys.exit = listened
    try:
        yield
    finally:
        if sys.exit is listened:
            sys.exit = real


# -- `luxmeter run`: one run for the program, whether or not it makes an experiment of its own ---------------------


def offer_experiment(experiment: OpenExperiment, *, keeps_name: bool) -> None:
    """Let the program's first own experiment go on in this one's run."""
    global _offered, _named
    _offered, _named = experiment, keeps_name


def claim() -> OpenExperiment | None:
    """The offered experiment, once."""
    global _offered
    taken, _offered = _offered, None
    return taken if taken is not None and taken in _open and taken.is_here() else None


def take_offered() -> OpenExperiment | None:
    """The same on a rank that makes no run, where none is open."""
    global _offered
    taken, _offered = _offered, None
    return taken


def adopt(
    run: RunWriter,
    name: str,
    params: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    *,
    parent: str | None,
) -> None:
    """Give the run the name, parent and parameters of the program's own experiment; those `given` by the user stay."""
    run.rename(run.name if _named else name, parent=parent)
    if params is not None:
        run.set_params(redaction.hide_params(DescribedMapping({**params, **given})))


# -- the end of the program ----------------------------------------------------------------------------------------


def program_ended(ending: Ending) -> None:
    """`luxmeter run` saw how the program ended."""
    global _program
    _program = ending


def _outcome() -> Ending:
    if _program is not None:
        return _program
    error = getattr(sys, "last_value", None)
    if isinstance(error, BaseException) and error not in _errors_before:
        return Ending.of(error)
    return Ending.of(_exit) if _exit is not None else Ending(exit_code=None)


def _at_exit() -> None:
    for experiment in reversed(_open.copy()):
        with contextlib.suppress(Exception):
            experiment.end_as(_outcome())


def _after_fork() -> None:
    for experiment in _open:
        experiment.after_fork()


atexit.register(
    _at_exit
)  # after the store's own, which ends what nobody ended: so this one is called before it
os.register_at_fork(after_in_child=_after_fork)
