"""Charts as PNG and SVG files, by matplotlib (an extra). No global state of matplotlib is used or changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from luxmeter.errors import MissingExtraError
from luxmeter.render.curves import COLOURS, Axis, Chart, Parallel

_DASHES = ("-", "--", ":", "-.")
_LIGHT = {"paper": "#ffffff", "ink": "#1c2330", "quiet": "#5b6577", "line": "#dfe2e8"}
_DARK = {"paper": "#14171c", "ink": "#e6e9ef", "quiet": "#9aa4b5", "line": "#333a45"}
_MOST_IN_LEGEND = 20


def save_figure(
    charts: Sequence[Chart],
    path: Path,
    *,
    parallel: Parallel | None = None,
    title: str = "",
    dark: bool = False,
    dpi: int = 150,
) -> None:
    """Draw the charts, one beside the other (three a row), and the parallel coordinates below, into `path`."""
    look = _DARK if dark else _LIGHT
    with _matplotlib() as figure_type:
        columns = max(1, min(3, len(charts)))
        rows = math.ceil(len(charts) / columns)
        heights = [3.4] * rows + ([3.8] if parallel else [])
        width = max(6.4 if columns == 1 else 4.9 * columns, 2.0 * len(parallel.axes) if parallel else 0)
        figure = figure_type(figsize=(width, sum(heights) + (0.4 if title else 0)), layout="constrained")
        figure.set_facecolor(look["paper"])
        if title:
            figure.suptitle(
                _short(title, 80), color=look["ink"], fontsize=12, fontweight="bold", parse_math=False
            )
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        places = [figure.add_subplot(grid[i // columns, i % columns]) for i in range(len(charts))]
        legends = [_draw(axes, chart, look) for axes, chart in zip(places, charts, strict=True)]
        if (len(legends) > 1 and all(labels == legends[0][1] for _, labels in legends)) or _is_long(legends):
            handles, labels = max(legends, key=lambda one: len(one[1]))
            if labels:  # one for all, below: it hides nothing
                fit = max(1, int(width / (0.5 + 0.075 * max(map(len, labels)))))
                _legend(
                    figure, handles, labels, look, loc="outside lower center", ncols=min(fit, len(labels))
                )
        else:
            for axes, (handles, labels) in zip(places, legends, strict=True):
                if labels:
                    _legend(axes, handles, labels, look)
        if parallel:
            _draw_parallel(figure, figure.add_subplot(grid[-1, :]), parallel, look)
        # Without a date the same data gives the same file.
        kind = path.suffix.lower().lstrip(".")
        metadata = {"svg": {"Date": None}, "png": {"Software": None}}.get(kind, {})
        figure.savefig(path, dpi=dpi, facecolor=look["paper"], metadata=metadata, format=kind)


def _is_long(legends: list[tuple[list[Any], list[str]]]) -> bool:
    return len(legends) == 1 and len(legends[0][1]) > 4


def _draw(axes: Any, chart: Chart, look: dict[str, str]) -> tuple[list[Any], list[str]]:
    """Draw one chart; returns what its legend would hold."""
    _dress(axes, look)
    handles, labels = [], []
    for i, line in chart.numbered:
        colour, dash = COLOURS[i % len(COLOURS)], _DASHES[i // len(COLOURS) % len(_DASHES)]
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
        if line.raw is not None:
            axes.plot(line.x, line.raw, color=colour, alpha=0.22, linewidth=0.8)
        marker = "o" if np.isfinite(line.y).sum() == 1 else None
        drawn = axes.plot(line.x, line.y, dash, color=colour, linewidth=1.6, marker=marker, markersize=4)
        handles.append(drawn[0])
        name = _short(line.name, 60) + (f" (n={line.n})" if line.n > 1 else "")
        # matplotlib leaves out labels that begin with an underscore; a space of no width goes before.
        labels.append("\u200b" + name if name.startswith("_") else name)
    axes.set_title(_short(chart.title, 60), color=look["ink"], fontsize=11, loc="left", parse_math=False)
    axes.set_xlabel(
        chart.x_label + (f"   ({chart.note})" if chart.note else ""),
        color=look["quiet"], fontsize=9, parse_math=False,
    )  # fmt: skip
    if chart.x_label == "step" and not chart.log_x:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if chart.log_y:
        axes.set_yscale("log")
    return handles, labels if len(labels) > 1 or any(line.n > 1 for line in chart.lines) else []


def _legend(place: Any, handles: list[Any], labels: list[str], look: dict[str, str], **where: Any) -> None:
    more = len(labels) - _MOST_IN_LEGEND
    legend = place.legend(
        handles[:_MOST_IN_LEGEND], labels[:_MOST_IN_LEGEND], fontsize=8, labelcolor=look["ink"],
        facecolor=look["paper"], edgecolor="none", framealpha=0.8,
        title=f"and {more} more" if more > 0 else None, **where,
    )  # fmt: skip
    legend.get_title().set_color(look["quiet"])
    legend.get_title().set_fontsize(8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_parallel(figure: Any, axes: Any, parallel: Parallel, look: dict[str, str]) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    scaled = [_scaled(axis) for axis in parallel.axes]
    colour_of = scaled[-1]
    # The end that the paper would swallow is left out.
    ends = (0.25, 1.0) if look is _DARK else (0.0, 0.9)
    map_ = ListedColormap(colormaps["viridis"](np.linspace(*ends, 256)))
    for row in range(len(parallel.names)):
        ys = [column[row] for column in scaled]
        place = colour_of[row]
        colour: Any = look["quiet"] if place is None else map_(place)
        points = [(i, y) for i, y in enumerate(ys) if y is not None]
        axes.plot([i for i, _ in points], [y for _, y in points], color=colour, alpha=0.75, linewidth=1.2)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_facecolor(look["paper"])
    axes.set_yticks([])
    axes.set_xticks(range(len(parallel.axes)))
    axes.set_xticklabels([_short(axis.name, 24) for axis in parallel.axes], color=look["ink"], fontsize=9)
    for text in axes.get_xticklabels():
        text.set_parse_math(False)
    axes.tick_params(axis="x", length=0, pad=8)
    for i, axis in enumerate(parallel.axes):
        axes.axvline(i, color=look["quiet"], linewidth=0.8)
        for place, label in ticks_of(axis):
            axes.text(i + 0.02, place, label, fontsize=7.5, color=look["quiet"], va="center", parse_math=False,
                      bbox={"facecolor": look["paper"], "edgecolor": "none", "alpha": 0.7, "pad": 0.5})  # fmt: skip
    axes.set_title(_short(parallel.title, 80), color=look["ink"], fontsize=11, loc="left", parse_math=False)
    last = parallel.axes[-1]
    if last.is_numeric and not last.log:
        known = [float(v) for v in last.values if v is not None]
        scale = Normalize(min(known), max(known))
        bar = figure.colorbar(ScalarMappable(scale, map_), ax=axes, pad=0.02, fraction=0.03)
        bar.ax.tick_params(colors=look["quiet"], labelsize=8)
        bar.outline.set_visible(False)


def _scaled(axis: Axis) -> list[float | None]:
    """Each value's place on the axis, 0 to 1."""
    if not axis.is_numeric:
        words = axis.categories
        return [None if v is None else words.index(str(v)) / max(1, len(words) - 1) for v in axis.values]
    numbers = [None if v is None else math.log10(v) if axis.log else float(v) for v in axis.values]
    known = [v for v in numbers if v is not None]
    low, span = min(known), (max(known) - min(known)) or 1.0
    return [None if v is None else (v - low) / span for v in numbers]


