"""`luxmeter runs`: list and filter what is kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError
from luxmeter.literal import parse
from luxmeter.plain_text import one_line
from luxmeter.render import BYTES, Column, Table, print_json

if TYPE_CHECKING:
    from luxmeter.experiment import Question, Runs

_SHOWN = 50
_NAMED = 12  # columns without room


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter runs 'param.lr > 0.01 and metric.acc >= 0.9' --sort=-metric.acc --limit 10"
    )
    def runs(
        where: str = typer.Argument("", help="A filter: FIELD OPERATOR VALUE, joined by and, or, not."),
        name: str = typer.Option("", help="Runs of this experiment; * and ? are wildcards."),
        tag: list[str] = typer.Option(
            [], "--tag", "-t", help="Runs with this tag. Repeat: with all of them."
        ),
        state: list[str] = typer.Option(
            [],
            "--state",
            help="running, finished, failed, interrupted, lost or damaged. Repeat: any of them.",
        ),
        param: list[str] = typer.Option([], "--param", "-p", help="A parameter's value: -p optim.lr=0.1"),
        sort: str = typer.Option(
            "-created", help="Fields, separated by commas; with - before it a field falls: the largest first."
        ),
        limit: int | None = typer.Option(
            None, min=0, help=f"At most so many; 0 for all. [default: {_SHOWN}]"
        ),
        columns: str = typer.Option("", help="id,name,state,param.lr,metric.acc.max,..."),
        archived: bool = typer.Option(False, "--archived", help="Archived runs only."),
        every: bool = typer.Option(False, "--all", help="Archived runs too."),
        group: bool = typer.Option(False, "--group", help="Runs that differ only in their seed as one row."),
        made: Path | None = typer.Option(
            None, "--made", help="The runs that made this file, by its content."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """List runs, newest first. Fields: id name state note host tag created duration param.NAME metric.NAME."""
        from luxmeter.experiment import runs as find

        both = None if every else archived
        count = limit if limit is not None else (None if as_json or group else _SHOWN + 1)
        asked = _question(where, param)
        found = find(
            "" if asked is None else asked, name=name or None, tags=tag, state=state or None, sort=sort, limit=count or None,
            archived=both,
        )  # fmt: skip
        if made is not None:
            _print_makers(made, found if asked is not None or name or tag or state else None, as_json)
        elif group:
            _print_groups(found, as_json)
        else:
            _print(found, columns, as_json, cut=limit is None)


def _print(found: Runs, columns: str, as_json: bool, *, cut: bool) -> None:
    from luxmeter.view.text.runs import beyond_default, default_columns, print_rows

    rows = found.rows
    if as_json:
        print_json([{"id": row.id, **row.record()} for row in rows])
        return
    if not rows:
        sys.stdout.write("No run fulfils this.\n" if found.lab else "No run is kept here yet.\n")
        return
    shown = rows[:_SHOWN] if cut else rows
    asked = [c.strip() for c in columns.split(",") if c.strip()]
    left = print_rows(shown, asked or default_columns(shown))
    left += [] if asked else beyond_default(shown)
    if len(rows) > len(shown):
        sys.stdout.write("... and more: --limit 0 shows all\n")
    if left:
        named = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
        sys.stdout.write(f"(no room for {named}: --columns shows them)\n")


def _print_groups(found: Runs, as_json: bool) -> None:
    from luxmeter.experiment import group_runs, repeat_table

    table = repeat_table(group_runs(found.in_full()))
    if as_json:
        print_json(table.records())
    elif table.rows:
        table.print()
        _print_best(found)
    else:
        sys.stdout.write("No finished run fulfils this.\n")


def _print_best(found: Runs) -> None:
    """Of each sweep that is all among these runs, its best."""
    from luxmeter.train import Queue, load_sweep
    from luxmeter.view.text.jobs import best_line

    tags = {tag for row in found.rows for tag in row.tags}
    if not tags or found.lab is None:
        return
    queue = Queue(found.lab)
    try:
        ids = {row.id for row in found.rows}
        jobs = [job for job in queue.table.jobs() if job.group in tags]
        for name in dict.fromkeys(job.group for job in jobs):
            done = {job.run for job in jobs if job.group == name and job.state == "done"}
            ranked, metric, mode = load_sweep(queue, name)
            if metric and done and done <= ids:
                sys.stdout.write(f"{one_line(best_line(name, ranked, metric, mode))}\n")
    finally:
        queue.close()


def _print_makers(file: Path, among: Runs | None, as_json: bool) -> None:
    from luxmeter.experiment import ExperimentViewer

    made = ExperimentViewer().backtracking(str(file))
    if among is not None:
        ids = {run.id for run in among}
        made = {run_id: files for run_id, files in made.items() if run_id in ids}
    if as_json:
        print_json(made)
        return
    rows = [
        [run_id, f["event"], f["time"], f["size_bytes"], f["path"]] for run_id in made for f in made[run_id]
    ]
    if rows:
        columns = [Column("run"), Column("event"), Column("when"), Column("size", BYTES), Column("file")]
        Table(columns, rows).print()
    else:
        sys.stdout.write(f"No run of this lab made {file}.\n")


def _question(where: str, params: list[str]) -> Question | None:
    """The filter and the parameters that must be equal."""
    from luxmeter.experiment import Question, all_of, equals
    from luxmeter.store import parse_filter

    given = parse_filter(where)
    parts = [] if given is None else [given]
    for text in params:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError("param-without-value", f"-p {text} has no value.", "Write -p lr=0.1.")
        parts.append(equals(f"param.{name}", parse(value)))
    joined = all_of(parts)
    return None if joined is None else Question(joined)
