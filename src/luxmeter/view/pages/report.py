"""A run, or several, told whole: on one HTML page that needs nothing else, or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from luxmeter.described import told_apart
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.experiment import (
    C,
    Change,
    RunDiff,
    curves_of,
    diff_runs,
    group_runs,
    lab_of,
    lines_of,
    repeat_table,
    whole_tree,
)
from luxmeter.experiment import runs as find_runs
from luxmeter.files import write_named
from luxmeter.plain_text import one_line, plain
from luxmeter.render import (
    NUMBER,
    SHARE,
    Chart,
    Column,
    Html,
    Table,
    card,
    charts_html,
    contents,
    counted,
    element,
    joined,
    long_span,
    markdown,
    pairs,
    sparkline,
    state_html,
    table_html,
    tabs,
    thinned,
)
from luxmeter.store import Run, flatten, parse_field, records
from luxmeter.view.pages.bench import bench_html
from luxmeter.view.pages.check import check_html
from luxmeter.view.pages.plots import BANDS
from luxmeter.view.pages.trace import trace_facts, trace_html
from luxmeter.view.text.run import command_text, machine_text
from luxmeter.view.text.runs import default_columns, heading, row_cells, value_text, when_text
from luxmeter.view.web import page

_MOST_CALLS = 400  # in a table of the report
_MOST_LOG_LINES = 400
_MOST_CHARTS, _MOST_SHARED = 24, 4
_MOST_CODE = 200_000  # letters of code
_MOST_DIFF_LINES = 600
_CURVE = 24
FORMATS = (".html", ".md")


def write_report(runs: Sequence[Run], path: Path, *, against: Run | None = None) -> Path:
    """Write the report of these runs; the ending of the path says how."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError("report-format", f"{path} is neither .html nor .md.", "Choose one of these endings.")
    make = report_markdown if path.suffix.lower() == ".md" else report_page
    write_named(path, make(runs, against=against).encode())
    return path


def report_page(runs: Sequence[Run], *, against: Run | None = None, said: str = "", error: str = "") -> str:
    """One run whole, or several side by side and each by itself. `against`: what a single run is compared with.

    `said`, `error`: of a single run that is about to end, how it does.
    """
    if len(runs) == 1:
        run = runs[0]
        head = element("pre", plain(error), class_="lux-log lux-error") if error else None
        body = joined([head, run_html(run, against=against)])
        return page(f"{one_line(run.name)} ({run.id})", body, facts=[said] if said else _facts(run))
    names = [f"{one_line(run.name)} {run.id}" for run in runs]
    parts = [
        card("Runs", runs_html(runs)),
        curves_html(runs),
        *([compared_html(runs[0], runs[1])] if len(runs) == 2 else []),
        repeats_html(runs),
        tabs({name: run_html(run, alone=False) for name, run in zip(names, runs, strict=True)}),
    ]
    return page(f"{len(runs)} runs", *(part for part in parts if part), facts=[", ".join(names)])


def run_html(run: Run, *, against: Run | None = None, alone: bool = True) -> Html:
    """Everything that a run holds, as parts of a page. What cannot be read says so, and the rest is there.

    `alone`: the page is of this run only, so it has its curves, comparison and repeats, and a list of what is on it.
    """
    other = against if against is not None else run_before(run)
    makers: list[tuple[str, Callable[[], str | None]]] = [
        ("Summary", lambda: summary_html(run)),
        ("Curves", lambda: curves_html([run]) if alone else None),
        ("Calls", lambda: trace_part(run)),
        ("Operators measured", lambda: card("Operators measured", bench_html(run.bench)) if run.bench else None),
        ("Model", lambda: model_part(run)),
        ("Check", lambda: check_html(run.check) if run.check else None),
        ("Compared", lambda: compared_html(other, run, curves=True) if other is not None and alone else None),
        ("Repeats", lambda: repeats_html(siblings(run)) if alone else None),
        ("Code", lambda: code_html(run)),
        ("Output", lambda: output_html(run)),
    ]  # fmt: skip
    made: list[str] = []
    titles: dict[str, str] = {}
    for name, make in makers:
        try:
            part = make()
        except (
            LuxmeterError,
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ) as error:  # a damaged run is shown as far as it goes
            part = card(name, element("p", f"This cannot be read: {error}", class_="lux-error"))
        if part is not None:
            id_ = name.lower().replace(" ", "-")
            titles[id_] = name
            made.append(element("div", part, id_=id_ if alone else None))
    return joined([contents(titles), *made] if alone else made)


