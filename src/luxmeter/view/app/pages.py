"""The pages of the app: finished results in, HTML out. A page is complete without script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from luxmeter.calls import KINDS
from luxmeter.errors import LuxmeterError
from luxmeter.experiment import C, Runs, captured_tree, diff_runs, runs
from luxmeter.render import (
    NUMBER,
    Column,
    Html,
    Table,
    card,
    element,
    flame_html,
    joined,
    long_span,
    one_line,
    plain,
    size,
    table_html,
    timeline_html,
)
from luxmeter.store import Run, records
from luxmeter.view.app.trace_view import TraceView
from luxmeter.view.pages.bench import bench_html
from luxmeter.view.pages.check import check_html
from luxmeter.view.pages.report import (
    code_changes_html,
    compared_html,
    curves_html,
    model_part,
    output_html,
    repeats_html,
    runs_html,
    siblings,
    summary_html,
)
from luxmeter.view.pages.trace import flame_of, split_html, tables_html, trace_facts
from luxmeter.view.text.runs import default_columns, rows_table, when_text

PAGE = 100
_NEWEST = 12
_GOOD = {"finished": "lux-good", "running": "lux-wait", "failed": "lux-bad", "lost": "lux-bad", "damaged": "lux-bad"}  # fmt: skip


def shell(title: str, *body: str | None, edit: bool = False, status: str = "") -> str:
    """A whole page of the app."""
    nav = element(
        "nav",
        element("a", "luxmeter", href="/", class_="lux-brand"),
        element("a", "runs", href="/runs"),
        element("form", element("input", type="search", name="where", placeholder="filter runs: param.lr > 0.1 and metric.acc > 0.9", aria_label="Filter runs"),
                action="/runs", class_="lux-find"),
        element("span", "read-only", class_="lux-quiet") if not edit else None,
        class_="lux-nav",
    )  # fmt: skip
    main = element("main", *body, class_="lux-main", id_="main", data_title=title, data_status=status or None)
    return "".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            element("title", f"{title} - luxmeter"),
            '<link rel="stylesheet" href="/web/style.css"><link rel="icon" href="data:,">',
            '<script type="module" src="/web/app.js"></script></head><body>',
            nav,
            main,
            "</body></html>\n",
        )
    )


def start_page(lab: str) -> Html:
    """What is running, what failed last and why, what is newest."""
    going, failed = (
        runs(state="running", lab=lab),
        runs(C.state == "failed", limit=3, lab=lab),
    )
    newest = runs(limit=_NEWEST, lab=lab)
    bad = [
        element("div", run_link(run), element("pre", plain(run.error).strip().splitlines()[-1] if run.error.strip() else "no word of why", class_="lux-log"))
        for run in failed
    ]  # fmt: skip
    return joined(
        (
            element("h1", "luxmeter"),
            element("p", str(lab), class_="lux-quiet"),
            card(
                "Running",
                list_of(going, default=True) if len(going) else element("p", "nothing", class_="lux-quiet"),
            ),
            card("Failed last", *bad) if bad else None,
            card(
                "Newest",
                list_of(newest, default=True)
                if len(newest)
                else element(
                    "p",
                    "No run is kept here yet: luxmeter run script.py makes one.",
                    class_="lux-quiet",
                ),
            ),
        )
    )


def run_link(run: Run) -> Html:
    """Its name and id, leading to its page."""
    state = element("span", run.state, class_=_GOOD.get(run.state, "lux-quiet"))
    return joined(
        (
            element("a", f"{one_line(run.name)} {run.id}", href=f"/run/{run.id}"),
            Html(" "),
            state,
            Html(" "),
            element("span", f"{when_text(run.created_ns)}, {long_span(run.duration)}", class_="lux-quiet"),
        )
    )


def list_of(found: Runs, *, columns: Sequence[str] = (), default: bool = False) -> Html:
    """Runs in a table; their ids lead to their pages."""
    rows = found.rows
    chosen = list(columns) or default_columns(rows)
    ids = [row.id for row in rows]

    def link(row: int, column: int, text: str) -> str | None:
        return f"/run/{ids[row]}" if chosen[column] in ("id", "name") else None

    return table_html(rows_table(rows, chosen), links=link, server=not default)


@dataclass(frozen=True)
class Asked:
    """What a list of runs was asked for; it is the address."""

    where: str = ""
    sort: str = "-created"
    columns: str = ""
    page: int = 1
    archived: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        """From an address; what is no number is the first page."""
        page = query.get("page", "1")
        return cls(
            query.get("where", ""), query.get("sort", "") or "-created", query.get("columns", ""),
            int(page) if page.isdecimal() and 0 < int(page) < 10**7 else 1, query.get("archived") == "1",
        )  # fmt: skip

    def address(self, **changes: str | int) -> str:
        """The same with other values."""
        values = {"where": self.where, "sort": self.sort, "columns": self.columns, "page": self.page, "archived": "1" if self.archived else ""} | changes  # fmt: skip
        given = {k: v for k, v in values.items() if v and (k, v) not in (("sort", "-created"), ("page", 1))}
        return "/runs" + (f"?{urlencode(given)}" if given else "")


def runs_page(asked: Asked, lab: str) -> Html:
    """Paged, filtered, sorted on the server. A filter that cannot be read is told above the list."""
    form = element(
        "form",
        element("label", "filter ", element("input", name="where", value=asked.where, type="search", size=60, placeholder="param.lr > 0.1 and metric.acc >= 0.9")),
        element("label", "columns ", element("input", name="columns", value=asked.columns, size=40, placeholder="id,name,state,param.lr,metric.acc.max")),
        element("label", "sort ", element("input", name="sort", value=asked.sort, size=18)),
        element("label", element("input", name="archived", value="1", type="checkbox", checked=asked.archived), " archived, too"),
        element("button", "show"),
        action="/runs", class_="lux-bar",
    )  # fmt: skip
    try:
        found = runs(asked.where, sort=asked.sort, archived=None if asked.archived else False, lab=lab)
        wanted = [c.strip() for c in asked.columns.split(",") if c.strip()]
        first = (asked.page - 1) * PAGE
        shown = found[first : first + PAGE]
        body = _sorted_table(shown, wanted, asked) if len(shown) else element("p", "No run fulfils this.")
        pages = max(1, -(-len(found) // PAGE))
    except LuxmeterError as error:
        return joined(
            (element("h1", "Runs"), form, element("p", str(error), class_="lux-error", role="alert"))
        )
    steps = [
        element("a", "before", href=asked.address(page=asked.page - 1)) if asked.page > 1 else None,
        element("span", f"page {asked.page} of {pages}, {len(found):,} runs", class_="lux-quiet"),
        element("a", "next", href=asked.address(page=asked.page + 1)) if asked.page < pages else None,
    ]
    compare = element(
        "form", element("button", "compare the chosen"), action="/compare", id_="compare", class_="lux-bar"
    )
    return joined((element("h1", "Runs"), form, element("nav", *steps, class_="lux-bar"), compare, body))


def _sorted_table(found: Runs, wanted: Sequence[str], asked: Asked) -> Html:
    rows = found.rows
    chosen = list(wanted) or default_columns(rows)
    table = rows_table(rows, chosen)
    heads = [element("th", "", scope="col")]
    for name, column in zip(chosen, table.columns, strict=True):
        field = "tag" if name == "tags" else name
        to = f"-{field}" if asked.sort != f"-{field}" else field
        mark = {f"-{field}": "descending", field: "ascending"}.get(asked.sort)
        heads.append(
            element("th", element("a", column.name, href=asked.address(sort=to, page=1), class_="lux-sort"), scope="col", aria_sort=mark,
                    class_=None if column.kind is Column("").kind else "n")
        )  # fmt: skip
    lines = []
    for row, cells in zip(rows, table.cells, strict=True):
        box = element("input", type="checkbox", name="run", value=row.id, form="compare", aria_label=f"choose {row.id}")  # fmt: skip
        made = [element("td", box)]
        for name, column, text in zip(chosen, table.columns, cells, strict=True):
            shown: str = element("a", text, href=f"/run/{row.id}") if name in ("id", "name") else text
            if name == "state":
                shown = element("span", text, class_=_GOOD.get(text))
            made.append(element("td", shown, class_="w" if column.kind is Column("").kind else "n"))
        lines.append(element("tr", *made))
    grid = element("table", element("thead", element("tr", *heads)), element("tbody", *lines))
    return element("div", element("div", grid, class_="lux-scroll"), class_="lux-table")


def run_page(run: Run, *, edit: bool, after_ns: int) -> Html:
    """What the report shows; while it runs, live."""
    live = f"/run/{run.id}/live?after={after_ns}" if run.state == "running" else None
    parts = [
        ("Curves", lambda: curves_html([run])),
        ("Operators measured", lambda: card("Operators measured", bench_html(run.bench)) if run.bench else None),
        ("Model", lambda: model_part(run)),
        ("Check", lambda: check_html(run.check) if run.check else None),
        ("Repeats", lambda: repeats_html(siblings(run))),
        ("Files", lambda: _files(run)),
        ("Output", lambda: output_html(run)),
    ]  # fmt: skip
    return joined(
        (
            _run_head(run, here=""),
            _edit(run) if edit else None,
            element("div", data_live=live) if live else None,
            readable("Summary", lambda: summary_html(run)),
            *(readable(name, make) for name, make in parts),
        )
    )


def readable(name: str, make: object) -> str | None:
    """What cannot be read says so in its place, and the rest is there."""
    try:
        return make()  # type: ignore[operator, no-any-return]
    except (LuxmeterError, OSError, ValueError, KeyError, TypeError) as error:
        return card(name, element("p", f"This cannot be read: {plain(str(error))}", class_="lux-error"))


def _run_head(run: Run, *, here: str) -> Html:
    kinds = {result.kind for result in run.results()}
    places = {
        "": "overview",
        **({"trace": "trace"} if "trace" in kinds else {}),
        "code": "code",
        "log": "output",
    }
    links = [
        element("a", name, href=f"/run/{run.id}" + (f"/{place}" if place else ""), aria_current="page" if place == here else None)
        for place, name in places.items()
    ]  # fmt: skip
    state = element("span", run.state, class_=_GOOD.get(run.state, "lux-quiet"), id_="state")
    return joined(
        (
            element("h1", f"{one_line(run.name)} ", element("small", run.id, class_="lux-quiet"), Html(" "), state),
            element("nav", *links, class_="lux-bar", aria_label="Parts of the run"),
        )
    )  # fmt: skip


def _edit(run: Run) -> Html:
    at = f"/run/{run.id}"
    note = element(
        "form", element("label", "note ", element("textarea", run.note, name="note", rows=2, cols=60)), element("button", "keep"),
        action=f"{at}/note", method="post", class_="lux-bar",
    )  # fmt: skip
    tags = element(
        "form", element("label", "tags ", element("input", name="tags", value=" ".join(run.tags), size=40)), element("button", "keep"),
        action=f"{at}/tags", method="post", class_="lux-bar",
    )  # fmt: skip
    acts = element(
        "form",
        *(element("button", what, name="what", value=what) for what in ("pause", "resume", "checkpoint", "stop")),
        action=f"{at}/control", method="post", class_="lux-bar", aria_label="Control",
    )  # fmt: skip
    return card("Change", note, tags, acts if run.state == "running" else None)


def _files(run: Run) -> Html | None:
    names = run.files
    if not names:
        return None
    sizes = [_size_of(run, name) for name in names]
    table = Table(
        [Column("file"), Column("size", NUMBER)], [[n, s] for n, s in zip(names, sizes, strict=True)]
    )
    return card("Files", table_html(table, links=lambda row, column, _: f"/run/{run.id}/files/{quote(names[row])}" if column == 0 else None))  # fmt: skip


def _size_of(run: Run, name: str) -> str:
    try:
        return size(run.file(name).stat().st_size)
    except (LuxmeterError, OSError):
        return "-"


def trace_page(run: Run, view: TraceView) -> Html:
    """The trace explorer: how a step splits, flame graph, tables, and a timeline that is read part by part."""
    result = view.result
    facts = element("ul", *(element("li", fact) for fact in trace_facts(result)), class_="lux-facts")
    totals = bool(result.recording.totals)
    at = f"/run/{run.id}/trace/window"
    return joined(
        (
            _run_head(run, here="trace"),
            facts,
            None if totals else view.once("split", split_html),
            None if totals else card("Flame graph", view.once("flame", lambda r: flame_html(flame_of(r), KINDS))),
            card("Calls", view.once("tables", lambda r: tables_html(r, most_rows=500))),
            None if totals else card("Timeline", timeline_html(view.timeline(), source=at)),
        )
    )  # fmt: skip


def code_page(run: Run, path: str, against: Run | None) -> Html:
    """The files that ran; one of them; or how they differ from another run's."""
    head = _run_head(run, here="code")
    if against is not None:
        diff, _ = diff_runs(against, run)
        changes = code_changes_html(diff) or element("p", "The code is the same.")
        return joined((head, card(f"From {against.id} to {run.id}", changes)))
    if run.snapshot is None:
        return joined((head, element("p", "This run keeps no code.", class_="lux-quiet")))
    tree = captured_tree(run)
    names = sorted(tree.files)
    if path:
        text = tree.read(path).decode("utf-8", "replace")
        return joined((head, card(path, element("pre", plain(text), class_="lux-code"))))
    table = Table([Column("file"), Column("bytes", NUMBER)], [[name, len(tree.read(name))] for name in names])
    listed = table_html(
        table,
        links=lambda row, column, _: (
            f"/run/{run.id}/code?{urlencode({'path': names[row]})}" if column == 0 else None
        ),
    )
    form = element(
        "form", element("label", "compare with run ", element("input", name="against", size=24)), element("button", "show"),
        action=f"/run/{run.id}/code", class_="lux-bar",
    )  # fmt: skip
    return joined((head, card("Code", form, listed)))


def log_page(run: Run) -> Html:
    """All that it printed."""
    text = plain(run.log_text)
    body = element("pre", text, class_="lux-log") if text else element("p", "It printed nothing.", class_="lux-quiet")  # fmt: skip
    return joined((_run_head(run, here="log"), card("Output", body)))


def compare_page(members: Sequence[Run]) -> Html:
    """Any number of runs: in a table, their curves together, bands over seeds, and of two what changed and what it did."""
    if not members:
        return joined(
            (
                element("h1", "Compare"),
                element("p", "Choose runs in the list, or name them: /compare?run=ID&run=ID"),
            )
        )
    metrics = any(not key.startswith(records.SYSTEM) for run in members for key in run.metrics)
    return joined(
        (
            element("h1", f"{len(members)} runs"),
            card("Runs", runs_html(members)),
            readable("Curves", lambda: curves_html(members)) if metrics else None,
            readable("Repeats", lambda: repeats_html(members)) if metrics else None,
            readable("Compared", lambda: compared_html(members[0], members[1]))
            if len(members) == 2
            else None,
        )
    )


def error_page(said: str) -> Html:
    """One clear sentence."""
    return joined(
        (element("h1", "This cannot be shown"), element("p", said, class_="lux-error", role="alert"))
    )
