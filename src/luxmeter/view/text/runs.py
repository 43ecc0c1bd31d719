"""How runs are put into words and columns: when, how long, which values; shared by the commands that show runs."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from luxmeter.described import canonical
from luxmeter.files import from_json
from luxmeter.plain_text import one_line
from luxmeter.render import NUMBER, TEXT, Column, Table, long_span, number, terminal_width
from luxmeter.store import Field, RunRow, parse_field, records

_PARAM_COLUMNS, _METRIC_COLUMNS = 6, 4
_NARROW, _NAME = (
    110,
    12,
)  # below so many columns ids are written short, and a long name is cut before state, created or duration go


def when_text(created_ns: int) -> str:
    """Local date and time."""
    return datetime.fromtimestamp(created_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")


def value_text(value: Any) -> str:
    """A parameter's or metric's value in one harmless line."""
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping) and len(value) == 1:
        value = from_json(value)  # as the index holds what JSON has no word for
    text = value if isinstance(value, str) else "-" if value is None else str(value)
    return one_line(text)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The beginning of each id, where no other of them has the same."""
    beginnings = Counter(id_.partition("-")[0] for id_ in ids)
    return {id_: short if beginnings[short := id_.partition("-")[0]] == 1 else id_ for id_ in ids}


def default_columns(rows: Sequence[RunRow]) -> list[str]:
    """What tells these runs apart: parameters that vary (all, for a single one), their metrics, tags and note if any."""
    told, metrics = _told(rows)
    columns = ["id", "name", "state", "created", "duration"]
    columns += [*told[:_PARAM_COLUMNS], *metrics[:_METRIC_COLUMNS]]
    columns += ["tag"] if any(row.tags for row in rows) else []
    return columns + (["note"] if any(row.note for row in rows) else [])


def beyond_default(rows: Sequence[RunRow]) -> list[str]:
    """The parameters and metrics that default_columns has no place for."""
    told, metrics = _told(rows)
    return [heading(parse_field(name)) for name in (*told[_PARAM_COLUMNS:], *metrics[_METRIC_COLUMNS:])]


def _told(rows: Sequence[RunRow]) -> tuple[list[str], list[str]]:
    """Parameters and metrics that may be columns, those that most runs have first."""
    params = [row.params for row in rows]
    keys = list(dict.fromkeys(key for one in params for key in one))
    told = _commonest(
        [k for k in keys if len(rows) == 1 or len({_known(one, k) for one in params}) > 1], params
    )
    logged = [row.metrics for row in rows]
    metrics = _commonest(
        dict.fromkeys(key for one in logged for key in one if not key.startswith(records.SYSTEM)), logged
    )
    return [f"param.{key}" for key in told], [f"metric.{key}" for key in metrics]


def _commonest(keys: Iterable[str], among: Sequence[Mapping[str, Any]]) -> list[str]:
    """What most of the runs have comes first, of equals what they name first: a run of another kind moves nothing."""
    return sorted(keys, key=lambda key: -sum(key in one for one in among))


def row_cells(row: RunRow, fields: Iterable[Field]) -> list[Any]:
    """The values of one row."""
    params, metrics = row.params, row.metrics
    return [_cell(row, params, metrics, field) for field in fields]


def heading(field: Field) -> str:
    """The name above a column."""
    if field.kind == "param":
        return one_line(field.name)
    if field.kind == "metric":
        return one_line(field.name if field.part in ("", "last") else f"{field.name}.{field.part}")
    return "tags" if field.kind == "tag" else field.kind


def print_rows(rows: Sequence[RunRow], columns: Sequence[str]) -> list[str]:
    """Print a table that fits the terminal; returns the columns that found no room.

    The rest of an id is the date and time that `created` says: where there is little room its beginning, by which a run can be named,
    leaves some for how long it took and for what it measured.
    """
    width = terminal_width(sys.stdout)
    narrow = width is not None and width < _NARROW
    return rows_table(
        rows,
        columns,
        most=40 if sys.stdout.isatty() else None,
        name_folds=_NAME if narrow else None,
        short=narrow,
    ).print()


def rows_table(
    rows: Sequence[RunRow],
    columns: Sequence[str],
    *,
    most: int | None = None,
    name_folds: int | None = None,
    short: bool = False,
) -> Table:
    """Runs under these columns; texts longer than `most` are cut, names down to `name_folds` where room is short. `short`: ids by
    their beginnings.
    """
    ids = short_ids([row.id for row in rows]) if short else {}
    fields = [parse_field("tag" if c == "tags" else c) for c in columns]
    typed = [
        Column(
            heading(field), NUMBER if field.kind in ("metric", "duration") else TEXT, one_line=True,
            most=most, folds=None if name_folds is None else name_folds if field.kind == "name" else most, goes=_GOES.get(field.kind, 0) - place / 1000, is_state=field.kind == "state",
        )
        for place, field in enumerate(fields)
    ]  # fmt: skip
    places = [place for place, field in enumerate(fields) if field.kind == "id" and short]
    cells = [row_cells(row, fields) for row in rows]
    for row, line in zip(rows, cells, strict=True):
        for place in places:
            line[place] = ids[row.id]
    return Table(typed, cells)


# What tells least goes first where the terminal is narrow; of one kind the last column. How it went stays before when it was.
_GOES = {
    "note": 0, "tag": 3, "param": 4, "metric": 5, "duration": 6, "created": 7, "state": 8, "name": 8.5, "id": 9,
}  # fmt: skip


def _cell(row: RunRow, params: Mapping[str, Any], metrics: Mapping[str, Any], field: Field) -> Any:
    if field.kind == "param":
        return value_text(params[field.name]) if field.name in params else "-"
    if field.kind == "metric":
        return value_text(metrics.get(field.name, {}).get(field.part or "last"))
    if field.kind == "created":
        return when_text(row.created_ns)
    if field.kind == "ended":
        return "-" if row.ended_ns is None else when_text(row.ended_ns)
    if field.kind == "duration":
        return long_span(row.duration_s)
    if field.kind == "tag":
        return one_line(" ".join(row.tags))
    if field.kind == "archived":
        return "yes" if row.archived else "no"
    return one_line(str(getattr(row, field.kind)))


def _known(params: Mapping[str, Any], key: str) -> str:
    return canonical(params[key]) if key in params else ""
