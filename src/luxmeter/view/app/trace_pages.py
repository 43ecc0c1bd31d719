"""The trace explorer: how a step splits, flame graph, tables, and a timeline that is read part by part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from luxmeter.calls import KINDS
from luxmeter.experiment import open_lab
from luxmeter.render import (
    Column,
    Html,
    Table,
    card,
    element,
    flame_html,
    joined,
    one_line,
    table_html,
    timeline_html,
)
from luxmeter.store import Result, Run
from luxmeter.view.app.shell import quiet, readable, run_head
from luxmeter.view.app.trace_view import TraceView
from luxmeter.view.pages.trace import flame_of, split_html, tables_html, trace_facts
from luxmeter.view.text.runs import when_text

_ROWS = 500  # of each table
_LISTED = 100  # traces: of each a little is read


def run_trace_page(run: Run, traces: Sequence[Result], number: int, view: TraceView, window: tuple[int, int] | None) -> Html:  # fmt: skip
    """A trace of a run; of several there is a line that leads to the others."""
    at = f"/run/{run.id}/trace"
    links = [
        element("a", f"trace {i + 1}, {when_text(trace.made_ns)}", href=f"{at}?n={i}", aria_current="page" if i == number else None)
        for i, trace in enumerate(traces)
    ]  # fmt: skip
    others = element("nav", *links, class_="lux-bar", aria_label="Traces") if len(traces) > 1 else None
    source = f"{at}/window?n={number}"
    return joined((run_head(run, here="trace"), others, _explorer(view, source, window)))


def trace_page(found: Result, view: TraceView, window: tuple[int, int] | None) -> Html:
    """A trace that belongs to no run."""
    head = element("h1", "Trace ", element("small", found.folder.name, class_="lux-quiet"))
    return joined((head, _explorer(view, f"/trace/{found.folder.name}/window", window)))


def traces_page(lab: Path) -> Html:
    """The traces that belong to no run, the newest first."""
    found = open_lab(lab, create=False).traces()[::-1]
    if not found:
        return joined((element("h1", "Traces"), quiet("Traces of runs are on the pages of the runs; no other is kept here: luxmeter trace script.py makes one.")))  # fmt: skip
    rows = [[trace.folder.name, when_text(trace.made_ns), one_line(trace.title)] for trace in found[:_LISTED]]
    more = [f"{len(found) - _LISTED:,} older ones are in the lab"] if len(found) > _LISTED else []
    table = Table([Column("trace"), Column("began"), Column("of")], rows, notes=more)
    return joined(
        (
            element("h1", "Traces"),
            quiet("Those that belong to no run; the others are on their runs' pages."),
            card(f"{len(found):,} traces", table_html(table, links=lambda row, column, _: f"/trace/{rows[row][0]}" if column == 0 else None)),
        )
    )  # fmt: skip


def _explorer(view: TraceView, source: str, window: tuple[int, int] | None) -> Html:
    result = view.result
    facts = view.once("facts", lambda r: [*trace_facts(r), *r.notes()])
    said = element("ul", *(element("li", one_line(fact)) for fact in facts), class_="lux-facts")
    if result.recording.totals:
        return joined((said, readable("Calls", lambda: card("Calls", view.once("tables", lambda r: tables_html(r, most_rows=_ROWS))))))  # fmt: skip
    return joined(
        (
            said,
            readable("Split", lambda: view.once("split", split_html)),
            readable("Flame graph", lambda: card("Flame graph", view.once("flame", lambda r: flame_html(flame_of(r), KINDS)))),
            readable("Calls", lambda: card("Calls", view.once("tables", lambda r: tables_html(r, most_rows=_ROWS)))),
            readable("Timeline", lambda: card("Timeline", timeline_html(view.timeline(*(window or ())), source=source, window=window))),
        )
    )  # fmt: skip
