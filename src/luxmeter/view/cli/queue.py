"""`luxmeter queue`: jobs that wait for room, and the worker that runs them."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import StoreError, UsageError
from luxmeter.plain_text import one_line
from luxmeter.render import counted, print_json
from luxmeter.train import JobOptions, WorkerOptions
from luxmeter.view.command_help import Help
from luxmeter.view.options import takes

if TYPE_CHECKING:
    from luxmeter.store import Job
    from luxmeter.train import Queue, Worker

PROGRAM: Any = typer.Argument(metavar="script.py|config.py", help="A script, or a config of luxmeter train.")
_RECENT = 10


def register(app: typer.Typer) -> None:
    """Add the commands."""
    queue = typer.Typer(
        cls=Help,
        name="queue",
        help="Queue scripts and configs, and run them when there is room: add, list, cancel, wait, log, work.",
        no_args_is_help=True,
        epilog="Example: luxmeter queue add train.py --lr 0.1; luxmeter queue work",
    )
    app.add_typer(queue)
    for command in (_add, _list, _cancel, _wait, _log, _work):
        command(queue)


def _add(queue: typer.Typer) -> None:
    @queue.command(
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        epilog="Example: luxmeter queue add --memory 4GB --retries 1 train.py --lr 0.1",
    )
    @takes(JobOptions)
    def add(
        program: Path = PROGRAM,
        arguments: list[str] | None = typer.Argument(
            None, metavar="[args]...", help="Its arguments; of a config: key=value."
        ),
        given: Any = None,
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Queue a script or config, with the code around it as it is now. luxmeter queue work runs it."""
        from luxmeter.train import Wanted

        options = JobOptions(**given)
        with opened(create=True) as jobs:
            (job,) = jobs.add(program, [Wanted(arguments or [])], options)
        if as_json:
            print_json(job.record())
        else:
            sys.stdout.write(f"job {job.id} queued: {one_line(' '.join(job.typed))}\n")


