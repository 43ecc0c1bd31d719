"""A chart as plain SVG text: what a page shows without script, and a notebook cell while a training runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from luxmeter.render.amounts import mark
from luxmeter.render.curves import COLOURS, Chart, Floats, thinned

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 8, 34
_MOST_POINTS = 400
_TICKS = 6
_MOST_SIZES = 8


def chart_svg(chart: Chart) -> str:
    """Axes, bands and curves; classes as view/web/curves.js has them, colours of their own where no style is."""
    numbered = [(i, thinned(line, _MOST_POINTS)) for i, line in chart.numbered]
    lines = [line for _, line in numbered]
    head = (
        f'<svg class="lux-svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
    )
    usable_x, usable_y = _usable(log=chart.log_x), _usable(log=chart.log_y)
    xs = [x for line in lines for x in line.x.tolist() if usable_x(x)]
    ys = [
        y
        for line in lines
        for part in (line.y, line.low, line.high)
        if part is not None
        for y in part.tolist()
        if usable_y(y)
    ]
    if not xs or not ys:
        return f'{head}<text x="{_LEFT}" y="{HEIGHT // 2}">no value that can be drawn</text></svg>'
    (x0, x1), (y0, y1) = (
        _range(min(xs), max(xs), log=chart.log_x, margin=0),
        _range(min(ys), max(ys), log=chart.log_y, margin=0.04),
    )
    px, py = (
        _scale(x0, x1, _LEFT, WIDTH - _RIGHT, log=chart.log_x),
        _scale(y0, y1, HEIGHT - _BOTTOM, _TOP, log=chart.log_y),
    )
    parts = [head]
    for v in ticks(y0, y1, log=chart.log_y):
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py(v):.1f}" y2="{py(v):.1f}" stroke="#8884"/>'
        )
        parts.append(f'<text x="{_LEFT - 6}" y="{py(v) + 4:.1f}" text-anchor="end">{mark(float(v))}</text>')  # fmt: skip
    sizes = sorted(set(xs)) if chart.marks else []
    for v in sizes if 0 < len(sizes) <= _MOST_SIZES else ticks(x0, x1, log=chart.log_x):
        parts.append(f'<text x="{min(px(v), WIDTH - 16):.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">{mark(float(v))}</text>')  # fmt: skip
    parts.append(f'<line class="edge" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{HEIGHT - _BOTTOM}" y2="{HEIGHT - _BOTTOM}" stroke="#888"/>')  # fmt: skip
    parts.append(f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{HEIGHT - 3}" text-anchor="middle">{escape(chart.x_label)}</text>')  # fmt: skip
    for i, line in numbered:
        colour, name = COLOURS[i % len(COLOURS)], f"lux-s{i % len(COLOURS)}"
        good = [usable_x(x) for x in line.x.tolist()]
        if line.low is not None and line.high is not None:
            at = [k for k, ok in enumerate(good) if ok and usable_y(line.low[k]) and usable_y(line.high[k])]
            if len(at) > 1:
                there = [f"{px(line.x[k]):.1f} {py(line.high[k]):.1f}" for k in at]
                back = [f"{px(line.x[k]):.1f} {py(line.low[k]):.1f}" for k in reversed(at)]
                parts.append(f'<path class="band {name}" fill="{colour}" opacity=".18" d="M{"L".join([*there, *back])}Z"/>')  # fmt: skip
        d = _path(line.x, line.y, px, py, usable_x, usable_y)
        parts.append(f'<path class="curve {name} lux-d{i // len(COLOURS) % 4}" fill="none" stroke="{colour}" stroke-width="1.8" d="{d}"/>')  # fmt: skip
        drawn = [False, *(ok and usable_y(line.y[k]) for k, ok in enumerate(good)), False]
        parts += [
            f'<circle class="dot {name}" fill="{colour}" r="{3 if chart.marks else 2}" cx="{px(line.x[k]):.1f}" cy="{py(line.y[k]):.1f}"/>'
            for k in range(len(good))
            if drawn[k + 1]
            and (chart.marks or not (drawn[k] or drawn[k + 2]))  # a point between gaps has no line
        ]
    return "".join([*parts, "</svg>"])


def ticks(low: float, high: float, *, log: bool) -> Sequence[float]:
    """Round values for the marks of an axis."""
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        decades = math.log10(high / low)
        steps = (1,) if decades > 3 else (1, 3) if decades > 1.2 else (1, 2, 5)
        found = [p * 10.0**e for e in range(first, last + 1) for p in steps]
        found = [v for v in found if low * 0.999 <= v <= high * 1.001]
        if len(found) > 1:
            return found
    rough = (high - low) / _TICKS or 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((m * unit for m in (1, 2, 5, 10) if m * unit >= rough * 0.999), 10 * unit)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-6)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def _usable(*, log: bool) -> Callable[[float], bool]:
    return lambda v: bool(np.isfinite(v)) and (not log or v > 0)


def _range(low: float, high: float, *, log: bool, margin: float) -> tuple[float, float]:
    if low == high:
        wide = abs(low) * 0.05 or 0.5
        return (low / 1.1, high * 1.1) if log else (low - wide, high + wide)
    wide = 0.0 if log else (high - low) * margin
    return low - wide, high + wide


def _scale(low: float, high: float, start: float, end: float, *, log: bool) -> Callable[[float], float]:
    at = math.log10 if log else float
    first = at(low)
    span = at(high) - first or 1.0
    return lambda v: start + (at(v) - first) / span * (end - start)


def _path(
    xs: Floats,
    ys: Floats,
    px: Callable[[float], float],
    py: Callable[[float], float],
    usable_x: Callable[[float], bool],
    usable_y: Callable[[float], bool],
) -> str:
    text, on = [], False
    for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
        on_now = usable_x(x) and usable_y(y)
        if on_now:
            text.append(f"{'L' if on else 'M'}{px(x):.1f} {py(y):.1f}")
        on = on_now
    return "".join(text)
