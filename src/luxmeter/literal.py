"""Text from a command line or an environment variable -> the value a person means by it.

Numbers are numbers, `[1,2]` and `(1,2)` are sequences, and whatever only looks like a number to a lenient
parser (dates, `007`, the git hash `12e4567`, `on`) stays the text it is. Nothing is ever evaluated.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_INT = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[+-]?((0|[1-9][0-9]*)?\.[0-9]+|(0|[1-9][0-9]*)\.|(0|[1-9][0-9]*))([eE][+-]?[0-9]{1,3})?"
)
# Digits with one `e` among them, as `12e4567` or `12345e6`, are what git calls commits. Without sign or point
# it is a number only as people write numbers: up to three digits, then an exponent of one or two.
_BARE_EXPONENT = re.compile(r"[+-]?(0|[1-9][0-9]{0,2})[eE][0-9]{1,2}")
_WORDS: dict[str, Any] = {
    "true": True, "True": True, "false": False, "False": False,
    "none": None, "None": None, "null": None,
    "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip
_CLOSING = {"[": "]", "(": ")"}
_DEPTH_LIMIT = 64


def parse(text: str) -> Any:
    """The value of `text`: bool, None, int, float, list, tuple, dict (JSON), a quoted string's inside, or text.

    Parentheses are a tuple only with a comma in them (or nothing): `(draft)` is text.
    """
    return text if _nests_too_deeply(text) else _parse(text)


def items(text: str) -> list[str] | None:
    """The texts between the commas of `[a, b]`, `(a, b)` or `a, b`; None when brackets or quotes do not match."""
    stripped = text.strip()
    if len(stripped) >= 2 and stripped[0] in _CLOSING and stripped[-1] == _CLOSING[stripped[0]]:
        stripped = stripped[1:-1]
    return _split(stripped)


def show(value: Any) -> str:
    """The shortest text that `parse` reads back as an equal value; other values by repr."""
    if isinstance(value, str):
        read = parse(value)
        return value if type(read) is str and read == value else json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_show_item(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(_show_item(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return json.dumps(value, default=repr, ensure_ascii=False)
    return repr(value)


def _show_item(value: Any) -> str:
    """As `show`, with quotes where the text would not survive between commas."""
    if isinstance(value, str) and (
        not value or value != value.strip() or any(c in value for c in "[](){},\"'")
    ):
        return json.dumps(value, ensure_ascii=False)
    return show(value)


def _parse(text: str) -> Any:
    stripped = text.strip()
    if stripped in _WORDS:
        return _WORDS[stripped]
    if _INT.fullmatch(stripped):
        try:
            return int(stripped)
        except ValueError:  # Python refuses more than some 4,300 digits
            return text
    if _is_float(stripped):
        number = float(stripped)
        return text if math.isinf(number) else number
    if len(stripped) >= 2 and stripped[0] in _CLOSING and stripped[-1] == _CLOSING[stripped[0]]:
        inside = stripped[1:-1]
        parts = _split(inside)
        if parts is not None and (stripped[0] == "[" or not parts or _has_comma(inside, parts)):
            values = [_parse(part) for part in parts]
            return values if stripped[0] == "[" else tuple(values)
    if stripped.startswith("{") and stripped.endswith("}"):
        try:
            return json.loads(stripped)
        except ValueError:
            return text
    if len(stripped) >= 2 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        return _unquote(stripped, text)
    return text


def _nests_too_deeply(text: str) -> bool:
    """Brackets deeper than anybody means, which would cost much time or all of the stack."""
    if text.count("[") + text.count("(") + text.count("{") <= _DEPTH_LIMIT:
        return False
    depth = deepest = 0
    for character in text:
        depth += (character in "[({") - (character in "])}")
        deepest = max(deepest, depth)
    return deepest > _DEPTH_LIMIT


def _has_comma(inside: str, parts: list[str]) -> bool:
    return len(parts) > 1 or inside.rstrip().endswith(",")


def _unquote(quoted: str, text: str) -> str:
    """The inside of one quoted string; escapes as in JSON count between double quotes."""
    if quoted[0] == '"':
        try:
            return str(json.loads(quoted))
        except ValueError:
            pass
    inside = quoted[1:-1]
    return text if quoted[0] in inside else inside


def _is_float(text: str) -> bool:
    if not _FLOAT.fullmatch(text):
        return False
    has_bare_exponent = (
        ("e" in text or "E" in text) and "." not in text and "-" not in text[1:] and "+" not in text[1:]
    )
    return not has_bare_exponent or bool(_BARE_EXPONENT.fullmatch(text))


def _split(inside: str) -> list[str] | None:
    """The comma-separated items of a sequence, brackets and quotes respected; None if they do not match."""
    parts: list[str] = []
    depth: list[str] = []
    quote = ""
    start = 0
    escaped = False
    before = latest = ","  # the last character that is no blank, up to here and with this one
    for i, c in enumerate(inside):
        before, latest = latest, latest if c.isspace() else c
        if escaped:
            escaped = False
        elif quote:
            escaped = quote == '"' and c == "\\"
            quote = "" if c == quote else quote
        elif c in "'\"" and before in ",[({:":  # an apostrophe within a word opens nothing
            quote = c
        elif c in "[({":
            depth.append({"[": "]", "(": ")", "{": "}"}[c])
        elif c in "])}":
            if not depth or depth.pop() != c:
                return None
        elif c == "," and not depth:
            parts.append(inside[start:i].strip())
            start = i + 1
    if quote or depth:
        return None
    tail = inside[start:].strip()
    if tail:
        parts.append(tail)
    return parts if all(parts) else None
