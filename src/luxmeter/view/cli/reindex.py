"""`luxmeter reindex` and `luxmeter gc`: the upkeep of a lab."""

from __future__ import annotations

import sys

import typer

from luxmeter.render import counted, print_json


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @app.command(epilog="Example: luxmeter reindex")
    def reindex(as_json: bool = typer.Option(False, "--json", help="For machines.")) -> None:
        """Make the index anew from the runs' directories."""
        from luxmeter.store import Lab

        lab = Lab.open(create=False)
        count = lab.reindex()
        lab.close()
        if as_json:
            print_json({"lab": str(lab.folder), "runs": count})
        else:
            sys.stdout.write(f"The index of {lab.folder} holds {counted(count, 'run')}\n")

    @app.command(epilog="Example: luxmeter gc --keep-trash")
    def gc(
        keep_trash: bool = typer.Option(
            False, "--keep-trash", help="Leave removed runs where they can be restored."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Compact what lost runs left behind; empty the trash; remove content that no run has any more."""
        from luxmeter.experiment import forget_refs, snapshot_refs
        from luxmeter.store import Lab, Run

        lab = Lab.open(create=False)
        removed = [] if keep_trash else [row.id for row in lab.trash() if row.state != "damaged"]
        refs = snapshot_refs(Run(lab.folder / "trash" / run_id) for run_id in removed)
        done = lab.gc(empty_trash=not keep_trash)
        done["snapshots"] = forget_refs(refs)
        lab.close()
        if as_json:
            print_json(done)
        else:
            left = f", left {done['damaged']} damaged runs as they are" if done["damaged"] else ""
            sys.stdout.write(
                f"{lab.folder}: compacted {counted(done['compacted'], 'run')}, removed {done['trashed']} from the trash, "
                f"{done['half_made']} half-made, {counted(done['blobs'], 'unused blob')}, {counted(done['snapshots'], 'snapshot')} in git{left}\n"
            )
