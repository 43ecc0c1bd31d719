"""`luxmeter rerun`: the same code and command with other parameters."""

from __future__ import annotations

import sys
from typing import Any

import typer

from luxmeter.experiment import RerunOptions
from luxmeter.plain_text import one_line
from luxmeter.render import print_json
from luxmeter.view.options import run_argument, takes
from luxmeter.view.trusted import trusted


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter rerun best lr=0.03 optim.name=sgd")
    @takes(RerunOptions, "links", "folder", "python", "quiet", "trust")
    def rerun(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        changes: list[str] | None = typer.Argument(None, metavar="[key=value]...", help="What to change."),
        given: Any = None,
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Run a run's code and command again as a new run, with changed parameters, written as its script takes them.

        Exit code 1 if the program failed or did not take a change.
        """
        from luxmeter.experiment import (
            changed_arguments,
            find_run,
            lab_of,
            split_changes,
            start_rerun,
            was_taken,
        )
        from luxmeter.view.text.runs import value_text

        first = find_run(run)
        wanted = split_changes(changes or [])
        command = first.command
        arguments = changed_arguments(
            command.argv[1:] if command else (), wanted, params=first.flat_params, sources=first.code.values()
        )
        how = {**given, "quiet": as_json or given.get("quiet", False), "trust": trusted(first, **given)}
        again = start_rerun(first, lab_of(first), arguments=arguments, random_state=False, **how)
        params = again.run.flat_params
        ignored = [k for k, text in wanted.items() if params and not was_taken(params.get(k), text)]
        if as_json:
            print_json(
                {"run": first.id, "again": again.run.id, "state": again.run.state, "command": again.command,
                 "not_taken": ignored}
            )  # fmt: skip
        else:
            sys.stdout.write(
                f"{first.id} again as {again.run.id}: {again.run.state}, in {again.run.folder}\n"
            )
            if again.run.error:
                sys.stdout.write(f"error: {one_line(again.run.error.strip().splitlines()[-1])}\n")
            for key in ignored:
                sys.stdout.write(
                    f"The script did not take {one_line(key)}: the new run has "
                    f"{value_text(params.get(key, 'none'))}. Its code sets it; change it there (luxmeter rollback --to).\n"
                )
            if wanted and not params:
                sys.stdout.write(
                    "The program recorded no parameters: whether it took the changes is not known.\n"
                )
        if ignored or again.returncode:
            raise typer.Exit(1)
