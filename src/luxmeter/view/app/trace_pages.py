"""The trace explorer: how a step splits, flame graph, tables, and a timeline that is read part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from luxmeter.calls import Step, TraceResult
from luxmeter.errors import LuxmeterError
from luxmeter.experiment import open_lab
from luxmeter.plain_text import one_line
from luxmeter.render import (
    Column,
    Html,
    Table,
    card,
    counted,
    element,
    joined,
    table_html,
    timeline_html,
)
from luxmeter.store import KnownTrace, KnownTraces, Result, Run
from luxmeter.view.app.reach import run_of
from luxmeter.view.app.shell import quiet, readable, run_head
from luxmeter.view.app.trace_view import TraceView
from luxmeter.view.pages.trace import (
    flame_card,
    groupings,
    source_html,
    split_html,
    steps_table,
    table_of_calls,
    trace_facts,
)
from luxmeter.view.text.runs import when_text

_ROWS = 500  # of each table
PAGE = 50  # traces: of each a little is read


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


def traces_page(lab: Path, known: KnownTraces, page: int) -> Html:
    """All traces of the lab, those of runs with their run, the newest first."""
    open_lab(lab, create=False)  # one that vanished is told as such
    head, found = element("h1", "Traces"), known.newest_first()
    if not found:
        return joined((head, quiet("No trace is kept here yet: luxmeter trace script.py or luxmeter run --trace script.py makes one.")))  # fmt: skip
    pages = -(-len(found) // PAGE)
    shown = found[(page - 1) * PAGE : page * PAGE]
    if not shown:
        return joined((head, quiet(f"There are {pages} pages."), element("a", "the first", href="/traces")))
    steps = [
        element("a", "before", href=f"/traces?page={page - 1}", rel="prev") if page > 1 else None,
        element("span", f"page {page:,} of {pages:,}, {counted(len(found), 'trace')}", class_="lux-quiet"),
        element("a", "next", href=f"/traces?page={page + 1}", rel="next") if page < pages else None,
    ]
    rows, links = [], []
    for trace in shown:
        row, link = _row(lab, trace)
        rows.append(row)
        links.append(link)
    columns = [Column("trace"), Column("run"), Column("began"), Column("of", folds=20)]
    table = table_html(
        Table(columns, rows), links=lambda row, column, _: links[row][column] if column < 2 else None
    )
    return joined((head, element("nav", *steps, class_="lux-bar", aria_label="Pages"), table))


def _row(lab: Path, trace: KnownTrace) -> tuple[list[str], tuple[str | None, str | None]]:
    """What is said of a trace, and where its name and its run's name lead; of one that is not shown why not."""
    name, began = trace.result.folder.name, when_text(trace.result.made_ns)
    if not trace.run:
        return [name, "-", began, one_line(trace.result.title)], (f"/trace/{name}", None)
    try:
        run = run_of(lab, trace.run)
        at = f"/run/{run.id}"
        said = one_line(trace.result.title)
        return [name, f"{one_line(run.name)} {run.id.partition('-')[0]}", began, said], (
            f"{at}/trace?n={trace.number}",
            at,
        )
    except LuxmeterError as error:
        return [name, trace.run, began, one_line(str(error))], (None, None)


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
    return flame_card(result)


def _facts(result: TraceResult) -> list[str]:
    return [*trace_facts(result), *result.notes()]
