"""Questions about runs, written as Python: `C.param.lr > 0.1`, `(C.metric.acc >= 0.9) & ~(C.tag == "bad")`.

They are the expressions of the filter language (store/query.py); nothing is evaluated.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from luxmeter.described import Described, DescribedMapping, described
from luxmeter.errors import UsageError
from luxmeter.store import Both, Condition, Expression, Field, Not, flatten, parse_field


@dataclass(frozen=True)
class Question:
    """A condition on runs; `&`, `|` and `~` join them."""

    expression: Expression

    def __and__(self, other: Question) -> Question:
        return Question(Both("and", self.expression, other.expression))

    def __or__(self, other: Question) -> Question:
        return Question(Both("or", self.expression, other.expression))

    def __invert__(self) -> Question:
        return Question(Not(self.expression))

    def __bool__(self) -> bool:
        raise UsageError(
            "question-joined-by-and",
            "A question about runs is neither true nor false.",
            "Join questions with & | ~, each in parentheses, not with and, or, not.",
        )


class Asked:
    """A field of runs, to be compared with a value."""

    def __init__(self, field: Field) -> None:
        self._field = field

    def like(self, pattern: str) -> Question:
        """Text with * and ?."""
        return Question(Condition(self._field, "~", pattern))

    def __getattr__(self, name: str) -> Asked:
        """`C.param.optim.lr`, `C.metric.acc.max`."""
        if name.startswith("_") or self._field.kind not in ("param", "metric"):
            raise AttributeError(name)
        last = "" if self._field.part in ("", "last") else f".{self._field.part}"
        return Asked(parse_field(f"{self._field.kind}.{self._field.name}{last}.{name}"))

    def _ask(self, op: str, value: Any) -> Question:
        if isinstance(value, datetime):
            value = int(value.astimezone().timestamp() * 1e9)
        if self._field.kind in ("metric", "duration", "created", "ended") and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            raise UsageError(
                "question-not-a-number",
                f"{self._field.kind} {self._field.name} cannot be compared with {value!r}.",
                "Give a number (for created and ended: a datetime).",
            )
        if self._field.kind == "param" and op in ("=", "!=") and not isinstance(value, str):
            is_it = equals(f"param.{self._field.name}", value)
            if isinstance(is_it, Both):
                return Question(is_it if op == "=" else Not(is_it))
            value = is_it.value if isinstance(is_it, Condition) else value
        return Question(Condition(self._field, op, value))

    def __gt__(self, value: Any) -> Question:
        return self._ask(">", value)

    def __ge__(self, value: Any) -> Question:
        return self._ask(">=", value)

    def __lt__(self, value: Any) -> Question:
        return self._ask("<", value)

    def __le__(self, value: Any) -> Question:
        return self._ask("<=", value)

    def __eq__(self, value: Any) -> Question:  # type: ignore[override]
        return self._ask("=", value)

    def __ne__(self, value: Any) -> Question:  # type: ignore[override]
        return self._ask("!=", value)

    __hash__ = None  # type: ignore[assignment]


class _Named:
    """`C.param`: what follows is a parameter's name."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Asked:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Asked:
        return Asked(parse_field(f"{self._kind}.{name}"))


class _Columns:
    """Where questions begin: C.param.NAME, C.metric.NAME, C.name, C.state, C.tag, C.created, C.duration ..."""

    param = _Named("param")
    metric = _Named("metric")

    def __getattr__(self, name: str) -> Asked:
        if name.startswith("__"):
            raise AttributeError(name)
        return Asked(parse_field(name))


C = _Columns()


def equals(field: str, value: Any) -> Expression:
    """The expression `field = value`; text with * or ? in it is a pattern, and of an object all fields are asked for."""
    value = described(value)
    if isinstance(value, DescribedMapping) and value:
        fields = (equals(f"{field}.{name}", held) for name, held in flatten(value).items())
        return functools.reduce(functools.partial(Both, "and"), fields)
    if isinstance(value, Described):
        return Condition(parse_field(field), "=", str(value))
    op = "~" if isinstance(value, str) and any(c in value for c in "*?") else "="
    return Condition(parse_field(field), op, value)


def all_of(expressions: list[Expression]) -> Expression | None:
    """All of them at once; None if there are none."""
    joined: Expression | None = None
    for expression in expressions:
        joined = expression if joined is None else Both("and", joined, expression)
    return joined


def any_of(expressions: list[Expression]) -> Expression:
    """One of them at least."""
    joined = expressions[0]
    for expression in expressions[1:]:
        joined = Both("or", joined, expression)
    return joined
