"""`luxmeter report`: a run, or several, told whole on one page."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from luxmeter.errors import UsageError
from luxmeter.view.options import run_argument, run_option


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter report latest latest~1 -o report.html; luxmeter report -o report.md"
    )
    def report(
        runs: list[str] = run_argument(None, help="Runs: id, name, tag, latest, path.  [default: latest]"),
        out: Path = typer.Option(Path("report.html"), "-o", "--out", help="Where to write it: .html or .md."),
        against: str = run_option(
            "--against",
            help="The run that one is compared with.  [default: the one of its name before it]",
        ),
        notebook: bool = typer.Option(
            False, "--notebook", help="Write a notebook (.ipynb) that has been executed instead."
        ),
    ) -> None:
        """Everything a run holds on one page that needs nothing else: summary, parameters, curves, the hottest calls, flame graph,
        operators' benchmark, model cost, what changed since another run, repeats, code and output."""
        from luxmeter.experiment import find_run
        from luxmeter.view.pages.report import write_report

        found = [find_run(reference) for reference in runs or ["latest"]]
        other = find_run(against) if against else None
        if other is not None and len(found) > 1:
            raise UsageError(
                "report-against",
                f"--against compares one run, and {len(found)} are named.",
                "Name one run, or leave --against out: several are put side by side.",
            )
        if notebook:
            if len(found) > 1:
                raise UsageError(
                    "report-against",
                    f"--notebook tells one run, and {len(found)} are named.",
                    "Name one run.",
                )
            from luxmeter.view.pages.notebook_report import notebook_report

            path = notebook_report(found[0], out.with_suffix(".ipynb"))
        else:
            path = write_report(found, out, against=other)
        sys.stderr.write(f"luxmeter: wrote {path}\n")
