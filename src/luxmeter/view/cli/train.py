"""`luxmeter train`: train what a config says."""

from __future__ import annotations

import sys
from bdb import BdbQuit
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.view.completion import complete_run
from luxmeter.view.script import interpreter_flags

if TYPE_CHECKING:
    from luxmeter.train import PyConfig


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        cls=_Command,
        epilog="Example: luxmeter new config; luxmeter train config.py epoch=2 optimizer.lr=0.05; "
        "go on: luxmeter train config.py epoch=4 --resume; in two processes: luxmeter train config.py --processes 2",
    )
    def train(
        context: typer.Context,
        config: Path = typer.Argument(help="A Python config file; of a kept run: RUN/files/config.py."),
        override: list[str] | None = typer.Argument(
            None, metavar="KEY=VALUE", help="Other values for keys of the config; +KEY=VALUE adds one."
        ),
        name: str = typer.Option("", "--name", help="The run's name; else the config's."),
        resume: str = typer.Option(
            "",
            "--resume",
            metavar="[=RUN]",
            autocompletion=complete_run,
            help="Go on from the latest checkpoint of the last run of this name, of RUN, or from a file.",
        ),
        debug: bool = typer.Option(
            False,
            "--debug",
            help="To use breakpoint(): data is read without worker processes, and errors are shown whole.",
        ),
        processes: int = typer.Option(
            1,
            "--processes",
            metavar="N",
            help="So many on this machine, that train together; torchrun, srun and mpirun start them on several.",
        ),
        restarts: int = typer.Option(
            0,
            "--restarts",
            metavar="K",
            help="With --processes: when one fails, start all again, up to so many times; they go on from the last checkpoint.",
        ),
        debug_rank: int | None = typer.Option(
            None,
            "--debug-rank",
            metavar="R",
            help="--debug in several processes: breakpoint() stops in rank R alone, and the others wait.",
        ),
        dry_run: bool = typer.Option(
            False, "--dry-run", help="Check the config and print it as resolved; build and train nothing."
        ),
    ) -> None:
        """Train what a config says: a run is made, trained, evaluated and kept, the config with it.

        A value gets the type of what it replaces; what the config computes from it changes with it.
        """
        from luxmeter.experiment import job_given
        from luxmeter.train import launch

        is_evaluated = job_given() is not None  # by `luxmeter eval`: one process does that
        if processes != 1 and not (dry_run or launch.is_launched() or is_evaluated):
            command = [sys.executable, *interpreter_flags(), "-m", "luxmeter", "train", *context.meta[_WORDS]]
            raise SystemExit(
                launch.launch(command, processes=processes, debug_rank=debug_rank, restarts=restarts)
            )
        if restarts and not (launch.is_launched() or is_evaluated):
            raise UsageError(
                "restarts",
                f"--restarts {restarts} is for the processes that --processes starts, and it starts none here.",
                "Give --processes 2 or more; torchrun has --max-restarts.",
            )
        if debug_rank is not None:
            launch.wait_for_debugged(debug_rank)
            debug = True
        from luxmeter.train import (
            PyConfig,
            dist,
            importable,
            load_plugins,
            project_of,
            train_config,
        )

        project = project_of(config)
        with importable(project):
            try:
                if not dry_run:
                    dist.ensure_group()
                load_plugins(project)
                read = PyConfig.fromfile(config, override or ())
                if dry_run:
                    _show(read)
                    return
                train_config(read, name=name or None, resume=resume == _LAST or resume or False, debug=debug)
            except KeyboardInterrupt:
                raise SystemExit(130) from None  # the Trainer has said what it saved
            except LuxmeterError as error:
                if debug:
                    raise dist.end_failed(error) from None
                notes = "".join(f"{note}\n" for note in getattr(error, "__notes__", ()))
                raise dist.end_failed(error, f"luxmeter: {error}\n{notes}", code=2) from None
            except BdbQuit as error:
                raise dist.end_failed(error, "luxmeter: the debugger was left\n") from None
            except Exception as error:  # noqa: BLE001 - of the user's code
                if not debug:
                    from luxmeter.frames import users_frames

                    error = error.with_traceback(users_frames(error.__traceback__, ""))
                raise dist.end_failed(error) from None


_WORDS = "luxmeter.words"
_LAST = "the last run of this name"


class _Command(TyperCommand):
    """Takes `--resume` without a value, too, and `--key=value` for `key=value`, as Params do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As ever, with these spelled out."""
        ctx.meta[_WORDS] = list(args)
        own = [text for one in self.params for text in one.opts]
        said = [f"--resume={_LAST}" if word == "--resume" else word for word in args]
        return super().parse_args(
            ctx,
            [
                w[2:] if w.startswith("--") and "=" in w and w.partition("=")[0] not in own else w
                for w in said
            ],
        )


def _show(config: PyConfig) -> None:
    config.check()
    sys.stdout.write(config.dump())
