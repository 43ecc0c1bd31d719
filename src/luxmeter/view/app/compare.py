"""Any number of runs together: a table, their curves or bands of groups, parallel coordinates, and of two what changed."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from luxmeter.errors import LuxmeterError
from luxmeter.experiment import axes_of, group_runs, names_of, repeat_table
from luxmeter.render import Html, Parallel, card, element, joined, parallel_html, table_html
from luxmeter.store import Run, records
from luxmeter.view.app.curves_part import Chosen, charts_of, curves_part, known_metrics
from luxmeter.view.app.runs_list import rows_html
from luxmeter.view.app.shell import quiet, readable
from luxmeter.view.pages.report import compared_html

MOST = 2000  # runs
_LINES = 30  # drawn one by one
_GROUPED = 400  # runs whose curves are read for bands
_ROWS = 200


def compare_page(members: Sequence[Run], chosen: Chosen, *, left_out: int = 0, where: str = "") -> Html:
    """The runs were found; `left_out` more were asked for; `where`: by which filter."""
    if not members:
        how = "Choose runs in the list, or name them: /compare?run=ID&run=ID, or by a filter: /compare?where=tag = sweep"
        return joined((element("h1", "Compare"), quiet(how)))
    known = known_metrics(members)
    few = members[: _GROUPED if chosen.by else _LINES]
    not_drawn = len(members) - len(few)
    more = (
        quiet(
            f"The curves are those of the first {len(few):,} runs; a group's line takes up to {_GROUPED:,}."
        )
        if not_drawn
        else None
    )
    rows = [run.row for run in members[:_ROWS]]
    table = rows_html(rows)
    asked = (
        element("p", "those of the filter ", element("a", where, href=f"/runs?{urlencode({'where': where})}"), class_="lux-quiet")
        if where
        else None
    )  # fmt: skip
    told = (
        [f"{len(members) - len(rows):,} more runs are not in the table"] if len(members) > len(rows) else []
    )
    told += [f"{left_out:,} more fulfil the filter and are left out"] if left_out else []
    return joined(
        (
            element("h1", f"{len(members):,} {'run' if len(members) == 1 else 'runs'}"),
            asked,
            card("Runs", table, *map(quiet, told)),
            readable("Curves", lambda: curves_part(chosen, known, lambda keys: charts_of(few, keys, by=chosen.by), groups=_groups(members))),
            more,
            readable("Parallel coordinates", lambda: _parallel(members)),
            readable("Repeats", lambda: _repeats(few, chosen)),
            readable("Compared", lambda: compared_html(members[0], members[1])) if len(members) == 2 else None,
        )
    )  # fmt: skip


def _groups(members: Sequence[Run]) -> list[str]:
    """By what they may be grouped: what they share in part."""
    if len(members) < 3:
        return []
    fields = ["", "repeats", "name"]
    params = dict.fromkeys(key for run in members for key in run.variant)
    for key in params:
        different = {str(run.variant.get(key)) for run in members}
        if 1 < len(different) < len(members):
            fields.append(f"param.{key}")
    return [*fields, "tag", "state"]


def _parallel(members: Sequence[Run]) -> Html | None:
    """Parameters that differ and the first metrics, a line a run."""
    if len(members) < 3:
        return None
    try:
        axes = axes_of(members)
    except LuxmeterError:  # fewer than two axes: they differ in nothing
        return None
    return card(
        "Parallel coordinates", parallel_html(Parallel("", names_of(members), axes)), quiet="a line a run"
    )


def _repeats(members: Sequence[Run], chosen: Chosen) -> Html | None:
    """Means and intervals of runs that differ in their seed alone."""
    if len(members) < 2:
        return None
    groups = [group for group in group_runs(members) if group.n > 1]
    metrics = (
        [key for key in groups[0].metrics if not key.startswith((records.SYSTEM, "control/"))]
        if groups
        else []
    )
    if not metrics:
        return None
    table = table_html(repeat_table(groups, chosen.of_page(chosen.those_of(metrics)) or metrics).as_table())
    return card("Repeats", table, quiet="runs that differ in their seed alone: mean and interval")
