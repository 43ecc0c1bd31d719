"""Metrics of runs as curves and axes: read, smoothed, averaged over repeats with a band. Numbers only; view/pages/plots.py draws."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from luxmeter.described import canonical
from luxmeter.errors import StoreError, UsageError, suggestion
from luxmeter.experiment.compare.repeats import as_run, group_runs
from luxmeter.experiment.transfer.tensorboard_events import read_runs
from luxmeter.files import from_json
from luxmeter.late import late
from luxmeter.render import Axis, Floats, Line, counted, is_even_log, smooth
from luxmeter.store import Field, Run, parse_field, records

if TYPE_CHECKING:
    import numpy as np
else:
    np = late("numpy")

Band: TypeAlias = Literal["ci", "std", "range", "none"]
_METRICS_AS_AXES = 3  # of runs whose metrics nobody named
_GRID = 600  # points of a mean over runs whose steps differ


@dataclass(frozen=True)
class Series:
    """One metric of one run, wherever it comes from."""

    name: str
    key: str
    steps: Floats
    values: Floats
    times_ns: Floats


# The metric -> its lines: a name, and the series that the line is the mean of.
Sets: TypeAlias = dict[str, list[tuple[str, list[Series]]]]


def curves_of(
    members: Sequence[Run], metrics: Sequence[str] | str = (), *, repeats: bool = False, by: str = ""
) -> Sets:
    """The series of these metrics (all but the machine's own, unless named): a line a run, a variant, or a value of `by`."""
    keys = [metrics] if isinstance(metrics, str) else list(metrics)
    known = list(dict.fromkeys(key for member in members for key in member.summary))
    if any("@rank" in key for key in keys):  # only then is it looked for
        known += [
            f"{key}@rank{r}" for member in members for r in member.ranks for key in member.metrics_of(r)
        ]
    for key in keys:
        if key not in known:
            raise UsageError(
                "no-such-metric",
                f"{_none_of(members)} a metric {key!r}.",
                suggestion(key, known) or f"They have: {', '.join(known[:20]) or 'none'}.",
            )
    keys = keys or [key for key in known if not key.startswith("system/")]
    if not keys:
        raise UsageError("nothing-to-plot", "The runs have no metric.", "Log some first.")
    if repeats:
        groups = [(g.label, list(g.members)) for g in group_runs(members) if g.members]
    elif by:
        groups = _by_field(members, parse_field(by))
    else:
        groups = list(zip(names_of(members), ([m] for m in members), strict=True))
    return {
        key: [(name, [s for m in some if (s := _series(m, key, name)) is not None]) for name, some in groups]
        for key in keys
    }


def _none_of(members: Sequence[Run]) -> str:
    return "The run does not have" if len(members) == 1 else f"None of {len(members)} runs has"


def _by_field(members: Sequence[Run], field: Field) -> list[tuple[str, list[Run]]]:
    """Runs that have the same value of a field, the values in order."""
    found: dict[str, list[Run]] = {}
    for member in members:
        row = member.row
        if field.kind == "param":
            value = canonical(row.params[field.name]) if field.name in row.params else "-"
        elif field.kind == "tag":
            value = " ".join(sorted(row.tags)) or "-"
        elif field.kind in ("name", "state", "host"):
            value = str(getattr(row, field.kind))
        else:
            raise UsageError(
                "group-by",
                f"Runs are not grouped by {field.kind}.",
                "Use name, state, host, tag or param.NAME.",
            )
        found.setdefault(value, []).append(member)
    named = field.name or field.kind
    return [(f"{named} = {value}", found[value]) for value in sorted(found, key=_numbers_first)]


def _numbers_first(text: str) -> tuple[bool, float, str]:
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def curves_of_tensorboard(folder: str | Path, metrics: Sequence[str] | str = ()) -> Sets:
    """The same out of TensorBoard's event files."""
    wanted = [metrics] if isinstance(metrics, str) else list(metrics)
    sets: Sets = {}
    for run in read_runs(folder):
        flat = run.points
        keys = np.array(flat[0::4], dtype=object)
        columns = [np.array(flat[i::4], dtype=np.float64) for i in (1, 2, 3)]
        for key in dict.fromkeys(flat[0::4]):
            at = keys == key
            series = Series(run.name, key, columns[1][at], columns[0][at], columns[2][at])
            sets.setdefault(key, []).append((run.name, [series]))
    for key in wanted:
        if key not in sets:
            raise UsageError(
                "no-such-metric",
                f"No event file in {folder} has a scalar {key!r}.",
                suggestion(key, sets) or f"They have: {', '.join(list(sets)[:20]) or 'none'}.",
            )
    chosen = {key: sets[key] for key in wanted} if wanted else sets
    if not chosen:
        raise UsageError(
            "nothing-to-plot", f"The event files in {folder} have no scalar.", "Check the folder."
        )
    return chosen


def axes_of(
    members: Sequence[Run], params: Sequence[str] = (), *, metrics: Sequence[str] | str = (), of: str = "last"
) -> list[Axis]:  # fmt: skip
    """The runs' parameters (those that differ, unless named) and metrics (their first three, unless named), an axis each."""
    keys = ([metrics] if isinstance(metrics, str) else list(metrics)) or _first_metrics(members, of)
    known_params = list(dict.fromkeys(key for m in members for key in m.variant))
    for name in params:
        if name not in known_params:
            raise UsageError(
                "no-such-param",
                f"{_none_of(members)} a parameter {name!r}.",
                suggestion(name, known_params) or f"They have: {', '.join(known_params[:20]) or 'none'}.",
            )
    # What one value tells is not told apart: a run that failed before it had a parameter makes no axis of it.
    shown = list(params) or [
        key
        for key in known_params
        if len({canonical(m.variant[key]) for m in members if key in m.variant}) > 1
    ]
    axes = [_axis(key, [from_json(m.variant.get(key)) for m in members]) for key in shown]
    for key in keys:
        values = [m.summary.get(key, {}).get(of) for m in members]
        if all(value is None for value in values):
            raise UsageError(
                "no-such-metric",
                f"{_none_of(members)} a finite {key!r}.",
                suggestion(key, {k for m in members for k in m.summary})
                or "luxmeter runs lists what there is.",
            )
        axes.append(_axis(key, values, log=False))
    if len(axes) < 2:
        raise UsageError(
            "nothing-to-plot",
            f"Parallel coordinates need two axes; {counted(len(members), 'run')} gave {len(axes)}.",
            "Name parameters or metrics in which they differ.",
        )
    return axes


def _first_metrics(members: Sequence[Run], of: str) -> list[str]:
    """Those of the training itself that have a finite value, as many as can be read side by side."""
    known = dict.fromkeys(
        key for m in members for key, told in m.summary.items()
        if told.get(of) is not None and not key.startswith((records.SYSTEM, "control/"))
    )  # fmt: skip
    return list(known)[:_METRICS_AS_AXES]


def members_of(runs: Iterable[Any]) -> list[Run]:
    """The runs as repeats see them; none is an error."""
    members = [as_run(run) for run in runs]
    if not members:
        raise UsageError("nothing-to-plot", "There is no run to plot.", "luxmeter runs lists what there is.")
    return members


def lines_of(
    sets: Sets, *, smoothing: float = 0.0, band: str = "none", x: str = "step"
) -> dict[str, list[Line]]:
    """The curves of each metric, of those that have a point; a name has one colour in all of them."""
    names = dict.fromkeys(name for lines in sets.values() for name, _ in lines)
    numbers = {name: i for i, name in enumerate(names)}
    return {
        key: [
            replace(line_of(name, series, smoothing=smoothing, band=band, x=x), number=numbers[name])
            for name, series in lines
            if series
        ]
        for key, lines in sets.items()
    }


def line_of(name: str, series: list[Series], *, smoothing: float, band: str, x: str) -> Line:
    """The curve of one series, or the mean of several with its band."""
    made = [_in_order(one, x) for one in series]
    if len(made) == 1:
        xs, ys = made[0]
        line = Line(name, xs, ys)
        return replace(line, y=smooth(ys, smoothing), raw=ys) if smoothing else line
    grid = _grid([xs for xs, _ in made])
    rows = np.array([np.interp(grid, xs, smooth(ys, smoothing), np.nan, np.nan) for xs, ys in made])
    return _mean_line(name, grid, rows, band)


# Words in a metric's name -> the least and the greatest it can be; a share in percent goes to 100.
_SHARES = frozenset(
    [
        "acc",
        "accuracy",
        "f1",
        "auc",
        "auroc",
        "precision",
        "recall",
        "iou",
        "miou",
        "dice",
        "top1",
        "top5",
        "acc1",
        "acc5",
    ]
)
_NEVER_NEGATIVE = frozenset(["loss", "error", "err", "mse", "mae", "rmse", "ppl", "perplexity"])


def in_range(metric: str, line: Line) -> Line:
    """The line with its band inside of what the metric can be, where its name and its values say what that is."""
    if line.low is None or line.high is None:
        return line
    words, known = set(re.split(r"[\W_]+", metric.lower())), line.y[np.isfinite(line.y)]
    if not known.size or known.min() < 0 or not words & (_SHARES | _NEVER_NEGATIVE):
        return line
    most = np.inf if not words & _SHARES or known.max() > 100 else 1.0 if known.max() <= 1 else 100.0
    return replace(line, low=np.clip(line.low, 0, most), high=np.clip(line.high, 0, most))


def _mean_line(name: str, grid: Floats, rows: Floats, band: str) -> Line:
    from scipy.special import stdtrit

    finite = np.isfinite(rows)
    n = finite.sum(axis=0)
    filled = np.where(finite, rows, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(n > 0, filled.sum(axis=0) / n, np.nan)
        var = np.where(n > 1, (np.where(finite, rows - mean, 0.0) ** 2).sum(axis=0) / (n - 1), np.nan)
    if band == "none":
        return Line(name, grid, mean, n=len(rows))
    if band == "range":
        low = np.where(finite, rows, np.inf).min(axis=0)
        high = np.where(finite, rows, -np.inf).max(axis=0)
        low, high = np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)
    else:
        half = np.sqrt(var)
        if band == "ci":
            half = half * stdtrit(np.maximum(n - 1, 1), 0.975) / np.sqrt(np.maximum(n, 1))
        low, high = mean - half, mean + half
    return Line(name, grid, mean, low=low, high=high, n=len(rows))


def _grid(axes: list[Floats]) -> Floats:
    """The places where a mean is drawn: every one that a run has, or even steps if those are too many."""
    places = np.unique(np.concatenate(axes))
    if len(places) <= _GRID:
        return np.asarray(places, dtype=np.float64)
    first = axes[0]
    if all(len(axis) == len(first) and np.array_equal(axis, first) for axis in axes):
        return np.asarray(
            places[np.unique(np.linspace(0, len(places) - 1, _GRID).astype(int))], dtype=np.float64
        )
    return np.linspace(places[0], places[-1], _GRID)


def _in_order(series: Series, x: str) -> tuple[Floats, Floats]:
    """The curve from left to right; of a step that was logged twice the later value."""
    xs = series.steps if x == "step" else (series.times_ns - series.times_ns.min()) / 1e9
    order = np.argsort(xs, kind="stable")
    xs, ys = xs[order], series.values[order]
    last = np.append(np.diff(xs) > 0, True)
    return np.asarray(xs[last], dtype=np.float64), np.asarray(ys[last], dtype=np.float64)


def _series(member: Run, key: str, name: str) -> Series | None:
    if key not in member.summary and "@rank" not in key:
        return None
    try:
        table = member.metric(key).to_arrow()
    except StoreError:
        return None
    columns = [np.asarray(table.column(c).to_numpy(), dtype=np.float64) for c in ("step", "value", "time_ns")]
    return Series(name, key, *columns)


def names_of(members: Sequence[Run]) -> list[str]:
    """What tells runs apart in a legend: name and differing parameters; seed and id where that is not enough."""
    groups = group_runs(members, code=False)
    labels = {run_id: g.label for g in groups for run_id in (*(m.id for m in g.members), *g.left_out)}
    told = [labels.get(member.id, member.name) for member in members]
    told = [
        label if told.count(label) == 1 or member.seed is None else f"{label} seed={member.seed}"
        for label, member in zip(told, members, strict=True)
    ]
    return [
        text if told.count(text) == 1 else f"{text} {member.id[:5]}"
        for text, member in zip(told, members, strict=True)
    ]


def _axis(name: str, values: list[Any], *, log: bool | None = None) -> Axis:
    plain = [
        v if v is None or (isinstance(v, int | float | str) and not isinstance(v, bool)) else str(v)
        for v in values
    ]
    axis = Axis(name, plain)
    if not axis.is_numeric:
        return axis
    return replace(axis, log=is_even_log([float(v) for v in plain if v is not None]) if log is None else log)
