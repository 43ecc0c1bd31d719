"""Parameters read off a command line whose parser is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from luxmeter.literal import parse

_OPTION = re.compile(r"--?[A-Za-z_][\w.-]*")
_ASSIGNED = re.compile(r"\+{0,2}(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)


def params_of(argv: Sequence[str]) -> dict[str, Any]:
    """`--lr 0.1`, `--lr=0.1`, `--flag`, `--layers 64 32` and `lr=0.1` by name; the other words under `args`.

    Without the program's own parser `--flag word` cannot be told from `--name value`: it is read as the latter.
    """
    found: dict[str, Any] = {}
    others: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            others += words
            break
        if _OPTION.fullmatch(name):
            if equals:
                _put(found, name, parse(value))
                continue
            values = []
            while words and not _OPTION.fullmatch(words[0].partition("=")[0]) and words[0] != "--":
                if _ASSIGNED.fullmatch(words[0]):
                    break
                values.append(parse(words.pop(0)))
            _put(found, name, True if not values else values[0] if len(values) == 1 else values)
        elif matched := _ASSIGNED.fullmatch(word):
            _put(found, matched["name"], parse(matched["value"]))
        else:
            others.append(word)
    if others:
        found.setdefault("args", others)
    return found


def _put(found: dict[str, Any], option: str, value: Any) -> None:
    """Nested by dots; an option that comes again makes a list."""
    *above, name = option.lstrip("-").replace("-", "_").split(".")
    place = found
    for part in above:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            place, name = found, option.lstrip("-").replace("-", "_")
            break
        place = inner
    if name in place:
        before = place[name]
        value = [*before, value] if isinstance(before, list) else [before, value]
    place[name] = value
