"""Charts as one self-contained HTML page: curves that can be read, hidden and smoothed, parallel coordinates."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from luxmeter.render.curves import COLOURS, Axis, Chart, Floats, Line, Parallel


def chart_page(
    title: str,
    charts: Sequence[Chart],
    *,
    parallel: Parallel | None = None,
    facts: Sequence[str] = (),
    smoothing: float = 0.0,
) -> str:
    """The HTML. It loads nothing: styles, script and data are in it."""
    data = {
        "colours": list(COLOURS),
        "smoothing": smoothing,
        "charts": [
            {"title": c.title, "x": c.x_label, "logY": c.log_y, "note": c.note, "lines": [_line(line) for line in c.lines]}
            for c in charts
        ],
        "parallel": None
        if parallel is None
        else {
            "title": parallel.title,
            "names": list(parallel.names),
            "axes": [_axis(axis) for axis in parallel.axes],
        },
    }  # fmt: skip
    here = files("luxmeter.render")
    style, more, script, body = (
        here.joinpath(name).read_text("utf-8")
        for name in ("page.css", "charts.css", "charts.js", "charts.html")
    )
    # "<" is written as an escape: no text of the data can end the script element.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace(
        "<", "\\u003c"
    )
    said = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    # The page is put together from its pieces in one go, so that no value is taken for a mark.
    values = {"title": escape(title), "facts": said, "style": style + more, "script": script, "data": text}
    pieces = body.split("@")
    return "".join(values.get(piece, piece) if i % 2 else piece for i, piece in enumerate(pieces))


def _line(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "n": line.n,
        "x": _numbers(line.x),
        "y": _numbers(line.y),
        "raw": None if line.raw is None else _numbers(line.raw),
        "low": None if line.low is None else _numbers(line.low),
        "high": None if line.high is None else _numbers(line.high),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    numeric = axis.is_numeric
    values = [None if v is None else (_number(float(v)) if numeric else str(v)) for v in axis.values]
    return {"name": axis.name, "log": axis.log, "numeric": numeric, "values": values}


def _numbers(values: Floats) -> list[float | None]:
    return [_number(float(value)) for value in values]


def _number(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None
