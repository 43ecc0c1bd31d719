"""`luxmeter reproduce`: does a run come out the same again?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.experiment import RerunOptions
from luxmeter.plain_text import one_line
from luxmeter.render import NUMBER, Column, Table, print_json
from luxmeter.view.options import run_argument, takes
from luxmeter.view.trusted import trusted

if TYPE_CHECKING:
    from luxmeter.experiment import Reproduction, Rerun
    from luxmeter.store import Run


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter reproduce best --tolerance 1e-6")
    @takes(RerunOptions, "links", "folder", "python", "quiet", "trust")
    def reproduce(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        tolerance: float = typer.Option(
            1e-5, min=0, help="The largest relative difference that still counts as the same."
        ),
        ignore: list[str] = typer.Option(
            [], "--ignore", help="Metrics to leave out; * is a wildcard. Repeat for several."
        ),
        given: Any = None,
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Run it again, with that code, command, seed and random state, as a new run; compare metric by metric.

        Exit code 0 if it came out the same, bit by bit or within the tolerance, 1 if not.
        """
        from luxmeter.experiment import find_run, lab_of, match_runs, start_rerun

        first = find_run(run)
        how = {**given, "quiet": as_json or given.get("quiet", False), "trust": trusted(first, **given)}
        again = start_rerun(first, lab_of(first), random_state=True, **how)
        found = match_runs(first, again.run, tolerance=tolerance, ignore=ignore)
        if as_json:
            print_json({"run": first.id, "again": again.run.id, "command": again.command, **asdict(found)})
        else:
            _show(first, again, found, kept="folder" in given)
        if found.outcome in ("not", "nothing to compare"):
            raise typer.Exit(1)


def _show(first: Run, again: Rerun, found: Reproduction, *, kept: bool) -> None:
    from luxmeter.experiment import code_differs

    rows = [
        [m.key, m.match, m.n or None, m.largest or None, m.why]
        for m in found.metrics
        if m.match != "left out"
    ]
    if rows:
        numbers = [Column("points", NUMBER), Column("largest difference", NUMBER)]
        Table([Column("metric"), Column("again"), *numbers, Column("")], rows).print()
    left = [m.key for m in found.metrics if m.match == "left out"]
    if left:
        sys.stdout.write(f"left out: {one_line(', '.join(left))}\n")
    if found.files_equal or found.files_different:
        sys.stdout.write(f"files: {found.files_equal} the same, {len(found.files_different)} not")
        sys.stdout.write(
            f" ({one_line(', '.join(found.files_different[:8]))})\n" if found.files_different else "\n"
        )
    for path in code_differs(first, again.run)[:8]:
        sys.stdout.write(f"note: {one_line(path)}\n")
    if again.left_out:
        shown = one_line(", ".join(again.left_out[:8]))
        sys.stdout.write(f"note: not in the snapshot, being large or secret: {shown} (--link brings them)\n")
    if again.run.error:
        sys.stdout.write(f"error: {one_line(again.run.error.strip().splitlines()[-1])}\n")
    if kept:
        sys.stdout.write(f"The code lies in {again.folder}\n")
    word = {
        "bit by bit": "reproduced bit by bit",
        "within tolerance": f"reproduced within {found.tolerance:g}",
        "not": "not reproduced",
        "nothing to compare": "cannot be said",
    }[found.outcome]
    sys.stdout.write(f"{first.id} again as {again.run.id}: {word}. {found.why}\n")
