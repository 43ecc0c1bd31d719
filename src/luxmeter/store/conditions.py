"""A filter expression and a sort as SQL on the index's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from luxmeter.store.query import Both, Condition, Expression, Field, Not
from luxmeter.store.tables import metrics, params, runs, tags

_COLUMNS = {
    "id": "id",
    "name": "name",
    "state": "state",
    "note": "note",
    "host": "host",
    "archived": "archived",
}


def asked(
    query: sa.Select[Any],
    expression: Expression | None,
    sort: Sequence[tuple[Field, bool]],
    lab: str,
    *,
    limit: int | None = None,
) -> sa.Select[Any]:
    """`query` on `runs` of one lab, with the filter, the order and the limit.

    Conditions on parameters and metrics that must all hold are joins: a run has each at most once, and the database
    begins with the one that leaves the fewest. What stands under `or` and `not` is a select inside the condition.
    """
    joined = _Joined(query, lab)
    for part in _all_of(expression):
        if isinstance(part, Condition) and part.field.kind in ("param", "metric"):
            joined.require(part)
        else:
            joined.query = joined.query.where(where_clause(part, lab))
    # Sorted by the index of creation, the database would walk through all runs instead of beginning with the
    # condition; that pays only where it can stop after a few.
    joined.sort(sort, walk=limit is not None or not joined.required)
    return joined.query if limit is None else joined.query.limit(limit)


def where_clause(expression: Expression, lab: str) -> Any:
    """The expression as a condition on `runs` of one lab."""
    if isinstance(expression, Both):
        left, right = where_clause(expression.left, lab), where_clause(expression.right, lab)
        return sa.and_(left, right) if expression.word == "and" else sa.or_(left, right)
    if isinstance(expression, Not):
        return sa.not_(where_clause(expression.inner, lab))
    return _condition(expression, lab)


class _Joined:
    """A query on `runs` and the parameters and metrics joined to it, each once."""

    def __init__(self, query: sa.Select[Any], lab: str) -> None:
        self.query = query
        self.required: dict[tuple[str, str], Any] = {}
        self._compared: set[Any] = set()  # columns that cannot be null in what is found
        self._lab = lab

    def require(self, condition: Condition) -> None:
        """Only runs that have this parameter or metric, with such a value."""
        field = condition.field
        table = self.required.get((field.kind, field.name))
        if table is None:
            table = self.required[field.kind, field.name] = self._table(field, f"has{len(self.required)}")
            self.query = self.query.join(table, self._on(table, field))
        column, value = _compared(table, condition)
        self.query = self.query.where(_compare(column, condition.op, value))
        self._compared.add(column)

    def sort(self, fields: Sequence[tuple[Field, bool]], *, walk: bool) -> None:
        """Sort by fields, each with whether it falls; runs without the value come last, ties newest first."""
        for number, (field, falling) in enumerate(fields):
            for column in self._sorted(field, f"sort{number}", walk):
                optional = field.kind in ("param", "metric", "ended", "duration")
                if optional and column not in self._compared:
                    self.query = self.query.order_by(column.is_(None))
                self.query = self.query.order_by(column.desc() if falling else column.asc())
        if not fields or fields[-1][0].kind != "created":
            self.query = self.query.order_by(_created(walk).desc())

    def _sorted(self, field: Field, alias: str, walk: bool) -> list[Any]:
        if field.kind == "created":
            return [_created(walk)]
        if field.kind not in ("param", "metric"):
            return [_column(field)]
        table = self.required.get((field.kind, field.name))
        if table is None:
            table = self._table(field, alias)
            self.query = self.query.outerjoin(table, self._on(table, field))
        return [table.c.number, table.c.text] if field.kind == "param" else [table.c[field.part]]

    def _table(self, field: Field, alias: str) -> Any:
        return (params if field.kind == "param" else metrics).alias(alias)

    def _on(self, table: Any, field: Field) -> Any:
        return (table.c.lab == self._lab) & (table.c.run == runs.c.id) & (table.c.key == field.name)


def _all_of(expression: Expression | None) -> Iterator[Expression]:
    """The parts that must all hold."""
    if isinstance(expression, Both) and expression.word == "and":
        yield from _all_of(expression.left)
        yield from _all_of(expression.right)
    elif expression is not None:
        yield expression


def _created(walk: bool) -> Any:
    return runs.c.created_ns if walk else runs.c.created_ns + 0  # an expression: no index gives its order


def _condition(condition: Condition, lab: str) -> Any:
    # The lab is a constant in the inner selects, not runs.lab: a select that refers to the outer row is run again
    # for each of 10,000 runs.
    field, op, value = condition.field, condition.op, condition.value
    if field.kind == "tag":
        test = _compare(tags.c.tag, "=" if op == "!=" else op, str(value))
        inner = sa.select(tags.c.run).where(tags.c.lab == lab, test)
        return sa.not_(runs.c.id.in_(inner)) if op == "!=" else runs.c.id.in_(inner)
    if field.kind in ("param", "metric"):
        table = params if field.kind == "param" else metrics
        column, wanted = _compared(table, condition)
        inner = sa.select(table.c.run).where(table.c.lab == lab, table.c.key == field.name)
        return runs.c.id.in_(inner.where(_compare(column, op, wanted)))
    if field.kind == "archived":
        return runs.c.archived.is_(bool(value)) if op == "=" else runs.c.archived.is_not(bool(value))
    return _compare(
        _column(field), op, value if field.kind in ("created", "ended", "duration") else str(value)
    )


def _compared(table: Any, condition: Condition) -> tuple[Any, Any]:
    """The column of `params` or `metrics` that a condition is about, and the value it is compared with."""
    value = condition.value
    if condition.field.kind == "metric":
        return table.c[condition.field.part], value
    number = isinstance(value, bool | int | float) and condition.op != "~"
    return (table.c.number, float(value)) if number else (table.c.text, str(value))


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
