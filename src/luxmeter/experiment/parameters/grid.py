"""Which values a search goes through (pure)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from luxmeter.errors import UsageError


def combinations(grid: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination, the last name changing fastest."""
    names = list(grid)
    for name in names:
        if isinstance(grid[name], str) or not isinstance(grid[name], Iterable):
            raise UsageError(
                "grid-values",
                f"The values to search for {name!r} are {grid[name]!r}.",
                f"Give a list: grid_search({name!r}, [...]).",
            )
    for chosen in itertools.product(*(list(grid[name]) for name in names)):
        yield dict(zip(names, chosen, strict=True))


def spread(name: str, start: float, stop: float, count: int, *, log: bool = False) -> list[float]:
    """`count` numbers from `start` to `stop`, both included, evenly spread (by their logarithms with `log`)."""
    if count < 1 or (log and (start <= 0 or stop <= 0)):
        raise UsageError(
            "grid-range",
            f"{name!r} cannot go from {start} to {stop} in {count} values{' by logarithm' if log else ''}.",
            "Ask for at least one value; by logarithm both ends must be above zero.",
        )
    if count == 1:
        return [start]
    if log:
        low, high = math.log(start), math.log(stop)
        inner = [math.exp(low + (high - low) * i / (count - 1)) for i in range(1, count - 1)]
    else:
        inner = [start + (stop - start) * i / (count - 1) for i in range(1, count - 1)]
    # Twelve digits: 0.01 rather than 0.009999999999999998, which would be another hash and an ugly name.
    numbers = [start, *(float(f"{n:.12g}") for n in inner), stop]
    if all(isinstance(n, int) for n in (start, stop)) and all(float(n).is_integer() for n in numbers):
        return [int(n) for n in numbers]
    return numbers
