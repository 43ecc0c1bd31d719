"""`luxmeter new`: a config or a project to begin with."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer

from luxmeter.view.command_help import Help


def register(app: typer.Typer) -> None:
    """Add the commands."""
    new = typer.Typer(
        cls=Help,
        help="Write a config or a project to begin with; it runs as it is.",
        epilog="Example: luxmeter new config; luxmeter train config.py; a whole project: luxmeter new project spirals",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.add_typer(new, name="new")

    @new.command(epilog="Example: luxmeter new config config.py; luxmeter train config.py")
    def config(
        file: Path = typer.Argument(
            Path("config.py"), help="Where to write it; an existing file is never overwritten."
        ),
    ) -> None:
        """Write a Python config with comments: a classifier of made-up images, trained in seconds."""
        from luxmeter.train import new_config

        path = new_config(file)
        sys.stdout.write(f"Wrote {path}. Train it: luxmeter train {shlex.quote(str(path))}\n")

    @new.command(epilog="Example: luxmeter new project spirals; cd spirals; luxmeter train configs/small.py")
    def project(
        folder: Path = typer.Argument(metavar="NAME", help="Its name, or the folder to make."),
    ) -> None:
        """Write a project: a package with a dataset, a loss and a task of its own, configs, a test, pre-commit hooks.

        Luxmeter finds its classes by an entry point in its pyproject.toml, installed or not.
        """
        from luxmeter.train import new_project

        for path in new_project(folder):
            sys.stdout.write(f"Wrote {path}\n")
        sys.stdout.write(f"Train it: cd {shlex.quote(str(folder))}; luxmeter train configs/small.py\n")
