"""Which known name a new name was probably meant to be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_TRAILING_NUMBER = re.compile(r"[_-]?[0-9]+$")


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` looks like a slip of, or None. `layer3` beside `layer2` is no slip."""
    best: tuple[float, str] | None = None
    for other in known:
        if other == name or _is_numbered_sibling(name, other):
            continue
        ratio = difflib.SequenceMatcher(None, name, other).ratio()
        plain, other_plain = _plain(name), _plain(other)
        length = max(len(plain), len(other_plain))
        slips = _distance(plain, other_plain)
        near = ratio >= 0.8 or (length >= 3 and slips <= 1) or (length >= 7 and slips <= 2)
        if near and (best is None or ratio > best[0]):
            best = (ratio, other)
    return best[1] if best else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _is_numbered_sibling(name: str, other: str) -> bool:
    return bool(_TRAILING_NUMBER.search(name)) and _TRAILING_NUMBER.sub("", name) == _TRAILING_NUMBER.sub(
        "", other
    )


def _distance(a: str, b: str) -> int:
    """Letters added, dropped, changed or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]
