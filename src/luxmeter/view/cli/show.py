"""`luxmeter show`: everything about one run, or a trace's table."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter show latest; luxmeter show train-trace")
    def show(
        what: str = typer.Argument(
            "latest", help="A run (id, name, tag, latest~1, path), a trace or a benchmark."
        ),
        log: bool = typer.Option(False, "--log", help="What the program printed, and nothing else."),
        system: bool = typer.Option(False, "--system", help="The machine's metrics too."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Show a run: how it was made, parameters, metrics with their curves, code, files, output."""
        path = Path(what).expanduser()
        if (path / "trace.json").is_file():
            _show_trace(path, as_json)
            return
        if path.is_file() and path.suffix == ".json":
            _show_benchmark(path, as_json)
            return
        from luxmeter.experiment import find_run
        from luxmeter.render import plain, print_json
        from luxmeter.view.text.run import write_page

        run = find_run(what)
        if log:
            text = run.log_text
            sys.stdout.write(plain(text) if sys.stdout.isatty() else text)
        elif as_json:
            print_json(run.record())
        else:
            write_page(run, sys.stdout, width=shutil.get_terminal_size((100, 24)).columns, system=system)


def _show_trace(path: Path, as_json: bool) -> None:
    from luxmeter.view.saved_trace import show_saved
    from luxmeter.view.startup import Request

    show_saved(str(path), Request(), window="", depth=None, by="", as_json=as_json)


def _show_benchmark(path: Path, as_json: bool) -> None:
    from luxmeter.operators import load_benchmark
    from luxmeter.render import print_json

    found = load_benchmark(path)
    if as_json:
        print_json(found.records())
    else:
        found.show()
