"""What a notebook shows of a value: HTML that stands for itself, in the colours of the notebook, whether dark or light."""

from __future__ import annotations

import re

from luxmeter.render.curves import COLOURS, Chart
from luxmeter.render.html import Html, element, joined, table_html
from luxmeter.render.svg import chart_svg
from luxmeter.render.table import Table

# Nothing here has a colour of its own but shares, curves and lines, each of which is seen on white and on black.
_STYLE = (
    ".lux{color:inherit;font-size:13px;line-height:1.4}"
    ".lux .lux-scroll{overflow:auto;max-height:32em}"
    ".lux table{border-collapse:collapse;margin:.3em 0;color:inherit;font-variant-numeric:tabular-nums}"
    ".lux tr,.lux tr:nth-child(n){background:transparent}"
    ".lux th,.lux td{text-align:left;padding:1px 10px 1px 0;border:0;border-bottom:1px solid rgba(128,128,128,.3);color:inherit;"
    "background-color:transparent;white-space:nowrap;vertical-align:top}"
    ".lux th{font-weight:600}.lux .n{text-align:right}"
    ".lux td.w{white-space:pre;font-family:ui-monospace,monospace;max-width:36em;overflow:hidden;text-overflow:ellipsis}"
    ".lux caption{text-align:left;caption-side:top;color:inherit;padding:0}"
    ".lux td.lux-share{background-image:linear-gradient(to left,rgba(47,126,216,.3) var(--lux-part,0%),transparent var(--lux-part,0%))}"
    ".lux p{margin:.2em 0;white-space:pre-wrap}.lux pre{margin:.3em 0;overflow:auto;color:inherit;background:transparent}.lux .lux-quiet{opacity:.75}"
    ".lux .lux-charts{display:flex;flex-wrap:wrap;gap:6px 18px}.lux figure{margin:0;flex:1 1 320px;max-width:460px}"
    ".lux svg{width:100%;height:auto;display:block}.lux svg text{fill:currentColor;font-size:11px;font-family:inherit}"
    ".lux .lux-legend{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:0 14px}"
    ".lux .lux-legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}"
)


def repr_html(*parts: Table | Html | str, title: str = "") -> str:
    """One after the other below a title: tables as tables, text line by line, what is HTML as it is; for `_repr_html_`."""
    made = [element("p", element("b", title))] if title else []
    for part in parts:
        if isinstance(part, Table):
            made.append(table_html(part) if part.rows else _notes(part))
        elif isinstance(part, Html):
            made.append(part)
        elif part:
            made.append(element("p", part))
    body = joined(made)
    return element("div", element("style", Html(_STYLE + _classes(body))), body, class_="lux")


def charts_repr(*charts: Chart) -> Html:
    """Charts beside each other, with legends where there are several lines; a part of `repr_html`."""
    made = []
    for chart in charts:
        names = [
            element("li", element("i", class_=f"lux-c{i % len(COLOURS)}"), line.name)
            for i, line in chart.numbered
        ]
        legend = element("ul", *names, class_="lux-legend") if len(names) > 1 else None
        made.append(
            element("figure", element("figcaption", chart.title), Html(chart_svg(chart)), legend, class_="lux-chart")
        )  # fmt: skip
    return element("div", *made, class_="lux-charts")


def pre_repr(text: str) -> Html:
    """Text as a terminal shows it; a part of `repr_html`."""
    return element("pre", text)


def _notes(table: Table) -> Html:
    """Of a table without a row what stands around it."""
    return joined(element("p", line) for line in (table.title, *table.notes) if line)


def _classes(body: str) -> str:
    """The styles of the classes that stand for numbers, as far as they are there."""
    shares = sorted({int(found) for found in re.findall(r'class="n lux-share lux-p(\d+)"', body)})
    colours = sorted({int(found) for found in re.findall(r'<i class="lux-c(\d+)"', body)})
    return "".join(
        [
            *(f".lux .lux-p{part}{{--lux-part:{part}%}}" for part in shares),
            *(f".lux .lux-c{i}{{background:{COLOURS[i]}}}" for i in colours),
        ]
    )
