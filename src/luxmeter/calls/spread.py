"""How values of groups spread: percentiles, exact of a few million values, of more within 1 %. In memory that does not grow with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from luxmeter.calls.groups import by_group

Numbers = npt.NDArray[Any]
EXACT = 4_000_000  # values that are kept; with more, they are counted in buckets
PERCENTS = (50, 95, 99)
# 64 buckets a doubling: the middle of one is at most 1/129 from any of its values. Below 128 each value has its own.
_BITS = 6
_IN_OCTAVE = 1 << _BITS
_SHIFT = np.int64(52 - _BITS)  # a double's exponent and its upper bits number the buckets


def rank_of(percent: int, n: int) -> int:
    """Nearest rank: the place of the smallest value that at least `percent` of all do not exceed."""
    return max(0, -(-percent * n // 100) - 1)


def bucket_of(values: Numbers) -> Numbers:
    """The number of the bucket that each value from 0 on falls into; 0 has the first."""
    found: Numbers = (np.maximum(values, 0).astype(np.float64) + 1.0).view(np.int64) >> _SHIFT
    return found - (1023 << _BITS)


def middle_of(bucket: Numbers) -> Numbers:
    """The value that stands for a bucket."""
    low, high = (((np.asarray(at, np.int64) + (1023 << _BITS)) << _SHIFT).view(np.float64) - 1.0
                 for at in (bucket, np.asarray(bucket) + 1))  # fmt: skip
    # Whole numbers from the first in it to the last.
    first, last = np.ceil(low), np.ceil(high) - 1
    found: Numbers = np.floor((first + last) / 2).astype(np.int64)
    return found


class Spread:
    """Takes values of groups, chunk by chunk, and gives the groups' percentiles."""

    def __init__(self, exact: int | None = None) -> None:
        """`exact`: how many values are kept as they are."""
        self._most = EXACT if exact is None else exact
        self._kept: list[tuple[Numbers, Numbers]] | None = []
        self._n = 0
        # A group has counters for those octaves alone that its values fall into: their numbers in `_counters`, -1 of none.
        self._place = np.full((0, 64), -1, dtype=np.int64)
        self._counters = np.zeros((0, _IN_OCTAVE), dtype=np.int64)
        self._used = 0

    @property
    def is_exact(self) -> bool:
        """Whether all values are kept."""
        return self._kept is not None

    def add(self, groups: Numbers, values: Numbers) -> None:
        """Values of groups, by their numbers."""
        self._n += len(groups)
        if self._kept is not None and self._n <= self._most:
            self._kept.append((groups.astype(np.int32), np.array(values, dtype=np.int64)))
            return
        if self._kept is not None:
            kept, self._kept = self._kept, None
            for one in kept:
                self._count(*one)
        self._count(groups, values)

    def _count(self, groups: Numbers, values: Numbers) -> None:
        if not len(groups):
            return
        more = int(groups.max()) + 1 - len(self._place)
        if more > 0:
            self._place = np.concatenate([self._place, np.full((more, 64), -1, dtype=np.int64)])
        bucket = bucket_of(values)
        octave = groups.astype(np.int64) * 64 + (bucket >> _BITS)
        place = self._place.reshape(-1)
        new = np.unique(octave[place[octave] < 0])
        if len(new):
            place[new] = self._used + np.arange(len(new))
            self._used += len(new)
            more = max(self._used, 2 * len(self._counters)) - len(self._counters)
            if self._used > len(self._counters):
                self._counters = np.concatenate([self._counters, np.zeros((more, _IN_OCTAVE), np.int64)])
        at = place[octave] * _IN_OCTAVE + (bucket & (_IN_OCTAVE - 1))
        counters = self._counters.reshape(-1)
        if len(counters) <= 2 * len(at):
            counters += np.bincount(at, minlength=len(counters))
        else:
            np.add.at(counters, at, 1)

    def percentiles(self, groups: int, least: Numbers, most: Numbers) -> list[tuple[int, ...]]:
        """Of each group those of `PERCENTS`, none outside of its least and most value; zeros of one without values."""
        if self._kept is not None:
            return self._exactly(groups)
        found = []
        for group in range(groups):
            if group >= len(self._place) or (self._place[group] < 0).all():
                found.append((0,) * len(PERCENTS))
                continue
            octaves = np.flatnonzero(self._place[group] >= 0)
            counts = self._counters[self._place[group][octaves]].ravel()
            buckets = (octaves[:, None] * _IN_OCTAVE + np.arange(_IN_OCTAVE)).ravel()
            reached = np.cumsum(counts)
            at = np.searchsorted(reached, [rank_of(p, int(reached[-1])) for p in PERCENTS], side="right")
            values = np.clip(middle_of(buckets[at]), least[group], most[group])
            found.append(tuple(values.tolist()))
        return found

    def _exactly(self, groups: int) -> list[tuple[int, ...]]:
        assert self._kept is not None
        codes, values = (
            np.concatenate([pair[i] for pair in self._kept]) if self._kept else np.empty(0, np.int64)
            for i in (0, 1)
        )
        n = np.bincount(codes, minlength=groups)
        grouped = np.split(values[by_group(codes, groups)], np.cumsum(n)[:-1]) if groups else []
        found = []
        for part in grouped:
            if not len(part):
                found.append((0,) * len(PERCENTS))
                continue
            places = [rank_of(p, len(part)) for p in PERCENTS]
            ordered = np.partition(part, sorted(set(places)))
            found.append(tuple(int(ordered[place]) for place in places))
        return found
