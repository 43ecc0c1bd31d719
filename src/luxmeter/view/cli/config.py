"""`luxmeter config`: the variables of the user and of the lab."""

from __future__ import annotations

import sys
from typing import Any

import typer

from luxmeter.errors import UsageError
from luxmeter.literal import parse, show
from luxmeter.plain_text import plain
from luxmeter.render import print_json
from luxmeter.settings import find_lab, globs, without_password


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter config --global datasets /data/sets")
    def config(
        name: str = typer.Argument("", help="The variable."),
        value: str = typer.Argument("", help="Its new value; without it the present one is shown."),
        use_global: bool = typer.Option(False, "--global", help="The user's variables."),
        use_local: bool = typer.Option(False, "--local", help="The lab's variables."),
        unset: bool = typer.Option(False, "-u", "--unset", help="Remove the variable."),
        trust: bool = typer.Option(
            False,
            "--trust",
            help="Accept the database and the program outside of this lab that its settings name.",
        ),
        listing: bool = typer.Option(False, "-l", "--list", help="List the variables."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Show, set and remove variables. Local wins over global, LUXMETER_<NAME> over both."""
        if use_global and use_local:
            raise UsageError(
                "config-both-scopes", "Both --global and --local were given.", "Give one of them."
            )
        scope = "global" if use_global else "local" if use_local else ""
        if trust:
            _trust()
        elif listing:
            _list(scope, as_json)
        elif not name:
            raise UsageError("config-no-name", "No variable was named.", "List them with: luxmeter config -l")
        elif unset:
            globs.remove(_scope_of(scope), name)
            sys.stdout.write(f"Removed {name} from the {scope} settings\n")
        elif value:
            globs.update(_scope_of(scope), name, parse(value))
            sys.stdout.write(plain(f"{name} = {without_password(show(globs.scope(scope)[name]))}\n"))
        else:
            found = globs.scope(scope)[name] if scope and name in globs.scope(scope) else globs[name]
            if as_json:
                print_json(_shown({name: found}))
            else:
                sys.stdout.write(plain(f"{without_password(show(found))}\n"))


def _trust() -> None:
    lab = find_lab().folder
    found = globs.trust()
    for name, value in found.items():
        sys.stdout.write(plain(f"trusted: {name} = {without_password(show(value))}, of the lab {lab}\n"))
    if not found:
        sys.stdout.write(f"The settings of the lab {lab} name nothing outside of it.\n")


def _scope_of(scope: str) -> str:
    if not scope:
        raise UsageError(
            "config-no-scope",
            "It was not said which variables to change.",
            "Add --global (yours) or --local (this lab's).",
        )
    return scope


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    return {name: without_password(v) if isinstance(v, str) else v for name, v in values.items()}


def _list(scope: str, as_json: bool) -> None:
    if as_json:
        names = [scope] if scope else ["global", "local"]
        print_json({name: _shown(globs.scope(name)) for name in names})
    else:
        globs.list_config(globa=scope != "local", local=scope != "global")
