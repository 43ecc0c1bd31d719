"""The language that filters and sorts runs: `param.lr > 0.1 and (metric.acc >= 0.9 or tag = best)`.

Fields: id, name, state, note, host, archived, tag, created and ended (dates as 2026-11-15 or 2026-11-15T21:30),
duration (seconds), param.NAME (nested names with dots), metric.NAME (its last value; metric.NAME.min, .max, .n).
Operators: = != < <= > >= ~ (text with * and ?). Words: and, or, not, parentheses. Nothing is evaluated.
A single word is a name or a tag: `mnist` stands for `name = mnist or tag = mnist`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from luxmeter.errors import UsageError, suggestion
from luxmeter.literal import parse as parse_value

FIELDS = ("id", "name", "state", "note", "host", "archived", "tag", "created", "ended", "duration")
METRIC_PARTS = ("last", "min", "max", "n", "last_step")
_TOKEN = re.compile(
    r"""\s*(?:(?P<paren>[()])|(?P<op><=|>=|!=|==|=|<|>|~)|(?P<quoted>"[^"]*"|'[^']*')|(?P<word>[^\s()<>=!~"']+))"""
)


@dataclass(frozen=True)
class Field:
    """What a condition or a sort is about: `metric`, `acc`, `last` for metric.acc."""

    kind: str  # one of FIELDS, "param" or "metric"
    name: str = ""
    part: str = ""


@dataclass(frozen=True)
class Condition:
    """field op value."""

    field: Field
    op: str
    value: Any


@dataclass(frozen=True)
class Both:
    """and / or of two expressions."""

    word: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Not:
    """The opposite of an expression."""

    inner: Expression


Expression = Condition | Both | Not


def parse_filter(text: str) -> Expression | None:
    """The expression of a filter, None for an empty one."""
    reader = _Reader(text)
    if reader.at_end():
        return None
    word = reader.only_word()
    if word:
        return Both("or", Condition(Field("name"), "=", word), Condition(Field("tag"), "=", word))
    expression = reader.either()
    if not reader.at_end():
        raise reader.error("the end, 'and' or 'or'")
    return expression


def parse_field(text: str) -> Field:
    """`metric.acc.max` -> Field("metric", "acc", "max")."""
    if text in FIELDS or text == "status":  # what other tools call the state
        return Field("state" if text == "status" else text)
    kind, _, name = text.partition(".")
    if kind in ("params", "metrics"):
        kind = kind[:-1]
    if kind == "param" and name:
        return Field("param", name)
    if kind == "metric" and name:
        head, _, tail = name.rpartition(".")
        return Field("metric", head, tail) if head and tail in METRIC_PARTS else Field("metric", name, "last")
    near = suggestion(text, FIELDS)
    named = (
        f"A parameter is param.{text}, a metric metric.{text}." if re.fullmatch(r"[\w.\-/]+", text) else ""
    )
    listed = f"Use {', '.join(FIELDS)}, param.NAME or metric.NAME."
    raise UsageError(
        "query-field", f"Runs have no field {text!r}.", " ".join(filter(None, [near, named or listed]))
    )


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def either(self) -> Expression:
        left = self.both()
        while self._word("or"):
            left = Both("or", left, self.both())
        return left

    def both(self) -> Expression:
        left = self.one()
        while self._word("and"):
            left = Both("and", left, self.one())
        return left

    def one(self) -> Expression:
        if self._word("not"):
            return Not(self.one())
        kind, token, end = self._peek()
        if kind == "paren" and token == "(":
            self.position = end
            inner = self.either()
            kind, token, end = self._peek()
            if token != ")":
                raise self.error("')'")
            self.position = end
            return inner
        return self._condition()

    def only_word(self) -> str:
        """The text, if it is one word or quoted and cannot begin a condition; else empty."""
        kind, token, end = self._peek()
        if self.text[end:].strip() or kind not in ("word", "quoted"):
            return ""
        if kind == "quoted":
            return token[1:-1]
        return (
            "" if token in (*FIELDS, "and", "or", "not") or token.startswith(("param.", "metric.")) else token
        )

    def at_end(self) -> bool:
        return not self.text[self.position :].strip()

    def error(self, expected: str) -> UsageError:
        return UsageError(
            "query-syntax",
            f"The filter {self.text!r} is not understood at position {self.position}: expected {expected}.",
            "Example: param.lr > 0.1 and name = 'my run' (text with spaces or signs in quotes).",
        )

    def _condition(self) -> Condition:
        kind, token, end = self._peek()
        if kind != "word":
            raise self.error("a field")
        field = parse_field(token)
        self.position = end
        kind, op, end = self._peek()
        if kind != "op":
            raise self.error("one of = != < <= > >= ~")
        self.position = end
        kind, value, end = self._peek()
        if kind not in ("word", "quoted"):
            raise self.error("a value")
        self.position = end
        typed = value[1:-1] if kind == "quoted" else parse_value(value)
        return Condition(field, "=" if op == "==" else op, self._fitting(field, typed))

    def _fitting(self, field: Field, value: Any) -> Any:
        if field.kind in ("created", "ended"):
            try:
                return int(datetime.fromisoformat(str(value)).astimezone().timestamp() * 1e9)
            except ValueError:
                raise self.error("a date such as 2026-11-15 or 2026-11-15T21:30") from None
        if field.kind in ("metric", "duration") and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            raise self.error("a number")
        return value

    def _word(self, word: str) -> bool:
        kind, token, end = self._peek()
        if kind == "word" and token.lower() == word:
            self.position = end
            return True
        return False

    def _peek(self) -> tuple[str, str, int]:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            return "", "", self.position
        return match.lastgroup, match.group(match.lastgroup), match.end()
