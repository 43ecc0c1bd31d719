"""`luxmeter tag`: mark runs with words."""

from __future__ import annotations

import sys

import typer

from luxmeter.plain_text import one_line
from luxmeter.render import print_json
from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter tag latest best paper; luxmeter tag best --remove paper")
    def tag(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        tags: list[str] | None = typer.Argument(None, help="The tags to add; without any they are shown."),
        remove: list[str] = typer.Option(
            [], "--remove", "-r", help="A tag to take away. Repeat for several."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Show, add or remove a run's tags. A tag names its newest run in every command."""
        from luxmeter.experiment import find_run

        found = find_run(run)
        if tags:
            found.tag(*tags)
        if remove:
            found.untag(*remove)
        now = found.tags
        if as_json:
            print_json({"id": found.id, "tags": now})
        elif tags or remove:
            sys.stdout.write(
                f"{found.id} has the tags: {one_line(' '.join(now)) or 'none'} ({found.folder})\n"
            )
        else:
            sys.stdout.write(one_line(" ".join(now)) + "\n")

    @app.command(epilog="Example: luxmeter untag latest paper")
    def untag(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        tags: list[str] = typer.Argument(help="The tags to take away."),
    ) -> None:
        """Take tags away from a run: the same as tag RUN --remove TAG."""
        tag(run, tags=None, remove=tags, as_json=False)
