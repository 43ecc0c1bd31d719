"""Charts as plain values: lines with bands, and parallel coordinates. Drawn by figures.py, svg.py and html.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from luxmeter.errors import UsageError

Floats: TypeAlias = NDArray[np.float64]
MOST_POINTS = 1500  # of one line: more than a screen is wide

# Ten colours that people with any kind of colour vision tell apart, on white and on black.
COLOURS = (
    "#2f7ed8",
    "#e07b39",
    "#2ca25f",
    "#c94f7c",
    "#8c6bb1",
    "#b08a00",
    "#17a2b8",
    "#d64545",
    "#7a8a99",
    "#8bbf3f",
)


@dataclass(frozen=True)
class Line:
    """One curve. `raw` is what it was before smoothing; `low` and `high` are a band around it; `n` runs are in it.

    `number` is that of its colour: what is in several charts has one in all of them. None: by its place in the chart.
    """

    name: str
    x: Floats
    y: Floats
    raw: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    n: int = 1
    number: int | None = None


@dataclass(frozen=True)
class Chart:
    """Curves of one metric over one axis."""

    title: str
    x_label: str
    lines: Sequence[Line]
    log_y: bool = False
    note: str = ""  # what the band is
    log_x: bool = False
    marks: bool = False  # a dot at each point: few points that were measured, not a training's many

    @property
    def numbered(self) -> list[tuple[int, Line]]:
        """The lines with the numbers of their colours."""
        return [(i if line.number is None else line.number, line) for i, line in enumerate(self.lines)]


@dataclass(frozen=True)
class Axis:
    """One axis of parallel coordinates: a value a row, numbers or words; None where a row has none."""

    name: str
    values: Sequence[Any]
    log: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether every value is a number."""
        known = [v for v in self.values if v is not None]
        return bool(known) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)

    @property
    def categories(self) -> list[str]:
        """The different values of an axis of words, in order."""
        return sorted({str(v) for v in self.values if v is not None})


@dataclass(frozen=True)
class Parallel:
    """Rows as lines across axes, coloured by the last axis."""

    title: str
    names: Sequence[str]
    axes: Sequence[Axis] = field(default_factory=list)


def smooth(values: Sequence[float] | Floats, weight: float) -> Floats:
    """The debiased exponential average that TensorBoard draws: 0 leaves the curve, near 1 is very smooth.

    What is not finite passes through and does not count.
    """
    if not 0 <= weight < 1:
        raise UsageError(
            "smoothing-weight", f"Smoothing cannot be {weight!r}.", "Use 0 up to (not including) 1."
        )
    x = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(x)
    known = x[finite]
    if weight == 0 or known.size == 0 or known.min() == known.max():
        return x.copy()
    from scipy.signal import lfilter

    averaged = lfilter([1 - weight], [1, -weight], known)
    out = x.copy()
    out[finite] = averaged / (1 - weight ** np.arange(1, known.size + 1))
    return out


def thinned(line: Line, most: int = MOST_POINTS) -> Line:
    """The line with at most about `most` points: of each stretch its lowest and highest, so that no spike is lost."""
    n = len(line.x)
    if n <= most:
        return line
    edges = np.linspace(0, n, max(2, most // 2) + 1).astype(int)
    keep = {0, n - 1}
    shown = line.raw if line.raw is not None else line.y
    filled_low, filled_high = (
        np.where(np.isnan(shown), np.inf, shown),
        np.where(np.isnan(shown), -np.inf, shown),
    )
    for start, end in pairwise(edges.tolist()):
        if end > start:
            keep.add(start + int(np.argmin(filled_low[start:end])))
            keep.add(start + int(np.argmax(filled_high[start:end])))
    at = np.array(sorted(keep))
    cut = {
        name: part[at]
        for name in ("x", "y", "raw", "low", "high")
        if (part := getattr(line, name)) is not None
    }
    return replace(line, **cut)


def is_even_log(values: Sequence[float]) -> bool:
    """Whether positive numbers spread over so many sizes that a logarithmic axis shows them better."""
    known = [v for v in values if v is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= 20
