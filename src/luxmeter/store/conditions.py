"""The index's tables, and a filter expression as a condition on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from luxmeter.store.query import Both, Condition, Expression, Field, Not

metadata = sa.MetaData()

runs = sa.Table(
    "luxmeter_runs",
    metadata,
    sa.Column("lab", sa.String(32), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created_ns", sa.BigInteger, nullable=False),
    sa.Column("ended_ns", sa.BigInteger),
    sa.Column("archived", sa.Boolean, nullable=False),
    sa.Column("recheck", sa.Boolean, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("params_json", sa.Text, nullable=False),
    sa.Column("metrics_json", sa.Text, nullable=False),
    sa.Column("tags_json", sa.Text, nullable=False),
    # The first holds all that a list shows: rows, which are long, are read only when more is asked for.
    sa.Index("luxmeter_runs_list", "lab", "archived", "created_ns", "id", "name", "state", "ended_ns"),
    sa.Index("luxmeter_runs_created", "lab", "created_ns"),
    sa.Index("luxmeter_runs_name", "lab", "name"),
    sa.Index("luxmeter_runs_recheck", "lab", "recheck"),
)
params = sa.Table(
    "luxmeter_params",
    metadata,
    sa.Column("lab", sa.String(32), primary_key=True),
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(512), primary_key=True),
    sa.Column("number", sa.Float(53)),
    sa.Column("text", sa.Text),
    sa.Index(
        "luxmeter_params_number", "lab", "key", "number", "run"
    ),  # with the run: filters read nothing else
)
metrics = sa.Table(
    "luxmeter_metrics",
    metadata,
    sa.Column("lab", sa.String(32), primary_key=True),
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(512), primary_key=True),
    sa.Column("n", sa.BigInteger),
    sa.Column("last", sa.Float(53)),
    sa.Column("last_step", sa.BigInteger),
    sa.Column("min", sa.Float(53)),
    sa.Column("max", sa.Float(53)),
    sa.Index("luxmeter_metrics_last", "lab", "key", "last", "run"),
)
tags = sa.Table(
    "luxmeter_tags",
    metadata,
    sa.Column("lab", sa.String(32), primary_key=True),
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("tag", sa.String(512), primary_key=True),
)
progress = sa.Table(
    "luxmeter_progress",
    metadata,
    sa.Column("lab", sa.String(32), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text),
)

_COLUMNS = {
    "id": "id",
    "name": "name",
    "state": "state",
    "note": "note",
    "host": "host",
    "archived": "archived",
}


def where_clause(expression: Expression, lab: str) -> Any:
    """The expression as a condition on `runs` of one lab."""
    if isinstance(expression, Both):
        left, right = where_clause(expression.left, lab), where_clause(expression.right, lab)
        return sa.and_(left, right) if expression.word == "and" else sa.or_(left, right)
    if isinstance(expression, Not):
        return sa.not_(where_clause(expression.inner, lab))
    return _condition(expression, lab)


def order_by(query: sa.Select[Any], sort: Sequence[tuple[Field, bool]]) -> sa.Select[Any]:
    """Sort by fields, each with whether it falls; runs without the value come last, ties newest first."""
    for number, (field, falling) in enumerate(sort):
        if field.kind in ("param", "metric"):
            table = (params if field.kind == "param" else metrics).alias(f"sort{number}")
            joined = (table.c.lab == runs.c.lab) & (table.c.run == runs.c.id) & (table.c.key == field.name)
            query = query.outerjoin(table, joined)
            columns = [table.c.number, table.c.text] if field.kind == "param" else [table.c[field.part]]
        else:
            columns = [_column(field)]
        for column in columns:
            if not (field.kind in _COLUMNS or field.kind in ("created", "tag")):
                query = query.order_by(
                    column.is_(None)
                )  # only where there may be none: it keeps indexes from sorting
            query = query.order_by(column.desc() if falling else column.asc())
    if not sort or sort[-1][0].kind != "created":
        query = query.order_by(runs.c.created_ns.desc())
    return query


def _condition(condition: Condition, lab: str) -> Any:
    # The lab is a constant in the inner selects, not runs.lab: a select that refers to the outer row is run again
    # for each of 10,000 runs.
    field, op, value = condition.field, condition.op, condition.value
    if field.kind == "tag":
        test = _compare(tags.c.tag, "=" if op == "!=" else op, str(value))
        inner = sa.select(tags.c.run).where(tags.c.lab == lab, test)
        return sa.not_(runs.c.id.in_(inner)) if op == "!=" else runs.c.id.in_(inner)
    if field.kind == "param":
        number = isinstance(value, bool | int | float) and op != "~"
        column = params.c.number if number else params.c.text
        test = _compare(column, op, float(value) if number else str(value))
        return runs.c.id.in_(
            sa.select(params.c.run).where(params.c.lab == lab, params.c.key == field.name, test)
        )
    if field.kind == "metric":
        test = _compare(metrics.c[field.part], op, value)
        return runs.c.id.in_(
            sa.select(metrics.c.run).where(metrics.c.lab == lab, metrics.c.key == field.name, test)
        )
    if field.kind == "archived":
        return runs.c.archived.is_(bool(value)) if op == "=" else runs.c.archived.is_not(bool(value))
    return _compare(
        _column(field), op, value if field.kind in ("created", "ended", "duration") else str(value)
    )


def _column(field: Field) -> Any:
    if field.kind == "created":
        return runs.c.created_ns
    if field.kind == "ended":
        return runs.c.ended_ns
    if field.kind == "duration":
        return (runs.c.ended_ns - runs.c.created_ns) / 1e9
    if field.kind == "tag":
        return runs.c.tags_json
    return runs.c[_COLUMNS[field.kind]]


def _compare(column: Any, op: str, value: Any) -> Any:
    if op == "~":
        return sa.cast(column, sa.Text).like(_like(str(value)), escape="\\")
    return {
        "=": column == value,
        "!=": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }[op]


def _like(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")
