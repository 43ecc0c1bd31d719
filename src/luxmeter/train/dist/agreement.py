"""Ranks that are to do the same say what they have: who has something else is told now, and not by a hang later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.train.dist.collectives import gather_objects

_MOST = 80  # characters that are shown of a value
_ABSENT = "nothing"


def agree(**what: Any) -> None:
    """Raise the same UsageError on every rank if they do not all have the same; values are compared as text."""
    own = {key: value if isinstance(value, str) else repr(value) for key, value in what.items()}
    said: list[dict[str, str]] = gather_objects(own)
    for key in dict.fromkeys(key for one in said for key in one):
        values = [one.get(key, _ABSENT) for one in said]
        if len(set(values)) > 1:
            raise UsageError(
                "ranks-differ",
                f"The ranks do not have the same {key}: {_who_has_what(values)}.",
                "Start all of them with the same command, on the same files.",
            )


def numbered(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 2 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _who_has_what(values: Sequence[str]) -> str:
    """Who has the value that is there first, and who another."""
    first = values[0]
    other = next(value for value in values if value != first)
    parts = _differing(first, other)
    groups = [[rank for rank, value in enumerate(values) if value == one] for one in (first, other)]
    text = ", ".join(
        f"{numbered(ranks)} {'has' if len(ranks) == 1 else 'have'} {part}"
        for ranks, part in zip(groups, parts, strict=True)
    )
    rest = [rank for rank, value in enumerate(values) if value not in (first, other)]
    return f"{text}, {numbered(rest)} yet another" if rest else text


def _differing(first: str, other: str) -> Sequence[str]:
    """Both shortened; of several lines, the first ones that differ."""
    left, right = first.splitlines() or [""], other.splitlines() or [""]
    if len(left) == len(right) == 1:
        return _short(*_around(first, other))
    number = next(
        (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    shown = [lines[number].strip() if number < len(lines) else "no more" for lines in (left, right)]
    one, two = _short(*_around(*shown))
    return f"{one} in line {number + 1}", two


def _around(first: str, other: str) -> tuple[str, str]:
    """Both from shortly before where they part, if they are long."""
    if max(len(first), len(other)) <= _MOST:
        return first, other
    at = next(
        (n for n, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), min(len(first), len(other))
    )
    start = max(0, at - _MOST // 2)
    mark = "..." if start else ""
    return mark + first[start:], mark + other[start:]


def _short(*texts: str) -> tuple[str, ...]:
    return tuple(repr(text if len(text) <= _MOST else f"{text[:_MOST]}...") for text in texts)
