"""`luxmeter ui`: the lab in a browser."""

from __future__ import annotations

import sys
import webbrowser

import typer

from luxmeter.errors import MissingExtraError


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter ui --port 8000; luxmeter ui --edit")
    def ui(
        port: int = typer.Option(
            8265, "--port", min=0, max=65535, help="Where it listens; 0: any that is free."
        ),
        host: str = typer.Option(
            "127.0.0.1",
            "--host",
            help="The address it listens on, to let other machines in: the link then has a token.",
        ),
        edit: bool = typer.Option(False, "--edit", help="Notes, tags and running trainings may be changed."),
        browser: bool = typer.Option(True, help="Open a browser."),
    ) -> None:
        """Look at the lab in a browser: runs, curves, traces, code, comparisons, live. Ctrl-C ends it."""
        from luxmeter.experiment import open_lab

        try:
            from luxmeter.view.app.server import serve
        except ModuleNotFoundError as error:
            if error.name not in ("starlette", "uvicorn"):
                raise
            raise MissingExtraError(
                "no-starlette", f"The app needs the package {error.name}.", "pip install 'luxmeter[ui]'"
            ) from error
        lab = open_lab(create=False).folder

        def said(address: str) -> None:
            sys.stderr.write(f"luxmeter: {lab} is shown at {address} (Ctrl-C ends it)\n")
            if browser and sys.stderr.isatty():
                webbrowser.open(address)

        serve(lab, host=host, port=port, edit=edit, said=said)
