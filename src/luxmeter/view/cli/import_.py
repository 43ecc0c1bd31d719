"""`luxmeter import`: take runs in, from an export, TensorBoard or MLflow."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from luxmeter.errors import UsageError
from luxmeter.render import counted, print_json

_OTHERS = ("tensorboard", "mlflow")


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        "import",
        epilog="Example: luxmeter import best.tar.zst; luxmeter import tensorboard logs; luxmeter import mlflow sqlite:///mlflow.db",
    )
    def import_(
        sources: list[str] = typer.Argument(
            metavar="FILE... | tensorboard DIR | mlflow URI", help="Exported runs, or another tool's records."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Take runs into the lab. Archives with members that point outside, links or devices are refused."""
        from luxmeter.experiment import open_lab

        kind = sources[0] if sources[0] in _OTHERS and len(sources) > 1 else ""
        if sources[0] in _OTHERS and len(sources) == 1 and not Path(sources[0]).exists():
            raise UsageError(
                "import-what",
                f"Nothing was named to import from {sources[0]}.",
                f"luxmeter import {sources[0]} {'DIR' if sources[0] == 'tensorboard' else 'URI'}",
            )
        lab = open_lab()
        if kind:
            ids = [run_id for source in sources[1:] for run_id in _foreign(kind, source)]
            if as_json:
                print_json([{"id": run_id, "folder": str(lab.folder / "runs" / run_id)} for run_id in ids])
            else:
                for run_id in ids:
                    sys.stdout.write(f"Imported {run_id}\n")
                sys.stdout.write(
                    f"{counted(len(ids), 'run')} of {kind} {'is' if len(ids) == 1 else 'are'} in {lab.folder}\n"
                )
            return
        from luxmeter.experiment import import_run

        taken = [import_run(lab, Path(source)) for source in sources]
        if as_json:
            print_json(
                [{"id": t.id, "was": t.was, "already": t.already, "folder": str(t.folder)} for t in taken]
            )
            return
        for one in taken:
            if one.already:
                sys.stdout.write(f"{one.id} is here already, in {one.folder}\n")
            else:
                renamed = f" (its id {one.was} was taken by another run)" if one.was != one.id else ""
                sys.stdout.write(f"Imported {one.id}{renamed} to {one.folder}\n")


def _foreign(kind: str, source: str) -> list[str]:
    from luxmeter.experiment import open_lab

    if kind == "tensorboard":
        from luxmeter.experiment import import_tensorboard

        return list(import_tensorboard(open_lab(), Path(source)))
    from luxmeter.experiment import import_mlflow

    return list(import_mlflow(open_lab(), source))