def _list(queue: typer.Typer) -> None:
    @queue.command("list", epilog="Example: luxmeter queue list --state failed")
    def show(
        state: list[str] = typer.Option(
            [], "--state", help="queued, running, done, failed, cancelled or lost. Repeat: any of them."
        ),
        group: str = typer.Option("", "--group", help="The jobs of this sweep."),
        every: bool = typer.Option(False, "--all", help=f"All that ended, not the last {_RECENT} alone."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """List jobs: those that run and wait, and the last that ended."""
        from luxmeter.store import ENDED, JOB_STATES
        from luxmeter.view.text.jobs import job_table

        for word in state:
            if word not in JOB_STATES:
                raise UsageError(
                    "unknown-job-state", f"No job is ever {word!r}.", f"Choose among {', '.join(JOB_STATES)}."
                )
        with opened() as jobs:
            found = jobs.table.jobs(*state, group=group)
        if as_json:
            print_json([job.record() for job in found])
            return
        ended = [job for job in found if job.state in ENDED]
        left_out = 0 if every or state else max(0, len(ended) - _RECENT)
        hidden = {job.id for job in ended[:left_out]}
        shown = [job for job in found if job.id not in hidden]
        if not shown:
            sys.stdout.write("No job is queued.\n" if not (state or group) else "No job fulfils this.\n")
            return
        job_table(shown, now_ns=time.time_ns()).print()
        if left_out:
            sys.stdout.write(f"... and {left_out} that ended before: --all shows them\n")


def _cancel(queue: typer.Typer) -> None:
    @queue.command(epilog="Example: luxmeter queue cancel 3 4")
    def cancel(
        job: list[str] = typer.Argument(help="Jobs by number, or a sweep by its name."),
        force: bool = typer.Option(
            False, "--force", help="Forget a job whose machine is gone; no worker is asked to end it."
        ),
    ) -> None:
        """Cancel jobs: one that waits never starts, one that runs is ended, and what was to follow it is cancelled."""
        from luxmeter.store import ENDED
        from luxmeter.train import Worker, engine_named, was_left

        with opened() as jobs:
            found = jobs.find_several(job)
            left = [one for one in found if one.state not in ENDED]
            for one in left or found:  # of a sweep that is half done, the other half
                now = jobs.cancel(one, why="cancelled by hand", force=force)
                if now.state == "running" and was_left(now):
                    engine = engine_named(now.engine)
                    Worker(jobs, engine, slots=1).end_left(now)
                    engine.close()
                    now = jobs.find(now.id)
                word = "cancelled" if now.state == "cancelled" else "will be ended by its worker"
                sys.stdout.write(f"job {now.id} {word}\n")


def _wait(queue: typer.Typer) -> None:
    @queue.command(epilog="Example: luxmeter queue wait 3 && luxmeter show latest")
    def wait(
        job: list[str] | None = typer.Argument(
            None, help="Jobs by number, or a sweep by its name; else all that wait or run."
        ),
    ) -> None:
        """Wait until jobs have ended. Exit code 0 if all of them are done, 1 if not."""
        from luxmeter.store import ENDED
        from luxmeter.train import line_of_job

        with opened() as jobs:
            wanted = jobs.find_several(job) if job else jobs.table.jobs("queued", "running")
            open_ones = [one for one in wanted if one.state not in ENDED]
            if open_ones:
                sys.stderr.write(
                    f"waiting for {counted(len(open_ones), 'job')}; luxmeter queue work runs them\n"
                )
            ended = jobs.wait(one.id for one in wanted)
        for one in ended:
            sys.stdout.write(f"{one_line(line_of_job('ended', one))}\n")
        if any(one.state != "done" for one in ended):
            raise typer.Exit(1)


def _log(queue: typer.Typer) -> None:
    @queue.command(epilog="Example: luxmeter queue log 3 -f")
    def log(
        job: str = typer.Argument(help="The job's number."),
        follow: bool = typer.Option(False, "-f", "--follow", help="Go on until the job has ended."),
    ) -> None:
        """Show what a job printed, of all its attempts."""
        from luxmeter.store import ENDED

        with opened() as jobs:
            found = jobs.find(job)
            file, at = jobs.log_file(found), 0
            while True:
                has_ended = found.state in ENDED  # asked before reading: what is printed until then is shown
                if file.is_file():
                    with file.open("rb") as stream:
                        stream.seek(at)
                        body = stream.read()
                    at += len(body)
                    sys.stdout.buffer.write(body)
                    sys.stdout.flush()
                if has_ended or not follow:
                    break
                time.sleep(0.2)
                found = jobs.find(job)
        if not at:
            said = f": {found.why}" if found.why else ""
            sys.stderr.write(
                one_line(f"job {found.id} is {found.state} and has printed nothing{said}") + "\n"
            )


def _work(queue: typer.Typer) -> None:
    @queue.command(epilog="Example: luxmeter queue work --slots 2 --drain")
    @takes(WorkerOptions)
    def work(
        given: Any = None,
        drain: bool = typer.Option(False, "--drain", help="End when nothing is left to do."),
        group: str = typer.Option("", "--group", help="Only the jobs of this sweep."),
    ) -> None:
        """Run jobs as there is room for them, until Ctrl-C: then those that run are waited for; again: they are ended.

        Several workers share the jobs of a lab. Jobs outlive a worker that is killed; the next one goes on with them.
        """
        options, line = WorkerOptions(**given), WorkerLine()
        with opened(create=True) as jobs, working(jobs, options, line, group) as worker, line.shown(worker):
            worker.work(drain=drain, pause=line.pause)
        for text in never_begun(worker):
            sys.stdout.write(f"{text}\n")
        sys.stdout.write(f"{line.summary()}\n")


class WorkerLine:
    """What the worker does, in a line that is kept up to date on a terminal, in a line an event elsewhere."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._status: Any = None
        self._console: Any = None
        self._worker: Worker | None = None

    @contextlib.contextmanager
    def shown(self, worker: Worker) -> Iterator[None]:
        """On a terminal, keep the line up to date inside."""
        self._worker = worker
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console

        self.use(Console(stderr=True))
        with self._console.status("") as self._status:
            yield

    def use(self, console: Any) -> None:
        """Say things above what this console of rich keeps up to date."""
        self._console = console

    def told(self, event: str, job: Job) -> None:
        """Hear of a job that began or ended."""
        from luxmeter.train import line_of_job

        if event == "ended":
            self._counts[job.state] = self._counts.get(job.state, 0) + 1
        self.say(one_line(line_of_job(event, job)))

    def say(self, text: str) -> None:
        """Say something above the line."""
        if self._console is not None:
            self._console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(f"{text}\n")

    def pause(self, seconds: float) -> None:
        """Bring the line up to date, and wait."""
        if self._status is not None and self._worker is not None:
            ids = ", ".join(str(job.id) for job in self._worker.running) or "no job"
            waits = next(iter(self._worker.waiting.items()), None)
            why = f"; job {waits[0]} {waits[1]}" if waits else ""
            self._status.update(one_line(f"at work: {ids}{why} (Ctrl-C: take no more)"))
        time.sleep(seconds)

    def summary(self) -> str:
        """How many jobs ended, by state."""
        return ", ".join(f"{n} {state}" for state, n in self._counts.items()) or "no job ended"


def never_begun(worker: Worker) -> list[str]:
    """Which jobs this worker can never start, and why."""
    why = {
        number: worker.waiting.get(number, "follows one that cannot start here") for number in worker.never
    }
    return [f"job {number} {why[number]}" for number in sorted(why)]


@contextlib.contextmanager
def working(queue: Queue, options: WorkerOptions, line: WorkerLine, group: str) -> Iterator[Worker]:
    """A worker. Inside, Ctrl-C takes no more jobs, and a second one ends those that run."""
    from luxmeter.train import Worker, engine_named

    def stop(number: int, frame: object) -> None:
        again, count = worker.is_stopping, len(worker.running)
        worker.stop(now=again)
        if again:
            line.say(f"ending {counted(count, 'job')}")
        elif count:
            them = "it" if count == 1 else "them"
            line.say(
                f"no more jobs are taken; waiting for {counted(count, 'job')} (Ctrl-C again: end {them})"
            )

    with contextlib.closing(engine_named(options.on)) as engine:
        worker = Worker(queue, engine, slots=options.slots, group=group, told=line.told)
        previous = signal.signal(signal.SIGINT, stop)
        try:
            yield worker
        except StoreError:  # the database went away
            if count := len(worker.running):
                them = "it" if count == 1 else "them"
                line.say(
                    f"{counted(count, 'job')} of this worker: the next one finds out what became of {them}"
                )
            raise
        finally:
            signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def opened(*, create: bool = False) -> Iterator[Queue]:
    """The queue of the lab that holds here."""
    from luxmeter.train import open_queue

    queue = open_queue(create=create)
    try:
        yield queue
    finally:
        queue.close()
