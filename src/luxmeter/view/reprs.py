"""What a notebook shows of runs, models and what is told by several tables: the same tables that a terminal gets."""

from __future__ import annotations

from luxmeter.errors import LuxmeterError
from luxmeter.experiment import Explanation, RunDiff, Runs
from luxmeter.model import ModelComparison, ModelCost
from luxmeter.operators import Operators
from luxmeter.render import Chart, Column, Line, Table, charts_repr, counted, pre_repr, repr_html
from luxmeter.store import Run, flatten, records
from luxmeter.view.text.model import comparison_table, cost_tables, summary_lines, warning_lines
from luxmeter.view.text.operators import operators_table
from luxmeter.view.text.run import METRIC_COLUMNS, head_facts, head_line, metrics_table
from luxmeter.view.text.run_diff import candidates_table, changes_table, metric_changes
from luxmeter.view.text.runs import default_columns, rows_table, value_text

_MOST_RUNS, _MOST_CHARTS, _CURVE_LETTERS = 50, 4, 30


def run_html(run: Run) -> str:
    """A run: how it was made, parameters, metrics, their curves, results."""
    try:
        return _run_html(run)
    except LuxmeterError as error:  # damaged, or removed meanwhile: one line, and no traceback in the cell
        return repr_html(str(error), title=f"run {run.folder.name}")


def _run_html(run: Run) -> str:
    facts = Table([Column(""), Column("")], list(head_facts(run).items()))
    params = [[key, value_text(value)] for key, value in flatten(dict(run.params)).items()]
    results = [[result.name, result.title] for result in run.results()]
    return repr_html(
        facts,
        *([pre_repr(run.error.strip()[-2000:])] if run.error else []),
        *([Table([Column("parameter"), Column("value")], params)] if params else []),
        Table(METRIC_COLUMNS, metrics_table(run, room=_CURVE_LETTERS).rows),
        charts_repr(*metric_charts(run)),
        *([Table([Column("result"), Column("")], results)] if results else []),
        title=head_line(run),
    )


def metric_charts(run: Run, most: int = _MOST_CHARTS) -> list[Chart]:
    """The curves of its first metrics that have one."""
    shown = [key for key, told in run.metrics.items() if not key.startswith(records.SYSTEM) and told["n"] > 1]
    charts = []
    for key in shown[:most]:
        points = run.metric(key)
        charts.append(Chart(key, "step", [Line(run.id, points.steps.astype(float), points.values)]))
    return charts


def runs_html(found: Runs) -> str:
    """Runs, the first of them as `luxmeter runs` lists them."""
    rows = found[:_MOST_RUNS].rows
    title = counted(len(found), "run") + (f" of {found.lab.folder}" if found.lab else "")
    more = f"... and {len(found) - _MOST_RUNS} more" if len(found) > _MOST_RUNS else ""
    return repr_html(rows_table(rows, default_columns(rows)), more, title=title) if rows else repr_html(title)


def run_diff_html(diff: RunDiff) -> str:
    """Two runs: what differs between them."""
    parts: list[Table | str] = [f"A  {head_line(diff.a)}\nB  {head_line(diff.b)}"]
    changes = {"parameters": diff.params, "command": diff.command, "environment": diff.environment}
    for title, found in changes.items():
        parts.append(_titled(title, changes_table(found, most=20)) if found else f"{title}: the same")
    code = [[file.path, file.kind, f"+{file.added} -{file.removed}"] for file in diff.code]
    if code:
        parts.append(Table([Column("code"), Column(""), Column("lines")], code))
    else:
        parts.append("code: the same" if diff.code_known else "code: not kept by both")
    return repr_html(*parts, _titled("metrics, last values", metric_changes(diff)))


def explanation_html(why: Explanation) -> str:
    """What plausibly explains a difference."""
    said = [why.conclusion, f"chance: {why.chance.words}"]
    return repr_html(
        *said, candidates_table(why), title=f"why {why.metric} differs" if why.differs else "why"
    )


def operators_html(found: Operators) -> str:
    """Operators with what they were given."""
    return repr_html(operators_table(found))


def model_html(cost: ModelCost) -> str:
    """A model's cost."""
    head, *lines = summary_lines(cost)
    return repr_html(pre_repr("\n".join(lines)), *cost_tables(cost), *warning_lines(cost), title=head)


def models_html(together: ModelComparison) -> str:
    """Models side by side."""
    return repr_html(comparison_table(together))


def _titled(title: str, table: Table) -> Table:
    return Table(table.columns, table.rows, title=title, notes=table.notes)
