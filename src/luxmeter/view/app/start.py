"""The first page: what is running, what failed last and why, what is newest."""

from __future__ import annotations

import time
from pathlib import Path

from luxmeter.experiment import C, Runs, runs
from luxmeter.plain_text import plain
from luxmeter.render import SHARE, Column, Html, Table, card, element, joined, long_span, table_html
from luxmeter.store import Run, RunRow, records
from luxmeter.train import read_listening
from luxmeter.view.app.runs_list import rows_html
from luxmeter.view.app.shell import quiet, run_link
from luxmeter.view.text.runs import short_ids, value_text, when_text

_NEWEST, _FAILED, _RUNNING, _METRICS = 12, 3, 30, 3
_AGAIN_S = 5  # so often the page is brought up to date while it is looked at


def start_page(lab: Path) -> Html:
    """As far as it can be known of a lab."""
    going = runs(state="running", lab=lab)
    failed = runs((C.state == "failed") | (C.state == "lost"), limit=_FAILED, lab=lab)
    newest = runs(limit=_NEWEST, lab=lab)
    bad = [
        element("div", run_link(run), element("pre", _why(run), class_="lux-log lux-wrap")) for run in failed
    ]
    first = quiet("No run is kept here yet: luxmeter run script.py makes one.")
    return joined(
        (
            element("h1", "luxmeter"),
            element("p", str(lab), class_="lux-quiet", data_again=_AGAIN_S),
            card("Running", _running(going, lab) if len(going) else quiet("nothing"), quiet=f"{len(going)}" if len(going) > 1 else ""),
            card("Failed last", *bad, element("a", "all that failed", href="/runs?where=state+%3D+failed+or+state+%3D+lost")) if bad else None,
            card("Newest", list_of(newest) if len(newest) else first),
        )
    )  # fmt: skip


def list_of(found: Runs) -> Html:
    """Runs in a table; their ids and names lead to their pages."""
    return rows_html(found.rows)


def _running(going: Runs, lab: Path) -> Html:
    """Where each stands: by its training's own word, else by what it logged."""
    rows = going[:_RUNNING].rows
    short = short_ids([row.id for row in rows])
    columns = [Column("name"), Column("stands at"), Column("done", SHARE, bar=True, hidden="empty"), Column("last metrics"), Column("for"), Column("began"), Column("id")]  # fmt: skip
    cells = [
        [row.name, *_stands_at(row, lab), _metrics(row), long_span(round((time.time_ns() - row.created_ns) / 1e9)), when_text(row.created_ns), short[row.id]]
        for row in rows
    ]  # fmt: skip
    more = [f"{len(going) - len(rows)} more are running"] if len(going) > len(rows) else []
    return table_html(
        Table(columns, cells, notes=more),
        links=lambda row, column, _: f"/run/{rows[row].id}" if column in (0, len(columns) - 1) else None,
    )


def _stands_at(row: RunRow, lab: Path) -> tuple[str, float | None]:
    """In words, and which part of its steps are done."""
    said = read_listening(lab / "runs" / row.id)
    logged = [told["last_step"] for key, told in row.metrics.items() if not key.startswith(records.SYSTEM)]
    step = max([*logged, *([said.step] if said else [])], default=None)
    words = [said.state] if said is not None and said.state in ("paused", "stopping") else []
    if step is not None:
        words.append(f"step {step:,}" + (f" of {said.steps:,}" if said is not None and said.steps else ""))
    part = min(1.0, step / said.steps) if step is not None and said is not None and said.steps else None
    return ", ".join(words) or "-", part


def _metrics(row: RunRow) -> str:
    mine = [(k, told) for k, told in row.metrics.items() if not k.startswith((records.SYSTEM, "control/"))]
    return ", ".join(f"{key} {value_text(told['last'])}" for key, told in mine[:_METRICS])


def _why(run: Run) -> str:
    """The last line of its error; of a lost one what is known."""
    if run.state == "lost":
        return (
            f"its process is gone; it ran {long_span(run.duration)}"
            if run.duration
            else "its process is gone"
        )
    lines = plain(run.error).strip().splitlines()
    return lines[-1] if lines else "it does not say why"
