"""`luxmeter search`: look for a better architecture within budgets."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError
from luxmeter.plain_text import one_line
from luxmeter.render import NUMBER, Column, Table, counted, print_json
from luxmeter.view.cli.zen import numbers, structure_text

if TYPE_CHECKING:
    from luxmeter.model import SearchResult
from luxmeter.view.options import run_option


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter search 'SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,2,8,1)' --params 1e5; "
        "go on: luxmeter search --resume latest --generations 32"
    )
    def search(
        ctx: typer.Context,
        start: str = typer.Argument("", help="The structure string to start from, or a file that holds one."),
        params: float | None = typer.Option(None, help="At most so many parameters: 1e6."),
        macs: float | None = typer.Option(
            None, help="At most so many MACs (multiply-adds) for one image: 400e6."
        ),
        layers: int | None = typer.Option(None, help="At most so many sub-layers."),
        latency_ms: float | None = typer.Option(
            None, help="Most milliseconds of a forward pass of one image on this machine."
        ),
        population: int = typer.Option(32, help="Candidates kept; steps in a generation."),
        generations: int | None = typer.Option(None, help="How many generations.  [default: 16]"),
        input_size: str = typer.Option("16,3,32,32", "--input", "-i", help="Batch, channels, height, width."),
        classes: int | None = typer.Option(10, help="Classes of the classifier that is counted."),
        se: bool = typer.Option(False, "--se", help="Build all residual blocks with squeeze and excitation."),
        score: str = typer.Option("zen", help="zen, naswot, synflow or grad_norm."),
        seed: int = typer.Option(0, help="All randomness comes from it."),
        resume: str = run_option(
            "--resume", help="Go on with a search: a run, RUN/search, or the file of its state."
        ),
        into: str = run_option("--into", help="Put it into this run: RUN/search, no run of its own."),
        top: int = typer.Option(5, help="Candidates shown."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Change a structure step by step and keep what scores best within budgets. Ctrl-C stops; it can go on."""
        from luxmeter.model import plainnet
        from luxmeter.view.named import into_run, run_for

        if resume:
            if start:
                raise UsageError(
                    "search-start",
                    "A search that goes on has its start already.",
                    "Give --resume or a structure, not both.",
                )
            _refuse_changes(ctx)
            state = _state_file(resume)
            with into_run(run_for(into)):
                result = plainnet.resume_search(state, generations=generations)
        else:
            if not start:
                raise UsageError(
                    "search-start",
                    "There is no structure to start from.",
                    "Give a structure string, or --resume.",
                )
            latency_s = None if latency_ms is None else latency_ms / 1e3
            with into_run(run_for(into)):
                result = plainnet.search(
                    structure_text(start).strip(),
                    budget=plainnet.Budget(params=params, macs=macs, layers=layers, latency_s=latency_s),
                    options=plainnet.SearchOptions(
                        population=population,
                        generations=16 if generations is None else generations,
                        input_size=numbers(input_size),
                        num_classes=classes,
                        use_se=se,
                        score=score,
                        seed=seed,
                    ),
                )
        show_search(result, top=top, as_json=as_json)
        if result.interrupted:
            raise typer.Exit(130)  # as a program that Ctrl-C ended


_GOES_ON_WITH = ("start", "resume", "generations", "into", "top", "as_json")


def _refuse_changes(ctx: typer.Context) -> None:
    """A search that goes on keeps its budgets and options: saying others would mean nothing."""
    said = [
        param.opts[0]
        for param in ctx.command.params
        if param.name is not None
        and param.name not in _GOES_ON_WITH
        and getattr(ctx.get_parameter_source(param.name), "name", "") == "COMMANDLINE"
    ]
    if said:
        raise UsageError(
            "search-start",
            f"A search that goes on keeps its budgets and options, and {', '.join(said)} was given.",
            "Leave it out, or start a new search from the best structure so far.",
        )


def _state_file(reference: str) -> Path:
    from luxmeter.store import find_result, results_of
    from luxmeter.view.named import named

    found = named(reference)
    if found.run is None:
        return found.path
    if results_of(found.run.folder, "search"):
        return find_result(found.run.folder, "search").path
    return found.run.file("search.json")


def show_search(result: SearchResult, *, top: int, as_json: bool) -> None:
    """The best of a search, or all of it for machines."""
    if as_json:
        print_json(
            {
                "run": result.run_id,
                "state": str(result.state_path),
                "interrupted": result.interrupted,
                "evaluated": result.evaluated,
                "population": [asdict(candidate) for candidate in result.population],
                "history": list(result.history),
            }
        )
        return
    timed = any(candidate.latency_s is not None for candidate in result.population)
    columns = ["score", "params", "MACs", "layers", *(["latency ms"] if timed else [])]
    rows = [
        [
            round(c.score, 2),
            c.params,
            c.macs,
            c.layers,
            *([round((c.latency_s or 0) * 1e3, 3)] if timed else []),
        ]
        for c in result.population[:top]
    ]
    if result.population:
        Table([Column(name, NUMBER) for name in columns], rows).print()
    best = one_line(result.best.structure) if result.population else "none within the budgets yet"
    sys.stdout.write(f"best: {best}\n{counted(result.evaluated, 'network')} scored; run {result.run_id}\n")
    if result.interrupted:
        sys.stdout.write(f"stopped early; go on with: luxmeter search --resume {result.run_id}\n")
