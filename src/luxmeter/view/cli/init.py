"""`luxmeter init`: make a lab."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from luxmeter.settings import LAB_FILE, LAB_FOLDER, find_lab


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter init; luxmeter doctor")
    def init(
        folder: Path = typer.Argument(Path(), help="The project's folder."),
    ) -> None:
        """Make a lab in a project's folder: runs made below it are kept there."""
        from luxmeter.store import Lab

        place = folder.absolute() / LAB_FOLDER
        there = (place / LAB_FILE).is_file()
        Lab.open(place)
        sys.stdout.write(f"{'There is already a lab' if there else 'Made a lab'} in {place}\n")
        used = find_lab(folder.absolute())
        if used.folder.resolve() != place.resolve():
            sys.stdout.write(
                f"But another lab is in force: {used.folder} ({used.said_by}). Runs made here are kept there until that is unset.\n"
            )
