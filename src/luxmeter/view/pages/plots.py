"""Pictures straight from the store: metric curves with smoothing and bands over repeats, parallel coordinates.

plot(runs, ["loss", "acc"], smooth=0.6).save("curves.png")         # or .svg, .html
plot(runs, ["acc"], repeats=True).save("bands.html")               # a line a variant, a band over its seeds
parallel(runs, metrics=["acc"]).save("params.html")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from luxmeter.errors import UsageError
from luxmeter.experiment import (
    Band,
    Sets,
    axes_of,
    curves_of,
    curves_of_tensorboard,
    in_range,
    lines_of,
    members_of,
    names_of,
)
from luxmeter.files import write_named
from luxmeter.render import (
    Chart,
    Line,
    Parallel,
    card,
    charts_html,
    counted,
    parallel_html,
    save_figure,
    thinned,
)
from luxmeter.view.web import page

BANDS = {"ci": "band: 95 % interval of the mean (t)", "std": "band: ± standard deviation", "range": "band: lowest to highest"}  # fmt: skip
X_LABELS = {"step": "step", "seconds": "seconds since the run's first point"}
SUFFIXES = (".png", ".svg", ".html")


@dataclass(frozen=True)
class Plot:
    """Charts to be saved, or shown in a notebook."""

    title: str
    charts: tuple[Chart, ...] = ()
    parallel: Parallel | None = None
    facts: tuple[str, ...] = ()
    smoothing: float = 0.0

    def save(self, path: str | Path, *, dark: bool = False, dpi: int = 150) -> Path:
        """Write a .png or .svg picture (matplotlib), or a self-contained .html page; returns its path."""
        target = Path(path)
        if target.suffix.lower() not in SUFFIXES:
            raise UsageError(
                "plot-suffix",
                f"{target.name!r} has no suffix of a plot.",
                f"Use one of {', '.join(SUFFIXES)}.",
            )
        if not target.absolute().parent.is_dir():
            raise UsageError(
                "plot-folder", f"There is no folder {target.absolute().parent}.", "Make it first."
            )
        if target.suffix.lower() == ".html":
            write_named(target, self.to_html().encode())
        else:
            save_figure(self.charts, target, parallel=self.parallel, title=self.title, dark=dark, dpi=dpi)
        return target

    def to_html(self) -> str:
        """The page: it loads nothing from anywhere."""
        parts = [charts_html(self.charts, smoothing=self.smoothing)]
        if self.parallel is not None:
            parts.append(card(self.parallel.title, parallel_html(self.parallel)))
        return page(self.title, *parts, facts=self.facts)

    def record(self) -> dict[str, Any]:
        """The points of every curve, as plain values: for curves of one metric, or each run across its axes."""
        if self.parallel is not None:
            axes = [{"name": axis.name, "values": list(axis.values)} for axis in self.parallel.axes]
            return {"title": self.title, "runs": list(self.parallel.names), "axes": axes}
        return {
            "title": self.title,
            "charts": [
                {
                    "metric": c.title,
                    "x": c.x_label,
                    "band": c.note,
                    "lines": [_line(line, of_steps=c.x_label == "step") for line in c.lines],
                }
                for c in self.charts
            ],
        }

    def _repr_html_(self) -> str:
        """In a notebook: in a frame of its own, so that styles do not mix."""
        height = 420 * (1 + (len(self.charts) - 1) // 2) + (440 if self.parallel else 0)
        return f'<iframe srcdoc="{escape(self.to_html())}" style="width:100%;height:{height}px;border:0"></iframe>'


def _line(line: Line, *, of_steps: bool) -> dict[str, Any]:
    parts = {part: getattr(line, part) for part in ("x", "y", "raw", "low", "high")}
    found = {part: values.tolist() for part, values in parts.items() if values is not None}
    if of_steps and all(
        step.is_integer() for step in found["x"]
    ):  # a mean over other steps lies between them
        found["x"] = [int(step) for step in found["x"]]
    return {"name": line.name, "n": line.n, **found}


def plot(
    runs: Iterable[Any],
    metrics: Sequence[str] | str = (),
    *,
    smooth: float = 0.0,
    repeats: bool = False,
    band: Band = "ci",
    x: str = "step",
    log_y: bool = False,
    title: str = "",
) -> Plot:
    """Curves of these metrics (all but the machine's own, unless named), a chart a metric, a line a run.

    `repeats`: runs that differ only in their seed are one line, with a band. `smooth` is TensorBoard's (0 to 1).
    `x` is step or seconds.
    """
    members = members_of(runs)
    sets = curves_of(members, metrics, repeats=repeats)
    title = title or ", ".join(dict.fromkeys(member.name for member in members))
    return draw(sets, smoothing=smooth, band=band, x=x, log_y=log_y, title=title)


def plot_tensorboard(
    folder: str | Path,
    metrics: Sequence[str] | str = (),
    *,
    smooth: float = 0.0,
    x: str = "step",
    log_y: bool = False,
    title: str = "",
) -> Plot:
    """Curves straight out of TensorBoard's event files, without importing them."""
    sets = curves_of_tensorboard(folder, metrics)
    return draw(sets, smoothing=smooth, band="none", x=x, log_y=log_y, title=title or Path(folder).name)


def draw(
    sets: Sets,
    *,
    smoothing: float,
    band: str,
    x: str,
    log_y: bool,
    title: str,
) -> Plot:
    """Charts of metric -> (line's name -> the series it is the mean of)."""
    if x not in X_LABELS:
        raise UsageError("plot-axis", f"There is no axis {x!r}.", f"Use {' or '.join(X_LABELS)}.")
    if band not in (*BANDS, "none"):
        raise UsageError("plot-band", f"There is no band {band!r}.", f"Use {', '.join(BANDS)} or none.")
    charts = []
    for key, lines in lines_of(sets, smoothing=smoothing, band=band, x=x).items():
        drawn = [in_range(key, line) for line in lines]
        note = BANDS.get(band, "") if any(line.low is not None for line in drawn) else ""
        charts.append(Chart(key, X_LABELS[x], [thinned(line) for line in drawn], log_y=log_y, note=note))
    runs = sum(len(series) for _, series in next(iter(sets.values())))
    facts = (counted(runs, "run"), *([f"smoothed with {smoothing:g}"] if smoothing else []))
    return Plot(title, tuple(charts), None, facts, smoothing)


def parallel(
    runs: Iterable[Any],
    params: Sequence[str] = (),
    *,
    metrics: Sequence[str] | str = (),
    of: str = "last",
    title: str = "",
) -> Plot:
    """Each run a line across its parameters (those that differ, unless named) and metrics, coloured by the last."""
    members = members_of(runs)
    axes = axes_of(members, params, metrics=metrics, of=of)
    title = title or ", ".join(dict.fromkeys(member.name for member in members))
    drawn = Parallel(f"{counted(len(members), 'run')} across {len(axes)} axes", names_of(members), axes)
    return Plot(title, (), drawn, (counted(len(members), "run"),))
