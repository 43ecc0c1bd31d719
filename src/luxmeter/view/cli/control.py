"""`luxmeter control`: ask something of a training that is under way."""

from __future__ import annotations

import sys

import typer

from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter control latest pause; luxmeter control latest set lr=0.01")
    def control(
        run: str = run_argument(help="The run: id, name, tag, latest~1 or path."),
        what: str = typer.Argument("status", help="status, pause, resume, checkpoint, stop or set."),
        changes: list[str] | None = typer.Argument(
            None, metavar="[key=value]...", help="With set: the learning rate (lr), or a parameter."
        ),
        wait_s: float = typer.Option(
            10.0, "--wait-s", min=0, help="Seconds to wait for the answer; 0: do not wait."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Pause, resume, save, stop or change the training of a Trainer that is under way, or ask where it stands.

        The training obeys at the end of the step it is in, and the run keeps a note of it.
        """
        from luxmeter.experiment import find_run, split_changes
        from luxmeter.plain_text import one_line
        from luxmeter.render import print_json
        from luxmeter.train import control_run

        found = find_run(run)
        said = control_run(found, what, split_changes(changes or []), wait_s=wait_s)
        if as_json:
            print_json({"run": found.id, **said.to_dict()})
            return
        sys.stdout.write(f"{found.id} {one_line(found.name)}: {one_line(said.text)}\n")
        facts = {"lr": " ".join(f"{rate:g}" for rate in said.lr)} if said.lr else {}
        facts |= {one_line(name): f"{value:.4g}" for name, value in said.metrics.items()}
        for name, text in facts.items() if what == "status" else ():
            sys.stdout.write(f"  {name:{max(map(len, facts))}}  {text}\n")
