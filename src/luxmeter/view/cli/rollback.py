"""`luxmeter rollback`: a run's code and checkpoints back into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from luxmeter.plain_text import one_line
from luxmeter.render import counted, print_json
from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter rollback best --to ../as-it-was")
    def rollback(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        to: Path | None = typer.Option(None, "--to", help="A folder; without it the project you stand in."),
        code: bool = typer.Option(True, "--code/--no-code", help="The code."),
        checkpoints: bool = typer.Option(
            True, "--checkpoints/--no-checkpoints", help="Kept files of watched folders."
        ),
        dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be done, do nothing."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Bring a run's code and checkpoints back; never overwrites changes that are neither committed nor kept by a run."""
        from luxmeter.experiment import find_run, roll_back

        found = find_run(run)
        done = roll_back(found, to, code=code, checkpoints=checkpoints, dry_run=dry_run)
        if as_json:
            print_json({**vars(done), "folder": str(done.folder), "run": found.id, "dry_run": dry_run})
            return
        for path in done.written:
            was = f"   (what was there is saved in {done.replaced[path]})" if path in done.replaced else ""
            sys.stdout.write(f"{'would write' if dry_run else 'wrote'} {one_line(path)}{was}\n")
        for path in done.not_kept:
            sys.stdout.write(f"not kept: {one_line(path)}\n")
        verb = "Would bring" if dry_run else "Brought"
        sys.stdout.write(
            f"{verb} back {found.id} to {done.folder}: {counted(len(done.written), 'file')} written, {len(done.equal)} were the same\n"
        )
