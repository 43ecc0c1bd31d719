"""Benchmarks as pictures: time against scale, log-log with the fitted exponent; speed-up bars. PNG, SVG, or parts of a page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.files import write_named
from luxmeter.operators import BenchResult, Series, series_of, speedups_of
from luxmeter.render import Chart, Html, Line, charts_html, element, joined, table_html

_MOST_LINES = 12  # of one picture; more cannot be told apart
_MOST_BARS = 40
_COLORS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#7f7f7f",
    "#f0e442",
)  # Okabe-Ito
_MARKS = "osD^vP"


def benchmark_picture(result: BenchResult, path: str | Path, *, kind: str = "") -> Path:
    """Draw a benchmark to a .png or .svg file."""
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(
            "unknown-picture", f"{path} is neither .png nor .svg.", "Choose one of these endings."
        )
    if kind not in ("", "scaling", "speedup"):
        raise UsageError(
            "unknown-picture", f"There is no picture {kind!r}.", "Ask for 'scaling' or 'speedup'."
        )
    figure = _figure()
    series = [s for s in series_of(result) if len(s.sizes) > 1]
    if kind == "scaling" or (not kind and series):
        _scaling(figure, series)
    else:
        _speedups(figure, result)
    buffer = io.BytesIO()
    # No date inside: the same benchmark gives the same file.
    figure.savefig(buffer, format=path.suffix[1:].lower(), dpi=144, bbox_inches="tight",
                   metadata={"Date": None} if path.suffix.lower() == ".svg" else None)  # fmt: skip
    write_named(path, buffer.getvalue())
    return path


def bench_html(result: BenchResult) -> Html:
    """The table, time against scale, and speed-ups: as parts of a page."""
    charts = []
    series = [s for s in series_of(result) if len(s.sizes) > 1]
    for dimension in dict.fromkeys(s.dimension for s in series):
        own = sorted((s for s in series if s.dimension == dimension), key=lambda s: -s.median_us[-1])[
            :_MOST_LINES
        ]
        lines = [
            Line(
                s.name if s.exponent is None else f"{s.name}: size^{s.exponent:.2f}", _floats(s.sizes), _floats(s.median_us),
                low=_floats(s.low_us), high=_floats(s.high_us),
            )
            for s in own
        ]  # fmt: skip
        charts.append(
            Chart(f"median us against {dimension}", dimension, lines, log_x=True, log_y=True, marks=True, note="band: 95 % interval")
        )  # fmt: skip
    found = speedups_of(result)
    bars = []
    for label, kind, ratio in list(zip(found.labels, found.kinds, found.ratios, strict=True))[:_MOST_BARS]:
        bars.append([f"{label} {kind}", ratio])
    return joined(
        (
            table_html(result.table()),
            charts_html(charts, controls=False) if charts else None,
            _speedup_html(bars, found.against) if bars else None,
        )
    )


def _speedup_html(bars: list[list[Any]], against: str) -> Html:
    """A bar each, from the middle: to the right faster, to the left slower, by powers of two."""
    most = max(1.0, *(abs(float(np.log2(max(ratio, 1e-3)))) for _, ratio in bars))
    rows = []
    for label, ratio in bars:
        at = 50 * float(np.log2(max(ratio, 1e-3))) / most
        left, wide = (50.0, at) if at >= 0 else (50 + at, -at)
        bar = element(
            "svg", element("rect", x=f"{left:.2f}", y=0, width=f"{max(wide, 0.3):.2f}", height=10, class_="lux-k2" if at >= 0 else "lux-k9"),
            element("rect", x="49.9", y=0, width="0.2", height=10, class_="lux-k7"),
            viewBox="0 0 100 10", preserveAspectRatio="none", class_="lux-speed", role="img", aria_label=f"{ratio:.2f}x",
        )  # fmt: skip
        rows.append(element("tr", element("td", label, class_="w"), element("td", f"{ratio:.2f}x", class_="n", data_v=f"{ratio:.6g}"), element("td", bar)))  # fmt: skip
    head = element("tr", element("th", "row", scope="col"), element("th", "speed-up", scope="col", class_="n"), element("th", f"against {against}: right is faster, left slower", scope="col"))  # fmt: skip
    grid = element("table", element("thead", head), element("tbody", *rows))
    return element("div", element("div", grid, class_="lux-scroll"), class_="lux-table", data_lux="table")


def _floats(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "matplotlib-missing", "Pictures need matplotlib.", 'pip install "luxmeter[plots]"'
        ) from error
    return Figure(facecolor="white")


def _scaling(figure: Any, series: list[Series]) -> None:
    if not series:
        raise UsageError(
            "nothing-to-draw",
            "No scale takes two values, so there is no time against scale.",
            "Measure with scales={'batch': [1, 2, 4, 8]}, or draw kind='speedup'.",
        )
    dimensions = list(dict.fromkeys(s.dimension for s in series))
    figure.set_size_inches(7.5 * len(dimensions), 5)
    for number, dimension in enumerate(dimensions, 1):
        axes = figure.add_subplot(1, len(dimensions), number)
        own = sorted((s for s in series if s.dimension == dimension), key=lambda s: -s.median_us[-1])
        for i, one in enumerate(own[:_MOST_LINES]):
            _line(axes, one, _COLORS[i % len(_COLORS)], _MARKS[i // len(_COLORS) % len(_MARKS)])
        sizes = sorted({n for s in own for n in s.sizes})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sizes, [str(n) for n in sizes], rotation=0 if len(sizes) < 9 else 45)
        axes.minorticks_off()
        axes.set_xlabel(dimension)
        axes.set_ylabel("median time [µs], bars: 95 % interval")
        left_out = len(own) - _MOST_LINES
        axes.set_title("time against scale" + (f" (the {left_out} fastest left out)" if left_out > 0 else ""))
        axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
        axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(0, -0.14), frameon=False)


def _line(axes: Any, one: Series, color: str, mark: str) -> None:
    middle = np.array(one.median_us)
    spread = [np.maximum(middle - one.low_us, 0), np.maximum(np.array(one.high_us) - middle, 0)]
    label = f"{one.name}: size^{one.exponent:.2f}" if one.exponent is not None else one.name
    axes.errorbar(one.sizes, middle, yerr=spread, color=color, marker=mark, markersize=5, linewidth=0,
                  elinewidth=1.2, capsize=2, label=label)  # fmt: skip
    axes.plot(one.sizes, one.fitted_us, color=color, linewidth=1.0)


def _speedups(figure: Any, result: BenchResult) -> None:
    """Horizontal bars from 1: to the right faster than eager, to the left slower."""
    found = speedups_of(result)
    ratios, kinds, labels = found.ratios, found.kinds, found.labels
    if not found.rows:
        raise UsageError(
            "nothing-to-draw",
            "There is no second backend or dtype, so there are no speed-ups.",
            "Measure with backends=['eager', 'compile'] or dtypes=['fp32', 'bf16'].",
        )
    groups = list(dict.fromkeys(labels))[:_MOST_BARS]
    colors = {kind: _COLORS[i % len(_COLORS)] for i, kind in enumerate(dict.fromkeys(kinds))}
    height = 0.8 / len(colors)
    figure.set_size_inches(8, 1.4 + 0.32 * len(groups) * max(1.0, len(colors) * 0.75))
    axes = figure.add_subplot()
    for place, group in enumerate(groups):
        own = [i for i, label in enumerate(labels) if label == group]
        for n, i in enumerate(own):
            y = place + (n - (len(own) - 1) / 2) * height
            axes.barh(y, ratios[i] - 1, left=1, height=height * 0.92, color=colors[kinds[i]])
            side = "left" if ratios[i] >= 1 else "right"
            axes.annotate(f"{ratios[i]:.2f}", (ratios[i], y), xytext=(3 if side == "left" else -3, 0),
                          textcoords="offset points", va="center", ha=side, fontsize=7)  # fmt: skip
    axes.set_xscale("log", base=2)
    low, high = min([*ratios, 1.0]), max([*ratios, 1.0])
    axes.set_xlim(low / 1.5, high * 1.5)
    ticks = [2.0**k for k in range(int(np.floor(np.log2(low / 1.5))), int(np.ceil(np.log2(high * 1.5))) + 1)]
    ticks = [t for t in ticks if low / 1.5 <= t <= high * 1.5]
    axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axes.minorticks_off()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(groups)), groups, fontsize=7.5)
    axes.invert_yaxis()
    axes.set_xlabel(f"speed-up against {found.against}")
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    handles = [axes.barh(0, 0, color=color, label=kind) for kind, color in colors.items()]
    axes.legend(
        handles=handles, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=6, frameon=False
    )
