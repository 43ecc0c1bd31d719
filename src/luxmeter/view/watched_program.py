"""The run of a program that knows nothing of us: begun before it, ended after it, its parameters read off."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from luxmeter.errors import LuxmeterError
from luxmeter.experiment import (
    Experiment,
    hear_other_trackers,
    offer_experiment,
    params_of,
    program_ended,
    program_follows,
)
from luxmeter.import_hook import call_after_import
from luxmeter.store import Ending

if TYPE_CHECKING:
    from luxmeter.view.program import RunRequest


class Watched:
    """The experiment around a program."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self.id = experiment.id  # also when the program's own experiment goes on in its run

    @staticmethod
    def begin(request: RunRequest) -> Watched:
        """Start the run, and offer it to the experiment that the program may make itself."""
        program_follows()
        given = dict(request.params or {})
        experiment = Experiment(
            request.name if request.is_named else request.name.lstrip("./~") or "program",
            {**params_of(sys.argv[1:]), **given},
            **{"output": "all", **(request.options or {})},
        )
        experiment.given = given
        experiment.__enter__()
        offer_experiment(experiment, keeps_name=request.is_named)
        watched = Watched(experiment)
        for framework in ("numpy", "torch"):
            if framework not in sys.modules:
                call_after_import(watched._note_random, framework)
        watched._listen_to_argparse()
        experiment.offers_reading = True
        hear_other_trackers()
        return watched

    def ended(self, error: BaseException | None) -> None:
        """The program has run; what it registered for its exit is still to come, and belongs to the run."""
        program_ended(Ending() if error is None else Ending.of(error))

    def _note_random(self) -> None:
        if self._experiment.is_here():
            self._experiment.note_random()

    def _listen_to_argparse(self) -> None:
        """Whoever parses the command line with argparse tells all parameters, with defaults and types."""
        import argparse

        real: Callable[..., Any] = argparse.ArgumentParser.parse_known_args

        @functools.wraps(real)
        def listened(parser: Any, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
            parsed, extra = real(parser, args, namespace)
            if args is None or list(args) == sys.argv[1:]:
                self._take(parsed)
            return parsed, extra

        argparse.ArgumentParser.parse_known_args = listened  # type: ignore[method-assign,assignment]

    def _take(self, parsed: Any) -> None:
        simple = {name: value for name, value in vars(parsed).items() if not callable(value)}
        try:
            if self._experiment.is_here():
                self._experiment.set_params({**simple, **self._experiment.given})
        except LuxmeterError as error:
            sys.stderr.write(f"luxmeter: {error}\n")
