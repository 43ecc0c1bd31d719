"""`luxmeter run`: keep the run of a script that knows nothing of us."""

from __future__ import annotations

import os
from typing import Any

import typer

from luxmeter.errors import UsageError
from luxmeter.experiment import ExperimentOptions
from luxmeter.view.options import takes


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        epilog="Example: luxmeter run --tag baseline train.py --lr 0.1",
    )
    @takes(ExperimentOptions, "tags", "note", "watch", "output", "code", "system_s", "quiet")
    def run(
        command: list[str] | None = typer.Argument(
            None, metavar="script.py [args]...", help="The script and its arguments."
        ),
        module: str = typer.Option("", "-m", metavar="MODULE", help="Run a module, as python -m does."),
        name: str = typer.Option("", "--name", help="The experiment's name; else the script's."),
        param: list[str] | None = typer.Option(
            None, "--param", metavar="NAME=VALUE", help="A parameter besides those on the command line."
        ),
        given: Any = None,
    ) -> None:
        """Run a script and keep its run: parameters, code, environment, output, files, metrics, how it ended.

        The script runs as without it. If it makes a lux.Experiment itself, that goes on in this run.
        """
        from luxmeter.view import program
        from luxmeter.view.script import become, checked_program, program_name

        words = list(command or ())
        checked_program(words, module)
        request = program.RunRequest(
            name=name or program_name(words, module), is_named=bool(name), module=module,
            params=_params(param or ()), options=given,
        )  # fmt: skip
        become([program.__file__, *words], {**os.environ, program.VARIABLE: request.text()})


def _params(given: list[str] | tuple[()]) -> dict[str, Any]:
    from luxmeter.literal import parse

    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                "param-form", f"--param {text!r} is not NAME=VALUE.", "Write it as --param lr=0.1."
            )
        found[name.strip()] = parse(value)
    return found
