"""Events in groups: which numbers there are, and which of them each event has. Without sorting a million of them where that can be helped."""

from __future__ import annotations

from collections.abc import Sequence
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


def distinct_rows(columns: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The distinct rows of some columns of numbers from 0 on, in their order; and for each row which of them it is."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:  # one after the other: all numbers in one would not fit into 64 bits
        code = distinct(code * (int(column.max(initial=0)) + 1) + column)[1]
    first = firsts(code, int(code.max(initial=-1)) + 1)
    return np.stack([column[first].astype(np.int64) for column in columns], axis=1), code


def firsts(groups: Numbers, n: int) -> Numbers:
    """For each of `n` groups, all of which occur, the place of its first event."""
    found = np.zeros(n, dtype=np.int64)
    found[groups[::-1]] = np.arange(len(groups) - 1, -1, -1)  # what is written last stays
    return found


def by_group(groups: Numbers, n: int) -> Numbers:
    """The places of the events, group by group, in each in their order."""
    small = groups.astype(np.uint16) if n <= 1 << 16 else groups  # small numbers are sorted by counting them
    return np.argsort(small, kind="stable")


def sums_of(groups: Numbers, values: Numbers | None, size: int) -> Numbers:
    """Of each group the sum of its values, or their number; exact, which sums of doubles are up to 2**53."""
    if values is None:
        return np.bincount(groups, minlength=size)
    if len(values) and int(np.abs(values).max()) < (1 << 53) // len(values):
        return np.bincount(groups, weights=values, minlength=size).astype(np.int64)
    found = np.zeros(size, np.int64)
    np.add.at(found, groups, values)
    return found
