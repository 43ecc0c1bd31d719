"""Did a run come out the same again? Metric by metric: bit by bit, within a tolerance (which), or not."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from luxmeter.render import counted
from luxmeter.store import Run, records

Match = Literal["bit by bit", "within tolerance", "different", "missing", "left out"]
Outcome = Literal["bit by bit", "within tolerance", "not", "nothing to compare"]
# What a clock says is never the same twice.
_TIMES = (
    "*time", "*time_s", "*time_ms", "step_s", "epoch_s", "*_ms", "*_us", "*_ns", "*seconds", "*duration*", "*per_s", "*per_sec",
    "*per_second", "*/s", "*throughput*", "*speed*",
)  # fmt: skip


@dataclass(frozen=True)
class MetricMatch:
    """One metric held against itself."""

    key: str
    match: Match
    n: int  # points compared
    largest: float = 0.0  # the largest relative difference of two points
    first_step: int | None = None  # where they part
    why: str = ""


@dataclass(frozen=True)
class Reproduction:
    """The answer, with what it rests on."""

    outcome: Outcome
    metrics: tuple[MetricMatch, ...]
    files_equal: int
    files_different: tuple[str, ...]
    tolerance: float
    largest: float
    why: str


def match_runs(
    first: Run, again: Run, *, tolerance: float = 1e-5, ignore: Iterable[str] = ()
) -> Reproduction:
    """Hold a run against the one it repeats. System metrics, times and `ignore` (patterns) are left out.

    Of a run that did not come to its end only the points it has are compared.
    """
    patterns = (f"{records.SYSTEM}*", *_TIMES, *ignore)
    ended = first.state == "finished"
    matches = []
    for key in sorted({*first.metrics, *again.metrics}):
        if any(fnmatch.fnmatchcase(key.lower(), pattern.lower()) for pattern in patterns):
            matches.append(
                MetricMatch(key, "left out", 0, why="of the machine or the clock, or left out by you")
            )
        elif key not in first.metrics or key not in again.metrics:
            if key in first.metrics or ended:
                where = "second" if key in first.metrics else "first"
                matches.append(MetricMatch(key, "missing", 0, why=f"the {where} run has none"))
        else:
            matches.append(_match(first, again, key, tolerance, whole=ended))
    equal, different = _files(first, again)
    return judge(
        tuple(matches), equal, different, tolerance, ended_alike=not ended or again.state == "finished",
        ended_as=again.state,
    )  # fmt: skip


def judge(
    matches: tuple[MetricMatch, ...],
    files_equal: int,
    files_different: tuple[str, ...],
    tolerance: float,
    *,
    ended_alike: bool = True,
    ended_as: str = "finished",
) -> Reproduction:
    """The outcome of all metrics together; where nothing was logged, of the files."""
    compared = [m for m in matches if m.match != "left out"]
    largest = max((m.largest for m in compared), default=0.0)

    def said(outcome: Outcome, why: str) -> Reproduction:
        return Reproduction(outcome, matches, files_equal, files_different, tolerance, largest, why)

    if not ended_alike:
        return said("not", f"The second run ended as {ended_as}.")
    bad = [m.key for m in compared if m.match in ("different", "missing")]
    if bad:
        return said("not", f"{len(bad)} of {len(compared)} metrics differ: {', '.join(bad[:8])}.")
    if any(m.match == "within tolerance" for m in compared):
        return said(
            "within tolerance", f"The largest relative difference is {largest:.2g}, below {tolerance:g}."
        )
    points = sum(m.n for m in compared)
    if compared:
        return said(
            "bit by bit",
            f"All {counted(points, 'point')} of {counted(len(compared), 'metric')} are the same.",
        )
    if files_equal and not files_different:
        return said("bit by bit", f"No metric was logged; all {files_equal} files are the same.")
    if files_different:
        return said("not", f"No metric was logged; {len(files_different)} files differ.")
    return said("nothing to compare", "The run logged no metric and left no file.")


def match_points(
    steps_a: NDArray[np.int64],
    a: NDArray[np.float64],
    steps_b: NDArray[np.int64],
    b: NDArray[np.float64],
    *,
    tolerance: float,
    whole: bool,
) -> tuple[Match, int, float, int | None, str]:
    """(match, points compared, largest relative difference, first step that differs, why) of two series."""
    n = min(len(a), len(b))
    short = len(b) < len(a) or (whole and len(a) != len(b))
    x, y = a[:n], b[:n]
    same = (x.view(np.int64) == y.view(np.int64)) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gap = np.abs(x - y) / np.maximum(np.maximum(np.abs(x), np.abs(y)), np.finfo(np.float64).tiny)
    gap = np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))
    off = np.flatnonzero((~same) | (steps_a[:n] != steps_b[:n]))
    first = int(steps_a[off[0]]) if off.size else None
    largest = float(gap.max()) if n else 0.0
    if short:
        return "different", n, largest, first, f"{len(a)} points, then {len(b)}"
    if (steps_a[:n] != steps_b[:n]).any():
        return "different", n, largest, first, "other steps"
    if same.all():
        return "bit by bit", n, 0.0, None, ""
    if largest <= tolerance:
        return "within tolerance", n, largest, first, ""
    return "different", n, largest, first, f"relative difference up to {largest:.2g}, first at step {first}"


def _match(first: Run, again: Run, key: str, tolerance: float, *, whole: bool) -> MetricMatch:
    a, b = first.metric(key), again.metric(key)
    match, n, largest, step, why = match_points(
        a.steps, a.values, b.steps, b.values, tolerance=tolerance, whole=whole
    )
    return MetricMatch(key, match, n, largest, step, why)


def _files(first: Run, again: Run) -> tuple[int, tuple[str, ...]]:
    """Files of the watched folders, by part and path: how many hold the same, and which do not."""

    def content(run: Run) -> Mapping[str, str]:
        return {f"{c.part}/{c.path}": c.sha256 for c in run.final_files.values()}

    a, b = content(first), content(again)
    # What stands beside a checkpoint says when it was saved: never twice the same.
    a = {name: sha for name, sha in a.items() if name.removesuffix(".json") == name or name[:-5] not in a}
    different = tuple(sorted(name for name in a if a[name] != b.get(name)))
    return len(a) - len(different), different


def code_differs(first: Run, again: Run) -> list[str]:
    """What says that the second run did not run the code of the first: files that ran with other content, or not."""
    one, two = first.snapshot, again.snapshot
    if one is None or two is None:
        return []
    told = [
        f"{path} ran with another content"
        for path in one.files
        if two.files.get(path, one.files[path]) != one.files[path]
    ]
    return told + [
        f"{path} ran then, but not from this code now" for path in one.files if path not in two.files
    ]
