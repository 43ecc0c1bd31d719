"""`luxmeter rm`: remove runs, with a way back."""

from __future__ import annotations

import sys

import typer

from luxmeter.errors import StoreError, suggestion
from luxmeter.render import Column, Table, print_json
from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter rm k3x7p; luxmeter rm --undo k3x7p; luxmeter rm --list")
    def rm(
        runs: list[str] | None = run_argument(None, help="Runs: id, name, tag, latest~1."),
        undo: bool = typer.Option(
            False, "--undo", help="Bring runs back; without a name the one removed last."
        ),
        listing: bool = typer.Option(False, "--list", help="What is in the trash."),
        as_json: bool = typer.Option(False, "--json", help="For machines, with --list."),
    ) -> None:
        """Move runs to the lab's trash, from where --undo brings them back until luxmeter gc empties it."""
        from luxmeter.experiment import open_lab

        lab = open_lab(create=False)
        if listing:
            trashed = lab.trash()
            if as_json:
                place = lab.folder / "trash"
                print_json([{"id": r.id, "name": r.name, "folder": str(place / r.id)} for r in trashed])
            elif trashed:
                Table([Column("id"), Column("name")], [[run.id, run.name] for run in trashed]).print()
            else:
                sys.stdout.write("The trash is empty.\n")
            return
        if undo:
            for run_id in _trashed(runs or []):
                sys.stdout.write(f"Brought back {run_id} to {lab.restore(run_id)}\n")
            return
        if not runs:
            raise StoreError(
                "rm-nothing", "No run is named.", "Name runs to remove, or use --undo or --list."
            )
        found = dict.fromkeys(lab.folder_of(reference) for reference in runs)
        for folder in found:  # all are there and none runs, before the first one goes
            if lab.is_running(folder):
                raise StoreError(
                    "run-is-running", f"Run {folder.name} is still running.", "Stop it first, then remove it."
                )
        for folder in found:
            run_id = lab.delete(str(folder))
            sys.stdout.write(
                f"Removed {run_id} to {lab.folder / 'trash' / run_id} (luxmeter rm --undo {run_id})\n"
            )


def _trashed(references: list[str]) -> list[str]:
    """Ids in the trash: whole ones, unique beginnings, or the last one removed."""
    from luxmeter.experiment import open_lab

    trash = open_lab(create=False).trash()
    if not references and trash:
        return [trash[0].id]
    found = []
    for reference in references or [""]:
        fit = [run.id for run in trash if run.id == reference] or [
            run.id for run in trash if reference and (run.id.startswith(reference) or run.name == reference)
        ]
        if len(fit) != 1:
            raise StoreError(
                "not-in-trash",
                f"The trash holds {len(fit) or 'no'} run{'s' if len(fit) > 1 else ''} called {reference!r}.",
                suggestion(reference, [run.id for run in trash]) or "luxmeter rm --list shows what it holds.",
            )
        found += fit
    return found
