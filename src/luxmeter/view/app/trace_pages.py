"""The trace explorer: how a step splits, flame graph, tables, and a timeline that is read part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from luxmeter.calls import KINDS, Step, TraceResult
from luxmeter.experiment import open_lab
from luxmeter.plain_text import one_line
from luxmeter.render import Column, Html, Table, card, element, flame_html, joined, table_html, timeline_html
from luxmeter.store import Result, Run
from luxmeter.view.app.shell import quiet, readable, run_head
from luxmeter.view.app.trace_view import TraceView
from luxmeter.view.pages.trace import (
    flame_of,
    groupings,
    source_html,
    split_html,
    steps_table,
    table_of_calls,
    trace_facts,
)
from luxmeter.view.text.runs import when_text

_ROWS = 500  # of each table
_LISTED = 100  # traces: of each a little is read


@dataclass(frozen=True)
class Looked:
    """What of a trace is looked at; it stands in the address."""

    at: str
    by: str = "api"
    window: tuple[int, int] | None = None
    number: int | None = None  # of a run's traces

    def address(self, path: str = "", **changes: str | int) -> str:
        """The same page, or a part of it."""
        given = {"n": self.number, "by": self.by if self.by != "api" else None} | changes
        said = urlencode({name: value for name, value in given.items() if value is not None})
        return self.at + path + (f"?{said}" if said else "")


def run_trace_page(run: Run, traces: Sequence[Result], view: TraceView, looked: Looked) -> Html:
    """A trace of a run; of several there is a line that leads to the others."""
    links = [
        element("a", f"trace {i + 1}, {when_text(trace.made_ns)}", href=looked.address(n=i), aria_current="page" if i == looked.number else None)
        for i, trace in enumerate(traces)
    ]  # fmt: skip
    others = element("nav", *links, class_="lux-bar", aria_label="Traces") if len(traces) > 1 else None
    return joined((run_head(run, here="trace"), others, _explorer(view, looked)))


def trace_page(found: Result, view: TraceView, looked: Looked) -> Html:
    """A trace that belongs to no run."""
    head = element("h1", "Trace ", element("small", found.folder.name, class_="lux-quiet"))
    return joined((head, _explorer(view, looked)))


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


def prepared(view: TraceView) -> TraceView:
    """With what its page begins with made: before it is asked for, where somebody may be about to."""
    if not view.result.recording.totals:
        for make in (_flame, split_html):
            view.once(make.__name__, make)
        view.timeline()
    view.once("facts", _facts)
    view.once("table api", lambda r: _table(r, "API"))
    return view


def _explorer(view: TraceView, looked: Looked) -> Html:
    result = view.result
    said = element("ul", *(element("li", one_line(fact)) for fact in view.once("facts", _facts)), class_="lux-facts")  # fmt: skip
    calls = readable("Calls", lambda: card("Calls", _tables(view, looked)))
    if result.recording.totals:
        return joined((said, calls))
    return joined(
        (
            said,
            readable("Split", lambda: view.once(split_html.__name__, split_html)),
            readable("Flame graph", lambda: card("Flame graph", view.once(_flame.__name__, _flame))),
            calls,
            readable("Timeline", lambda: card("Timeline", _timeline(view, looked), id_="timeline")),
        )
    )


def _tables(view: TraceView, looked: Looked) -> Html:
    """One grouping at a time: of a million calls each takes its while."""
    names = {name.lower(): name for name in groupings(view.result)}
    more: dict[str, str] = {}
    if len(view.result.recording.sites) > 1:
        more["source"] = "Your code"
    if not view.result.recording.totals:
        more["steps"] = "Steps"
    by = looked.by if looked.by in names or looked.by in more else "api"
    links = [
        element("a", name, href=looked.address(by=key), aria_current="page" if key == by else None)
        for key, name in (names | more).items()
    ]
    if by == "source":
        shown = view.once("source", source_html)
    elif by == "steps":
        shown = _steps(view, looked)
    else:
        shown = view.once(f"table {by}", lambda r: _table(r, names[by]))
    return joined((element("nav", *links, class_="lux-bar", aria_label="Group the calls by"), shown))


def _steps(view: TraceView, looked: Looked) -> Html:
    """The training steps; each leads to its part of the timeline."""
    steps = view.once("steps", TraceResult.steps)
    if not len(steps):
        return quiet(
            "No training step was found: one ends with an optimizer's step, or where the program says t.step()."
        )

    zero = view.result.recording.first_ns

    def link(step: Step) -> str:
        start = max(0, step.start_ns - zero)
        return looked.address(by="steps", start=start, end=start + step.total_ns) + "#timeline"

    return steps_table(steps, link=link)


def _timeline(view: TraceView, looked: Looked) -> Html:
    first = view.timeline(*(looked.window or ()))
    return timeline_html(first, source=looked.address("/window"), window=looked.window)


def _table(result: TraceResult, name: str) -> Html:
    return table_of_calls(name, result.table(name.lower()), _ROWS)


def _flame(result: TraceResult) -> Html:
    return flame_html(flame_of(result), KINDS)


def _facts(result: TraceResult) -> list[str]:
    return [*trace_facts(result), *result.notes()]
