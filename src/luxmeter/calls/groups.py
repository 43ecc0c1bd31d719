"""Events in groups: which numbers there are, and which of them each event has. Without sorting a million of them where that can be helped."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
_DENSE = 4  # so many times as many possible numbers as events: then marking them is quicker than sorting


def distinct(codes: Numbers) -> tuple[Numbers, Numbers]:
    """As np.unique(codes, return_inverse=True), of numbers from 0 on."""
    top = int(codes.max(initial=-1)) + 1
    if top > _DENSE * len(codes) + 1024:
        values, inverse = np.unique(codes, return_inverse=True)
        return values, inverse.ravel()
    there = np.zeros(top, dtype=bool)
    there[codes] = True
    place = np.cumsum(there) - 1
    return np.flatnonzero(there), place[codes]


def firsts(groups: Numbers, n: int) -> Numbers:
    """For each of `n` groups, all of which occur, the place of its first event."""
    found = np.zeros(n, dtype=np.int64)
    found[groups[::-1]] = np.arange(len(groups) - 1, -1, -1)  # what is written last stays
    return found


def by_group(groups: Numbers, n: int) -> Numbers:
    """The places of the events, group by group, in each in their order."""
    small = groups.astype(np.uint16) if n <= 1 << 16 else groups  # small numbers are sorted by counting them
    return np.argsort(small, kind="stable")
