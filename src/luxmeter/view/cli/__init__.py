"""The `luxmeter` command: one file a verb.

Every module of this package has `register(app)`, which adds its command; a module imports what is heavy only
inside the command, so that `luxmeter --help` is quick.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import typer

from luxmeter import __version__
from luxmeter.errors import LuxmeterError
from luxmeter.torch_extra import is_about_torch, needs_torch


def build_app() -> typer.Typer:
    """The application with all commands."""
    app = typer.Typer(
        name="luxmeter",
        help="Measures what your torch gives: every API call timed, every operator replayable, every run kept.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def _options(
        version: bool = typer.Option(False, "--version", help="Show the version and end.", is_eager=True),
    ) -> None:
        if version:
            sys.stdout.write(f"luxmeter {__version__}\n")
            raise typer.Exit

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}").register(app)
    return app


def main() -> None:
    """Run the command line. What a user can mend is told in one line, without a traceback; exit code 2."""
    try:
        build_app()()
    except LuxmeterError as error:
        sys.stderr.write(f"luxmeter: {error}\n")
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        if not is_about_torch(error):
            raise
        sys.stderr.write(f"luxmeter: {needs_torch('This command')}\n")
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of our output has gone: `luxmeter runs | head`
        sys.stderr.close()
        raise SystemExit(141) from None