def ticks_of(axis: Axis, count: int = 5) -> list[tuple[float, str]]:
    """Places (0 to 1) and labels on an axis: the different values if they are few, else even steps."""
    places = _scaled(axis)
    seen = {p: v for p, v in zip(places, axis.values, strict=True) if p is not None}
    if len(seen) <= count + 2 or not axis.is_numeric:
        some = sorted(seen.items())[:24]
        return [(place, _label(value)) for place, value in some]
    low = min(v for v in axis.values if v is not None)
    high = max(v for v in axis.values if v is not None)
    steps = np.linspace(0, 1, count)
    if axis.log:
        return [(float(s), _label(float(low * (high / low) ** s))) for s in steps]
    return [(float(s), _label(float(low + (high - low) * s))) for s in steps]


def _label(value: Any) -> str:
    return _short(f"{value:.4g}" if isinstance(value, float) else str(value), 20)


def _short(text: str, most: int) -> str:
    """The text cut where it would leave no room for the picture."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _dress(axes: Any, look: dict[str, str]) -> None:
    axes.set_facecolor(look["paper"])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(look["quiet"])
    axes.tick_params(colors=look["quiet"], labelsize=8)
    axes.grid(True, color=look["line"], linewidth=0.6)
    axes.set_axisbelow(True)


@contextmanager
def _matplotlib() -> Iterator[Any]:
    try:
        import matplotlib
        from matplotlib.backends import backend_agg, backend_svg  # noqa: F401  (savefig finds them)
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "no-matplotlib",
            f"Pictures need the package matplotlib: {error}.",
            "Install it with: pip install 'luxmeter[plots]' - or write .html, which needs nothing.",
        ) from error
    with matplotlib.rc_context({"svg.hashsalt": "luxmeter", "svg.fonttype": "none", "text.usetex": False}):
        yield Figure