def _facts(run: Run) -> list[str]:
    return [
        f"{run.state}, began {when_text(run.created_ns)}"
        + (f", took {long_span(run.duration)}" if run.duration is not None else ""),
        *([f"tags: {one_line(' '.join(run.tags))}"] if run.tags else []),
    ]


def summary_html(run: Run) -> Html:
    """How it was made, parameters, metrics, environment."""
    head = pairs(
        {
            "state": state_html(run.state),
            "began": when_text(run.created_ns),
            "took": long_span(run.duration) if run.duration is not None else None,
            "command": command_text(run),
            "on": machine_text(run),
            "tags": one_line(" ".join(run.tags)),
            "note": plain(run.note),
            "parent": run.parent,
            "folder": str(run.folder),
        }
    )
    error = element("pre", plain(run.error).strip(), class_="lux-log lux-error") if run.error else None
    params = flatten(dict(run.params))
    shown = [[key, value_text(value)] for key, value in params.items()]
    return joined(
        (
            card("Error", error) if error else None,
            _beside(card("Summary", head), _environment(run)),
            _beside(
                card("Parameters", table_html(Table([Column("parameter"), Column("value")], shown))) if shown else None,
                card("Metrics", logged) if (logged := metrics_html(run)) else None,
            ),
        )
    )  # fmt: skip


def _beside(*parts: Html | None) -> Html | None:
    return element("div", *parts, class_="lux-two") if any(parts) else None


def _environment(run: Run) -> Html | None:
    """Machine, packages, variables: each folded."""
    parts = []
    for name, said in run.environment.items():
        values = flatten(said) if isinstance(said, dict) else {}
        rows = [[key, value_text(value)] for key, value in sorted(values.items())]
        if rows:
            table = table_html(Table([Column(name), Column("value")], rows))
            parts.append(element("details", element("summary", f"{name} ({len(rows)})"), table))
    return card("Environment", *parts) if parts else None


def metrics_html(run: Run) -> Html | None:
    """What was logged, in numbers; None if nothing was. Rows are found by their metrics' names."""
    table = _metrics(run)
    if not table.rows:
        return None
    return element("div", table_html(table, names=[str(row[0]) for row in table.rows]), data_metrics=run.id)


def _metrics(run: Run, *, curve: bool = False) -> Table:
    columns = [Column("metric"), Column("n", NUMBER), Column("step", NUMBER), Column("last", NUMBER), Column("min", NUMBER), Column("max", NUMBER)]  # fmt: skip
    rows = []
    for key, m in run.metrics.items():
        if key.startswith(records.SYSTEM):
            continue
        drawn = [sparkline(run.metric(key).values.tolist(), _CURVE)] if curve else []
        rows.append([key, m["n"], m["last_step"], m["last"], m["min"], m["max"], *drawn])
    return Table([*columns, *([Column("curve")] if curve else [])], rows)


def runs_html(runs: Sequence[Run]) -> Html:
    """Runs in a table, with what tells them apart."""
    rows = [run.row for run in runs]
    fields = [parse_field(name) for name in default_columns(rows)]
    return table_html(Table([Column(heading(f)) for f in fields], [row_cells(row, fields) for row in rows]))


def curves_html(runs: Sequence[Run]) -> Html | None:
    """A chart a metric; of one run its points find their line by the metric's name."""
    if not any(not key.startswith(records.SYSTEM) for run in runs for key in run.metrics):
        return None
    charts = _charts(runs)
    left = len(charts) - _MOST_CHARTS
    more = element("p", f"{left} more metrics are in the run", class_="lux-quiet") if left > 0 else None
    return element(
        "section",
        element("h2", "Curves"),
        charts_html(charts[:_MOST_CHARTS], keys=[[c.title] for c in charts] if len(runs) == 1 else ()),
        more,
        aria_label="Curves",
    )


