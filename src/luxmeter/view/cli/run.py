"""`luxmeter run`: keep the run of a script that knows nothing of us."""

from __future__ import annotations

import os
from typing import Any

import typer

from luxmeter.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        epilog="Example: luxmeter run --tag baseline train.py --lr 0.1",
    )
    def run(
        command: list[str] | None = typer.Argument(
            None, metavar="script.py [args]...", help="The script and its arguments."
        ),
        module: str = typer.Option("", "-m", metavar="MODULE", help="Run a module, as python -m does."),
        name: str = typer.Option("", "--name", help="The experiment's name; else the script's."),
        tag: list[str] | None = typer.Option(None, "--tag", help="A tag for the run; may come again."),
        note: str = typer.Option("", "--note", help="A note on the run."),
        watch: list[str] | None = typer.Option(
            None, "--watch", metavar="FOLDER", help="Files that appear or change there are the run's."
        ),
        param: list[str] | None = typer.Option(
            None, "--param", metavar="NAME=VALUE", help="A parameter besides those on the command line."
        ),
        no_output: bool = typer.Option(False, "--no-output", help="Do not keep what is printed."),
        no_code: bool = typer.Option(False, "--no-code", help="Do not keep the code."),
        system_s: float = typer.Option(
            5.0, "--system-s", min=0, help="Seconds between samples of CPU, memory and GPU; 0: none."
        ),
        quiet: bool = typer.Option(False, "--quiet", help="No line at the end."),
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
            params=_params(param or ()), tags=tuple(tag or ()), watch=tuple(watch or ()), note=note,
            output=not no_output, code=not no_code, system_s=system_s, quiet=quiet,
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
