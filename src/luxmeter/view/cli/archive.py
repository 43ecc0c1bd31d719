"""`luxmeter archive`: leave runs out of lists without removing them."""

from __future__ import annotations

import sys

import typer

from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter archive k3x7p; luxmeter archive --undo k3x7p")
    def archive(
        runs: list[str] = run_argument(help="Runs: id, name, tag, latest~1 or path."),
        undo: bool = typer.Option(False, "--undo", help="Bring them back into lists."),
    ) -> None:
        """Archive runs: lists leave them out unless asked (luxmeter runs --archived); nothing is removed."""
        from luxmeter.experiment import find_run

        for found in [find_run(reference) for reference in runs]:
            found.archive(not undo)
            sys.stdout.write(f"{'Brought back' if undo else 'Archived'} {found.id} ({found.folder})\n")