def _charts(runs: Sequence[Run], metrics: Sequence[str] = ()) -> list[Chart]:
    return [
        Chart(key, "step", [thinned(line if len(runs) > 1 else replace(line, name=key)) for line in lines])
        for key, lines in lines_of(curves_of(runs, metrics)).items()
    ]


def trace_part(run: Run) -> Html | None:
    """What its trace shows."""
    trace = run.trace
    if trace is None:
        return None
    facts = element("ul", *(element("li", fact) for fact in trace_facts(trace)), class_="lux-facts")
    return joined((element("h2", "Calls"), facts, trace_html(trace, most_rows=_MOST_CALLS)))


def model_part(run: Run) -> Html | None:
    """What its model costs."""
    cost = run.model
    if cost is None:
        return None
    from luxmeter.view.pages.model import (
        model_html,
    )  # needs torch, which a run without a model's cost does not

    return joined((element("h2", f"What {cost.name} costs"), model_html(cost)))


def compared_html(a: Run, b: Run, *, curves: bool = False, link: Html | None = None) -> Html:
    """What changed from A to B, and what it did; with `curves`, both runs' in one chart a metric. `link`: to more of it."""
    diff, why = diff_runs(a, b)
    parts: list[str | None] = [
        element(
            "p", f"A is {one_line(a.name)} {a.id}, B is {one_line(b.name)} {b.id}. ", link, class_="lux-quiet"
        ),
        element("p", plain(why.conclusion)) if why is not None else None,
    ]
    for title, changes in (
        ("Parameters", diff.params),
        ("Command", diff.command),
        ("Environment", diff.environment),
    ):
        parts.append(_changes(title, changes))
    metrics = [
        [m.key, m.a, m.b, m.difference, m.relative]
        for m in diff.metrics
        if not m.key.startswith(records.SYSTEM)
    ]
    if metrics:
        columns = [Column("metric"), Column("A", NUMBER), Column("B", NUMBER), Column("difference", NUMBER), Column("relative", SHARE, form="+.1%")]  # fmt: skip
        parts += [element("h3", "Metrics"), table_html(Table(columns, metrics))]
    if curves and metrics:
        shared = [m.key for m in diff.metrics if m.a is not None and m.b is not None and not m.key.startswith(records.SYSTEM)]  # fmt: skip
        parts.append(charts_html(_charts([a, b], shared[:_MOST_SHARED]), controls=False))
    parts.append(code_changes_html(diff))
    return card("Compared with another run", *parts)


def _changes(title: str, changes: Sequence[Change]) -> Html | None:
    if not changes:
        return None
    rows = [[c.name, *told_apart(c.a, c.b, value_text)] for c in changes]
    return joined((element("h3", title), table_html(Table([Column("what"), Column("A"), Column("B")], rows))))


def code_changes_html(diff: RunDiff) -> Html | None:
    """The lines that differ; None if none does."""
    lines = [line for file in diff.code for line in plain(file.text).splitlines()]
    if not lines:
        return None
    marks = {"+": "add", "-": "del"}
    shown = [
        element("span", f"{line}\n", class_=marks.get(line[:1]) if not line.startswith(("+++", "---")) else None)
        for line in lines[:_MOST_DIFF_LINES]
    ]  # fmt: skip
    return joined((element("h3", "Code"), element("pre", *shown, class_="lux-code")))


def run_before(run: Run) -> Run | None:
    """The finished run of the same name before this one."""
    for other in _of_the_name(run):
        if other.created_ns < run.created_ns and other.state == "finished":
            return other
    return None


def siblings(run: Run) -> list[Run]:
    """The runs that differ from this one in their seed only, it among them."""
    for group in group_runs(_of_the_name(run)):
        if any(member.id == run.id for member in group.members):
            return list(group.members)
    return [run]


def _of_the_name(run: Run) -> list[Run]:
    """All of the lab, the newest first; none if the run lies in no lab."""
    try:
        return list(find_runs(C.name == run.name, lab=lab_of(run)))
    except LuxmeterError:
        return []


