"""`luxmeter plot`: metric curves, bands over seeds and parallel coordinates as PNG, SVG or HTML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import UsageError
from luxmeter.render import NUMBER, Column, Table, print_json, sparkline
from luxmeter.view.options import run_argument

if TYPE_CHECKING:
    from luxmeter.view.pages.plots import Plot


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter plot latest latest~1 -m loss --smooth 0.6 -o loss.png; "
        "luxmeter plot --where 'name = mnist' -m acc --repeats -o acc.html"
    )
    def plot(
        runs: list[str] = run_argument(None, help="Runs: id, name, tag, latest, path."),
        metric: list[str] = typer.Option(
            [], "--metric", "-m", help="Which metrics.  [default: all; with --parallel three]"
        ),
        where: str = typer.Option("", help="Also every run that fulfils a filter: 'name = mnist'."),
        smooth: float = typer.Option(0.0, help="Smoothing as in TensorBoard, 0 up to 1."),
        repeats: bool = typer.Option(
            False, "--repeats", help="Runs that differ only in their seed: one line, a band."
        ),
        band: str = typer.Option("ci", help="With --repeats: ci, std, range or none."),
        x: str = typer.Option("step", help="step or seconds."),
        log_y: bool = typer.Option(False, "--log-y", help="A logarithmic axis."),
        parallel: bool = typer.Option(False, "--parallel", help="Parallel coordinates instead of curves."),
        param: list[str] = typer.Option(
            [], help="With --parallel: which parameters.  [default: those that differ]"
        ),
        tensorboard: Path | None = typer.Option(
            None, help="Take the curves out of event files in this folder."
        ),
        images: Path | None = typer.Option(
            None, help="With --tensorboard: also save their pictures below this folder."
        ),
        dark: bool = typer.Option(
            False, "--dark", help="A dark picture (HTML follows the reader's own setting)."
        ),
        title: str = typer.Option("", help="Above the picture."),
        out: list[Path] = typer.Option(
            [], "-o", "--out", help=".png, .svg or .html; repeat for several. Without it: in the terminal."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines: the points of each curve."),
    ) -> None:
        """Draw metrics of runs. Without -o each curve is one line of text."""
        from luxmeter.view.pages import plots

        if tensorboard is not None:
            if runs or where or repeats or parallel or param:
                raise UsageError(
                    "plot-tensorboard-alone",
                    "--tensorboard draws event files; runs, --where, --repeats and --parallel are for the lab.",
                    "Import them first for that: luxmeter import tensorboard DIR",
                )
            _save_images(tensorboard, images)
            if images is not None and not out and not metric and not as_json:
                return
            made = plots.plot_tensorboard(tensorboard, metric, smooth=smooth, x=x, log_y=log_y, title=title)
        else:
            if images is not None:
                raise UsageError(
                    "plot-images", "--images has no event files.", "Name them with --tensorboard."
                )
            chosen = _chosen(runs or [], where)
            if parallel:
                made = plots.parallel(chosen, param, metrics=metric, title=title)
            else:
                made = plots.plot(
                    chosen, metric, smooth=smooth, repeats=repeats, band=band, x=x, log_y=log_y, title=title  # type: ignore[arg-type]
                )  # fmt: skip
        for file in out:
            written = made.save(file, dark=dark)
            if not as_json:
                sys.stdout.write(f"wrote {written}\n")
        if as_json:
            print_json(made.record())
        elif not out:
            _show(made)


def _chosen(references: list[str], where: str) -> list[Any]:
    from luxmeter.store import Lab, Run, layout

    lab = Lab.open(create=False)
    try:
        found = [lab.find(reference) for reference in references]
        if where or not references:
            rows = lab.runs(where, sort="created") if where else lab.runs("state != damaged", limit=1)
            whole = [row for row in rows if row.state != "damaged"]
            found += [Run(lab.folder / layout.RUNS / row.id, lab.folder) for row in whole]
    finally:
        lab.close()
    return list({run.id: run for run in found}.values())


def _save_images(folder: Path, into: Path | None) -> None:
    if into is None:
        return
    from luxmeter.experiment import save_tensorboard_images

    written = save_tensorboard_images(folder, into)
    sys.stdout.write(f"wrote {len(written)} pictures below {into}\n")


def _show(made: Plot) -> None:
    import numpy as np

    if made.parallel is not None:
        raise UsageError(
            "plot-needs-file", "Parallel coordinates do not fit into a line of text.", "Name a file with -o."
        )
    rows = []
    for chart in made.charts:
        for line in chart.lines:
            known = line.y[np.isfinite(line.y)]
            ends = [float(known[0]), float(known[-1])] if len(known) else [None, None]
            rows.append([chart.title, line.name, line.n, ends[0], sparkline(line.y.tolist()), ends[1]])
    columns = [
        Column("metric"),
        Column("run"),
        Column("n", NUMBER),
        Column("first", NUMBER),
        Column(""),
        Column("last", NUMBER),
    ]
    Table(columns, rows).print()
