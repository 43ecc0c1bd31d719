"""`luxmeter run`: keep the run of a script that knows nothing of us."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from luxmeter.errors import UsageError
from luxmeter.experiment import ExperimentOptions
from luxmeter.literal import parse
from luxmeter.view.options import takes
from luxmeter.view.script import become, checked_program, interpreter_flags, program_name

if TYPE_CHECKING:
    from luxmeter.view.startup import Request


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        cls=_Command,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        epilog="Example: luxmeter run --tag baseline --trace train.py --lr 0.1",
    )
    @takes(ExperimentOptions, "tags", "note", "watch", "output", "read_output", "code", "system_s", "quiet")
    def run(
        command: list[str] | None = typer.Argument(
            None, metavar="script.py [args]...", help="The script and its arguments."
        ),
        module: str = typer.Option("", "-m", metavar="MODULE", help="Run a module, as python -m does."),
        name: str = typer.Option("", "--name", help="The experiment's name; else the script's."),
        param: list[str] | None = typer.Option(
            None, "--param", metavar="NAME=VALUE", help="A parameter besides those on the command line."
        ),
        processes: int = typer.Option(
            1,
            "--processes",
            metavar="N",
            help="Run it in so many processes, as torchrun does; rank 0 makes the run.",
        ),
        trace: bool = typer.Option(
            False,
            "--trace",
            help="Time every torch call too: RUN/trace. --trace='inside=true sample=10' chooses, as LUXMETER_TRACE.",
        ),
        trace_options: str = typer.Option("1", "--trace-options", hidden=True),
        given: Any = None,
    ) -> None:
        """Run a script and keep its run: parameters, code, environment, output, files, metrics, how it ended.

        The script runs as it does without luxmeter. If it makes a lux.Experiment itself, that writes into this run.
        """
        from luxmeter.view import program

        words = list(command or ())
        checked_program(words, module)
        request = program.RunRequest(
            name=name or program_name(words, module), is_named=bool(name), module=module,
            params=_params(param or ()), options=given,
        )  # fmt: skip
        asked = _asked_trace(trace_options, name=request.name) if trace else None
        variables = _traced(asked) if asked is not None else dict(os.environ)
        variables[program.VARIABLE] = request.text()
        if processes != 1:
            command = [sys.executable, *interpreter_flags(), program.__file__, *words]
            raise SystemExit(_launch(command, processes, variables, asked))
        become([program.__file__, *words], variables)


class _Command(TyperCommand):
    """Takes `--trace=OPTIONS` for `--trace --trace-options=OPTIONS`: the value of `--trace` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever, with the options before the script spelled out."""
        valued = {text for one in self.params for text in one.opts if not getattr(one, "is_flag", True)}
        said: list[str] = []
        rest = list(args)
        while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            if name == "--trace" and equals:
                said += ["--trace", f"--trace-options={value}"]
                continue
            said.append(word)
            if word in valued and rest:
                said.append(rest.pop(0))
        return super().parse_args(ctx, [*said, *rest])


def _launch(command: list[str], processes: int, variables: Mapping[str, str], asked: Request | None) -> int:
    from luxmeter.train import launch

    if asked is None or processes < 1:
        return launch.launch(command, processes=processes, env=variables)
    from luxmeter.view.startup.job import traced_job

    with traced_job(asked, processes) as shared:
        return launch.launch(command, processes=processes, env={**variables, **shared})


def _asked_trace(options: str, *, name: str) -> Request | None:
    """The trace that --trace asks for; what cannot be is refused before anything runs."""
    from luxmeter.view.cli.trace import check_frameworks, check_outputs
    from luxmeter.view.startup import read_request

    request = read_request(options, who="--trace")
    if request is None:
        return None
    request = replace(request, strict=True, name=request.name or name)
    check_outputs(request)
    check_frameworks()
    return request


def _traced(request: Request) -> dict[str, str]:
    """The variables of a program that is to be traced."""
    from luxmeter.view.startup import VARIABLE, environment, starts_by_itself

    variables = environment(request, os.environ)
    # The variable alone where it is enough: a path of ours would be part of what the run says it ran in.
    return {**os.environ, VARIABLE: variables[VARIABLE]} if starts_by_itself() else variables


def _params(given: list[str] | tuple[()]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                "param-form", f"--param {text!r} is not NAME=VALUE.", "Write it as --param lr=0.1."
            )
        found[name.strip()] = parse(value)
    return found
