"""`luxmeter eval`: a kept run evaluated, with the weights of one of its checkpoints."""

from __future__ import annotations

import sys
from typing import Any

import typer

from luxmeter.experiment import RerunOptions
from luxmeter.view.options import run_argument, takes
from luxmeter.view.trusted import trusted


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(name="eval", epilog="Example: luxmeter eval latest --on test --checkpoint best")
    @takes(RerunOptions, "links", "folder", "python", "quiet", "trust")
    def evaluate(
        run: str = run_argument(help="The run of a Trainer: id, name, tag, latest~1 or path."),
        on: str = typer.Option("eval", "--on", help="Which data: eval or test."),
        checkpoint: str = typer.Option(
            "latest", "--checkpoint", help="latest, best, that of a step (120), or a file."
        ),
        keep: bool = typer.Option(True, "--keep/--no-keep", help="Put the result into the run: RUN/eval."),
        given: Any = None,
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Evaluate a kept run, with the code that it captured: its program runs up to the training and evaluates instead.

        Nothing is trained and no run is made. Where a Trainer gives functions to regist_databundler, only the data asked for is made.
        """
        from luxmeter.experiment import find_run
        from luxmeter.plain_text import one_line
        from luxmeter.render import print_json
        from luxmeter.torch_extra import require_torch
        from luxmeter.train import evaluate_run

        require_torch("luxmeter eval")
        found = find_run(run)
        sys.stderr.write(
            f"luxmeter: evaluating {found.id} ({one_line(found.name)}) with the code that it captured\n"
        )
        how = {**given, "quiet": as_json or given.get("quiet", False), "trust": trusted(found, **given)}
        made = evaluate_run(found, on=on, checkpoint=checkpoint, keep=keep, **how)
        for note in made.notes:
            sys.stderr.write(f"luxmeter: note: {one_line(note)}\n")
        if keep:
            sys.stderr.write(f"luxmeter: put into {found.id}/eval\n")
        if as_json:
            print_json(made.to_dict())
        else:
            made.show()
