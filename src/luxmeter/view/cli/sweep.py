"""`luxmeter sweep`: one program with many values."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.options import given_to
from luxmeter.plain_text import one_line
from luxmeter.render import counted, print_json
from luxmeter.train import JobOptions, SweepOptions, WorkerOptions
from luxmeter.view.cli.queue import PROGRAM, WorkerLine, never_begun, opened, working
from luxmeter.view.options import takes

if TYPE_CHECKING:
    from luxmeter.train import Sweep


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        context_settings={"ignore_unknown_options": True},  # which are the program's
        epilog="Example: luxmeter sweep train.py --grid lr=0.1,0.01 --seeds 3 --metric eval/acc",
    )
    @takes((SweepOptions, JobOptions, WorkerOptions))
    def sweep(
        program: Path = PROGRAM,
        arguments: list[str] | None = typer.Argument(
            None, metavar="[args]...", help="What all trials share; of a config: key=value."
        ),
        given: Any = None,
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Try many values of parameters: each is a job of the queue, all are run now.

        Options that sweep does not have go to the program, as does all that follows --.
        Ctrl-C starts no more jobs, waits for those that run and leaves the rest in the queue, where luxmeter queue work takes them up.
        """
        from luxmeter.train import Sweep

        options = SweepOptions(**given_to(SweepOptions, given))
        jobs = JobOptions(**given_to(JobOptions, given))
        work, line = WorkerOptions(**given_to(WorkerOptions, given)), WorkerLine()
        with opened(create=True) as queue:
            made = Sweep(queue, program, arguments or [], options, jobs)
            with working(queue, work, line, made.name) as worker, _live(made, line) as shown:
                made.run(worker, shown=shown)
            for text in never_begun(worker):
                line.say(text)
            _show(made, as_json)
        if worker.never or any(
            trial.state not in ("done", "queued") and not _pruned(trial) for trial in made.trials
        ):
            raise typer.Exit(1)


def _pruned(trial: Any) -> bool:
    return any(job.why.startswith("pruned") for job in trial.jobs)


def _show(sweep: Sweep, as_json: bool) -> None:
    from luxmeter.view.text.jobs import best_line, trial_records, trial_table

    ranked, metric = sweep.ranked, sweep.options.metric
    if as_json:
        print_json({"sweep": sweep.name, "trials": trial_records(ranked)})
        return
    trial_table(ranked, metric).print()
    left = sum(job.state == "queued" for trial in ranked for job in trial.jobs)
    if left:
        verb = "waits" if left == 1 else "wait"
        sys.stdout.write(
            f"{counted(left, 'job')} of {sweep.name} {verb}: luxmeter queue work --group {sweep.name}\n"
        )
    failed = [job.id for trial in ranked for job in trial.jobs if job.state == "failed"]
    if failed:
        sys.stdout.write(
            f"{counted(len(failed), 'job')} failed: luxmeter queue log {min(failed)} shows what it printed\n"
        )
    sys.stdout.write(f"{one_line(best_line(sweep.name, ranked, metric, sweep.options.mode))}\n")


@contextlib.contextmanager
def _live(sweep: Sweep, line: WorkerLine) -> Iterator[Any]:
    """On a terminal a table that is kept up to date; elsewhere a line an event."""
    if not sys.stderr.isatty():
        yield lambda one: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from luxmeter.view.text.jobs import trial_table

    console = Console(stderr=True)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        line.use(console)

        def show(one: Sweep) -> None:
            rows = one.ranked[: max(3, console.height - 4)]
            live.update(Text(trial_table(rows, one.options.metric).text(console.width)), refresh=True)

        yield show
