"""`luxmeter note`: write about a run."""

from __future__ import annotations

import sys

import typer

from luxmeter.plain_text import plain
from luxmeter.render import print_json
from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter note latest 'the one in the paper'")
    def note(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        text: str | None = typer.Argument(None, help="The note; without one it is shown. '' removes it."),
        add: bool = typer.Option(
            False, "--add", help="Add the text to the note that is there, on a line of its own."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Show or write a run's note."""
        from luxmeter.experiment import find_run

        found = find_run(run)
        if text is not None:
            found.set_note("\n".join(part for part in (found.note, text) if part) if add else text)
        if as_json:
            print_json({"id": found.id, "note": found.note})
        elif text is None:
            sys.stdout.write(plain(found.note) + "\n")
        else:
            sys.stdout.write(f"Wrote the note of {found.id} in {found.folder}\n")
