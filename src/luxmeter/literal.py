"""Text from a command line or an environment variable -> the value a person means by it.

Numbers are numbers, `[1,2]` and `(1,2)` are sequences, and whatever only looks like a number to a lenient
parser (dates, `007`, the git hash `12e4567`, `on`) stays the text it is. Nothing is ever evaluated.
"""

from __future__ import annotations

import json
import re
from typing import Any

_INT = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?((0|[1-9][0-9]*)?\.[0-9]+|(0|[1-9][0-9]*)\.|(0|[1-9][0-9]*))([eE][+-]?[0-9]{1,3})?")
# `12e4567` and `1e5` written by git are hashes more often than numbers of that size; an exponent without sign
# or point is taken as a number only up to what a double can hold and only with at most two digits.
_BARE_EXPONENT = re.compile(r"[+-]?(0|[1-9][0-9]*)[eE][0-9]{1,2}")
_WORDS: dict[str, Any] = {
    "true": True, "True": True, "false": False, "False": False,
    "none": None, "None": None, "null": None,
    "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip
_CLOSING = {"[": "]", "(": ")"}


def parse(text: str) -> Any:
    """The value of `text`: bool, None, int, float, list, tuple, dict (JSON), a quoted string's inside, or text."""
    stripped = text.strip()
    if stripped in _WORDS:
        return _WORDS[stripped]
    if _INT.fullmatch(stripped):
        return int(stripped)
    if _is_float(stripped):
        return float(stripped)
    if len(stripped) >= 2 and stripped[0] in _CLOSING and stripped[-1] == _CLOSING[stripped[0]]:
        items = _split(stripped[1:-1])
        if items is not None:
            values = [parse(item) for item in items]
            return values if stripped[0] == "[" else tuple(values)
    if stripped.startswith("{") and stripped.endswith("}"):
        try:
            return json.loads(stripped)
        except ValueError:
            return text
    if len(stripped) >= 2 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        return stripped[1:-1]
    return text


def show(value: Any) -> str:
    """The shortest text that `parse` reads back as an equal value; other values by repr."""
    if isinstance(value, str):
        return value if type(parse(value)) is str and parse(value) == value else f'"{value}"'
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(show(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return json.dumps(value, default=repr)
    return repr(value)


def _is_float(text: str) -> bool:
    if not _FLOAT.fullmatch(text):
        return False
    has_bare_exponent = ("e" in text or "E" in text) and "." not in text and "-" not in text[1:] and "+" not in text[1:]
    return not has_bare_exponent or bool(_BARE_EXPONENT.fullmatch(text))


def _split(inside: str) -> list[str] | None:
    """The comma-separated items of a sequence, brackets and quotes respected; None if they do not match."""
    items: list[str] = []
    depth: list[str] = []
    quote = ""
    start = 0
    for i, c in enumerate(inside):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "[({":
            depth.append({"[": "]", "(": ")", "{": "}"}[c])
        elif c in "])}":
            if not depth or depth.pop() != c:
                return None
        elif c == "," and not depth:
            items.append(inside[start:i])
            start = i + 1
    if quote or depth:
        return None
    tail = inside[start:]
    if tail.strip():
        items.append(tail)
    return items if all(item.strip() for item in items) else None