def repeats_html(runs: Sequence[Run]) -> Html | None:
    """Runs that differ in their seed alone: mean and band."""
    groups = [group for group in group_runs(runs) if group.n > 1]
    if not groups:
        return None
    sets = curves_of([run for group in groups for run in group.members], repeats=True)
    charts = [
        Chart(key, "step", [thinned(line) for line in lines], note=BANDS["ci"])
        for key, lines in lines_of(sets, band="ci").items()
    ]
    metrics = [key for key in groups[0].metrics if not key.startswith(records.SYSTEM)]
    table = table_html(repeat_table(groups, metrics).as_table()) if metrics else None
    return card(
        "Repeats",
        table,
        charts_html(charts[:_MOST_CHARTS], controls=False),
        quiet="runs that differ in their seed alone",
    )


def code_html(run: Run) -> Html | None:
    """The files that ran."""
    if run.snapshot is None:
        return None
    tree, left, made = whole_tree(run), _MOST_CODE, []
    ran = [name for name in run.code if name in tree.files] or list(tree.files)
    for name in ran:
        text = tree.read(name).decode("utf-8", "replace")
        left -= len(text)
        if left < 0:
            made.append(element("p", "more files are in the run", class_="lux-quiet"))
            break
        made.append(element("details", element("summary", name), numbered_html(text)))
    return card("Code", *made, quiet=f"{counted(len(ran), 'file')} that ran") if made else None


def numbered_html(text: str) -> Html:
    """Text with the numbers of its lines, which are not taken along when it is copied."""
    lines = plain(text).splitlines()
    numbers = element("pre", "\n".join(str(n) for n in range(1, len(lines) + 1)), class_="lux-code lux-lines", aria_hidden="true")  # fmt: skip
    return element("div", numbers, element("pre", "\n".join(lines), class_="lux-code"), class_="lux-numbered")


def output_html(run: Run) -> Html | None:
    """The end of what it printed."""
    lines = plain(run.log_text).splitlines()
    if not lines:
        return None
    quiet = f"the last {_MOST_LOG_LINES} of {len(lines)} lines" if len(lines) > _MOST_LOG_LINES else ""
    return card("Output", element("pre", "\n".join(lines[-_MOST_LOG_LINES:]), class_="lux-log"), quiet=quiet)


def report_markdown(runs: Sequence[Run], *, against: Run | None = None) -> str:
    """The same in Markdown: tables and lines, no pictures."""
    if len(runs) > 1:
        parts = [f"# {len(runs)} runs"]
        for run in runs:
            parts += list(_markdown_of(run, None, level="##"))
    else:
        run = runs[0]
        parts = list(_markdown_of(run, against if against is not None else run_before(run), level="#"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_of(run: Run, other: Run | None, *, level: str) -> Iterator[str]:
    yield f"{level} {one_line(run.name)} ({run.id})"
    yield "\n".join(f"- {fact}" for fact in (*_facts(run), command_text(run), machine_text(run)) if fact)
    if run.error:
        yield f"```text\n{plain(run.error).strip()}\n```"
    params = flatten(dict(run.params))
    if params:
        yield f"{level}# Parameters"
        yield markdown(
            Table([Column("parameter"), Column("value")], [[k, value_text(v)] for k, v in params.items()])
        )
    if run.metrics:
        yield f"{level}# Metrics"
        yield markdown(_metrics(run, curve=True))
    if run.trace is not None:
        yield f"{level}# The hottest calls"
        yield "\n".join(f"- {fact}" for fact in trace_facts(run.trace))
        yield markdown(run.trace.table().as_table(top=20))
    if run.bench is not None:
        yield f"{level}# Operators measured"
        yield markdown(run.bench.table())
    if run.model is not None:
        yield f"{level}# What {run.model.name} costs"
        from luxmeter.view.text.model import summary_lines

        yield "\n".join(f"- {line}" for line in summary_lines(run.model))
    if other is not None:
        diff, why = diff_runs(other, run)
        yield f"{level}# Compared with {one_line(other.name)} {other.id}"
        yield plain(why.conclusion) if why is not None else ""
        changes = [
            [c.name, *told_apart(c.a, c.b, value_text)]
            for c in (*diff.params, *diff.command, *diff.environment)
        ]
        if changes:
            yield markdown(Table([Column("what"), Column("before"), Column("now")], changes))
    lines = plain(run.log_text).splitlines()
    if lines:
        yield f"{level}# Output"
        yield "```text\n" + "\n".join(lines[-40:]) + "\n```"
