"""`luxmeter top`: what goes on now."""

from __future__ import annotations

import sys

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter top; luxmeter top --once; luxmeter top --metric eval/acc")
    def top(
        once: bool = typer.Option(
            False, "--once", help="Print the table once; also what happens where no terminal is."
        ),
        metric: str = typer.Option(
            "", "--metric", help="The metric whose curve is drawn; without it, a loss."
        ),
        every_s: float = typer.Option(1.0, "--every-s", min=0.1, help="Seconds from one look to the next."),
        ended_s: float = typer.Option(
            60.0, "--ended-s", min=0, help="Seconds that a run stays after its end."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines, once."),
    ) -> None:
        """Watch the runs that go on: state, step, time left, metrics, CPU and memory; look into one, or stop it."""
        from luxmeter.render import print_json
        from luxmeter.settings import find_lab

        lab = find_lab()
        if not lab.exists:
            if as_json:
                print_json([])
            else:
                sys.stdout.write("No run is kept here yet.\n")
            return
        from luxmeter.view.top import Top, can_show, print_once, show

        made = Top(lab.folder, metric=metric, ended_s=ended_s)
        if not (once or as_json) and can_show(sys.stdin, sys.stdout):
            try:
                show(made, every_s=every_s, keyboard=sys.stdin, out=sys.stdout)
            except KeyboardInterrupt:
                return
            return
        if not (once or as_json) and sys.stdout.isatty():
            sys.stderr.write("luxmeter: no keys can be read here: the table is printed once\n")
        made.look()
        if as_json:
            print_json(made.records())
        else:
            print_once(made)
