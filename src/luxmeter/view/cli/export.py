"""`luxmeter export`: a run as one file or folder, to keep elsewhere or hand on."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter export best -o best.tar.zst")
    def export(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        out: Path | None = typer.Option(
            None, "-o", "--out", help=".tar.zst, .tar.gz, .tar or .zip; a name without ending is a folder."
        ),
    ) -> None:
        """Write a whole run (metrics, code, kept files, logs) to a file that luxmeter import takes."""
        from luxmeter.experiment import export_run, find_run

        found = find_run(run)
        target = export_run(found, out or Path(f"{found.id}.tar.zst"))
        sys.stdout.write(f"Wrote {found.id} to {target}\n")
