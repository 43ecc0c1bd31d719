"""A filter expression and a sort as SQL on the index's tables.

A column's name is made of words of ours alone; whatever a user typed is a value, never text of the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from luxmeter.store.query import Both, Condition, Expression, Field, Not
from luxmeter.store.tables import METRICS, PARAMS, RUNS, TAGS

_COLUMNS = {
    name: f"{RUNS}.{column}"
    for name, column in {
        **{name: name for name in ("id", "name", "state", "note", "host", "archived")},
        "created": "created_ns",
        "ended": "ended_ns",
        "tag": "tags_json",
    }.items()
} | {"duration": f"(({RUNS}.ended_ns - {RUNS}.created_ns) / 1e9)"}


class Sql(NamedTuple):
    """A piece of a statement, and the values of its question marks."""

    text: str
    values: tuple[Any, ...] = ()


def asked(
    columns: str,
    expression: Expression | None,
    sort: Sequence[tuple[Field, bool]],
    lab: str,
    *,
    archived: bool | None = None,
    limit: int | None = None,
) -> Sql:
    """The statement that gives `columns` of one lab's runs, with the filter, the order and the limit.

    Conditions on parameters and metrics that must all hold are joins: a run has each at most once, and the database
    begins with the one that leaves the fewest. What stands under `or` and `not` is a select inside the condition.
    """
    joined = _Joined(lab)
    if archived is not None:
        joined.wheres.append(Sql(f"{RUNS}.archived = ?", (archived,)))
    for part in _all_of(expression):
        if isinstance(part, Condition) and part.field.kind in ("param", "metric"):
            joined.require(part)
        else:
            joined.wheres.append(where_clause(part, lab))
    # Sorted by the index of creation, the database would walk through all runs instead of beginning with the
    # condition; that pays only where it can stop after a few.
    joined.sort(sort, walk=limit is not None or not joined.required)
    pieces = [
        Sql(f"select {columns} from {RUNS}"),
        *joined.joins,
        _joined(" and ", joined.wheres, "where "),
        Sql(f"order by {', '.join(joined.orders)}"),
        *([] if limit is None else [Sql("limit ?", (limit,))]),
    ]
    return _joined(" ", pieces)


def where_clause(expression: Expression, lab: str) -> Sql:
    """The expression as a condition on the runs of one lab."""
    if isinstance(expression, Both):
        sides = [where_clause(expression.left, lab), where_clause(expression.right, lab)]
        inner = _joined(f" {expression.word} ", sides)
        return Sql(f"({inner.text})", inner.values)
    if isinstance(expression, Not):
        inner = where_clause(expression.inner, lab)
        return Sql(f"(not {inner.text})", inner.values)
    return _condition(expression, lab)


class _Joined:
    """A question about runs, and the parameters and metrics joined to it, each once."""

    def __init__(self, lab: str) -> None:
        self.joins: list[Sql] = []
        self.wheres = [Sql(f"{RUNS}.lab = ?", (lab,))]
        self.orders: list[str] = []
        self.required: dict[tuple[str, str], str] = {}
        self._compared: set[str] = set()  # columns that cannot be null in what is found
        self._lab = lab

    def require(self, condition: Condition) -> None:
        """Only runs that have this parameter or metric, with such a value."""
        field = condition.field
        table = self.required.get((field.kind, field.name))
        if table is None:
            table = self.required[field.kind, field.name] = f"has{len(self.required)}"
            self._join("join", field, table)
        column, value = _compared(table, condition)
        self.wheres.append(_compare(column, condition.op, value))
        self._compared.add(column)

    def sort(self, fields: Sequence[tuple[Field, bool]], *, walk: bool) -> None:
        """Sort by fields, each with whether it falls; runs without the value come last, ties newest first."""
        for number, (field, falling) in enumerate(fields):
            for column in self._sorted(field, f"sort{number}", walk):
                optional = field.kind in ("param", "metric", "ended", "duration")
                if optional and column not in self._compared:
                    self.orders.append(f"{column} is null")
                self.orders.append(f"{column} {'desc' if falling else 'asc'}")
        if not fields or fields[-1][0].kind != "created":
            self.orders.append(f"{_created(walk)} desc")

    def _sorted(self, field: Field, alias: str, walk: bool) -> list[str]:
        if field.kind == "created":
            return [_created(walk)]
        if field.kind not in ("param", "metric"):
            return [_COLUMNS[field.kind]]
        table = self.required.get((field.kind, field.name))
        if table is None:
            table = alias
            self._join("left join", field, table)
        return [f"{table}.number", f"{table}.text"] if field.kind == "param" else [f"{table}.{field.part}"]

    def _join(self, word: str, field: Field, alias: str) -> None:
        table = PARAMS if field.kind == "param" else METRICS
        on = f"{alias}.lab = ? and {alias}.run = {RUNS}.id and {alias}.key = ?"
        self.joins.append(Sql(f"{word} {table} {alias} on {on}", (self._lab, field.name)))


def _all_of(expression: Expression | None) -> Iterator[Expression]:
    """The parts that must all hold."""
    if isinstance(expression, Both) and expression.word == "and":
        yield from _all_of(expression.left)
        yield from _all_of(expression.right)
    elif expression is not None:
        yield expression


def _created(walk: bool) -> str:
    return (
        f"{RUNS}.created_ns" if walk else f"({RUNS}.created_ns + 0)"
    )  # an expression: no index gives its order


def _condition(condition: Condition, lab: str) -> Sql:
    # The lab is a constant in the inner selects, not runs.lab: a select that refers to the outer row is run again
    # for each of 10,000 runs.
    field, op, value = condition.field, condition.op, condition.value
    if field.kind == "tag":
        test = _compare("tag", "=" if op == "!=" else op, str(value))
        word = "not in" if op == "!=" else "in"
        return Sql(
            f"{RUNS}.id {word} (select run from {TAGS} where lab = ? and {test.text})", (lab, *test.values)
        )
    if field.kind in ("param", "metric"):
        table = PARAMS if field.kind == "param" else METRICS
        column, wanted = _compared(table, condition)
        test = _compare(column, op, wanted)
        inner = f"select run from {table} where lab = ? and key = ? and {test.text}"
        return Sql(f"{RUNS}.id in ({inner})", (lab, field.name, *test.values))
    if field.kind == "archived":
        return Sql(f"{_COLUMNS['archived']} {'=' if op == '=' else '!='} ?", (bool(value),))
    plain = value if field.kind in ("created", "ended", "duration") else str(value)
    return _compare(_COLUMNS[field.kind], op, plain)


def _compared(table: str, condition: Condition) -> tuple[str, Any]:
    """The column of a table of parameters or metrics that a condition is about, and the value it is compared with."""
    value = condition.value
    if condition.field.kind == "metric":
        return f"{table}.{condition.field.part}", value
    number = isinstance(value, bool | int | float) and condition.op != "~"
    return (f"{table}.number", float(value)) if number else (f"{table}.text", str(value))


def _compare(column: str, op: str, value: Any) -> Sql:
    if op == "~":
        return Sql(f"cast({column} as text) like ? escape '\\'", (_like(str(value)),))
    return Sql(f"{column} {op} ?", (value,))


def _joined(between: str, pieces: Sequence[Sql], before: str = "") -> Sql:
    return Sql(before + between.join(piece.text for piece in pieces), sum((p.values for p in pieces), ()))


def _like(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%").replace("?", "_")
