"""Values as HTML: tables, trees, charts and graphs that are read without script; view/web adds sorting, zoom and the rest.

Text is escaped unless it is `Html`, and what would turn its direction around is spelled out. No element has a style of its own: what
is a number becomes a class (`lux-p37`), so that a page may forbid inline styles. The data of a component lies beside it in a block
that no text can end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from luxmeter.plain_text import plain
from luxmeter.render.curves import COLOURS, Axis, Chart, Floats, Line, Parallel
from luxmeter.render.svg import chart_svg
from luxmeter.render.table import TEXT, Column, Table

_DEEPEST = 40
_STATE_CLASSES = {
    "finished": "lux-good", "running": "lux-wait", "interrupted": "lux-wait", "failed": "lux-bad", "lost": "lux-bad", "damaged": "lux-bad",
}  # fmt: skip


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


_READ = ("title", "placeholder", "aria_label")


def element(tag: str, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """`<tag attributes>children</tag>`; an attribute `class_`, `data_name` is written class, data-name; None and False are left out.

    Texts that are read are made plain, those that are sent back (a field's value, an address) are as they are.
    """
    said = "".join(
        f" {name.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{escape(plain(str(value)) if name in _READ else str(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{said}>{joined(children)}</{tag}>")


def text_area(text: str, **attributes: str | int | bool | None) -> Html:
    """A field of several lines that sends back what it was given, whatever that is; the line break at its beginning is the field's own."""
    return element("textarea", Html("\n" + escape(text)), **attributes)


def joined(children: Iterable[str | None]) -> Html:
    """One after the other, each escaped and made plain unless it is HTML."""
    return Html("".join(c if isinstance(c, Html) else escape(plain(c)) for c in children if c is not None))


def data_block(value: Any) -> Html:
    """JSON that no text in it can end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Html(f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>')


def component(kind: str, data: Any) -> Html:
    """A box that the script makes a graph of."""
    without = element("p", "This graph needs script; its numbers stand in the tables.", class_="lux-quiet")
    return element("div", element("noscript", without), data_block(data), data_lux=kind)


def card(title: str, *children: str | None, id_: str | None = None, quiet: str = "") -> Html:
    """A titled part of a page."""
    head = element("h2", title, *([Html(" "), element("small", quiet, class_="lux-quiet")] if quiet else []))
    return element("section", head, *children, class_="lux-card", id_=id_, aria_label=title)


def contents(titles: Mapping[str, str]) -> Html:
    """Links to the parts of a page: id -> title."""
    links = [element("a", title, href=f"#{id_}") for id_, title in titles.items()]
    return element("nav", *links, class_="lux-toc", aria_label="On this page")


def tabs(parts: Mapping[str, str]) -> Html:
    """Parts that are shown one at a time, or without script one below the other."""
    made = [
        element("section", element("h3", name), part, data_tab=name, aria_label=name)
        for name, part in parts.items()
    ]
    return element("div", *made, data_lux="tabs")


def pairs(values: Mapping[str, str | None]) -> Html:
    """Names and what they are."""
    made = [joined((element("dt", name), element("dd", value))) for name, value in values.items() if value]
    return element("dl", *made, class_="lux-pairs")


def table_html(
    table: Table,
    *,
    names: Sequence[str] = (),
    links: Callable[[int, int, str], str | None] | None = None,
    server: bool = False,
) -> Html:
    """The table. `names`: what each row is called by the graphs beside it. `links(row, column, text)`: where a cell leads."""
    table = replace(table, columns=[_uncut(column) for column in table.columns])
    columns = [(i, table.columns[i]) for i in table.shown]
    rows = [
        element(
            "tr",
            *(
                _cell(column, row[i], text, links(number, i, text) if links else None, names_it=not place)
                for place, ((i, column), text) in enumerate(zip(columns, line, strict=True))
            ),
            data_name=names[number] if names else None,
        )
        for number, (row, line) in enumerate(zip(table.rows, table.cells, strict=True))
    ]
    grid = _grid([column for _, column in columns], rows, table.title)
    notes = [element("p", note, class_="lux-quiet") for note in table.notes]
    return element(
        "div", element("div", grid, class_="lux-scroll"), *notes, class_="lux-table", data_lux="table", data_server=server
    )  # fmt: skip


def tree_html(
    columns: Sequence[Column], rows: Sequence[Sequence[Any]], depths: Sequence[int], *, names: Sequence[str] = (), open_to: int = 2
) -> Html:  # fmt: skip
    """Rows below rows, by depth; the first column folds."""
    made, shown = [], Table(columns, rows).shown
    for number, (row, depth) in enumerate(zip(rows, depths, strict=True)):
        cells = [
            _cell(columns[i], row[i], columns[i].text(row[i]), None, names_it=not place)
            for place, i in enumerate(shown)
        ]
        made.append(
            element(
                "tr", *cells, class_=f"lux-i{min(depth, _DEEPEST)}", data_depth=depth, data_name=names[number] if names else None
            )
        )  # fmt: skip
    grid = _grid([columns[i] for i in shown], made, "")
    return element(
        "div",
        element("div", grid, class_="lux-scroll"),
        class_="lux-tree",
        data_lux="tree",
        data_open=open_to,
    )


def _grid(columns: Sequence[Column], rows: Iterable[str], caption: str) -> Html:
    heads = [element("th", c.name, scope="col", class_=None if c.kind is TEXT else "n") for c in columns]
    return element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
    )


def state_html(state: str, **attributes: str) -> Html:
    """A run's state in its colour."""
    return element("span", state, class_=_STATE_CLASSES.get(state, "lux-quiet"), **attributes)


def _uncut(column: Column) -> Column:
    """What a page has no room for is cut by its style, and is there in full."""
    cut = column.most is not None and column.kind is TEXT and not column.is_signature  # that keeps its end
    return replace(column, most=None) if cut else column


def _cell(column: Column, value: Any, text: str, link: str | None, *, names_it: bool = False) -> Html:
    """`names_it`: what the row is called, where `-` is an operator, not nothing."""
    shown: str = element("a", text, href=link) if link else text
    if text == column.missing and not names_it:
        return element("td", shown, class_="lux-none" if column.kind is TEXT else "n lux-none", data_v=None if column.kind is TEXT else "")  # fmt: skip
    if column.is_state:
        return element("td", state_html(text), class_="w")
    if column.kind is TEXT or isinstance(value, str):
        return element("td", shown, class_="w" if column.kind is TEXT else "n", title=text if len(text) > 40 else None)  # fmt: skip
    if value is None:
        return element("td", shown, class_="n", data_v="")
    is_number = isinstance(value, int | float) and math.isfinite(value)
    if column.bar and is_number:
        part = round(100 * min(1.0, max(0.0, float(value))))
        return element("td", shown, class_=f"n lux-share lux-p{part}", data_v=f"{value:.6g}")
    return element("td", shown, class_="n", data_v=f"{float(value):.9g}" if is_number else "")


def chart_html(
    chart: Chart, *, smoothing: float = 0.0, keys: Sequence[str] = (), marks: bool = False
) -> Html:
    """Curves. Without script the same as a picture. `keys`: by what a running training's points find their line."""
    data = {
        "title": chart.title,
        "x": chart.x_label,
        "logX": chart.log_x,
        "logY": chart.log_y,
        "note": chart.note,
        "marks": marks or chart.marks,
        "smoothing": smoothing,
        "lines": [_line(line) | ({"key": keys[i]} if keys else {}) for i, line in enumerate(chart.lines)],
        "numbers": [i for i, _ in chart.numbered],
    }
    said = element("figcaption", element("b", chart.title), element("span", chart.note, class_="lux-quiet"))
    names = [
        element("li", element("i", class_=f"lux-c{i % len(COLOURS)}"), line.name)
        for i, line in chart.numbered
    ]
    legend = element("ul", *names, class_="lux-legend")
    return element(
        "figure", said, data_block(data), Html(chart_svg(chart)), legend, class_="lux-chart", data_lux="chart", data_key=chart.title
    )  # fmt: skip


def charts_html(
    charts: Sequence[Chart],
    *,
    smoothing: float = 0.0,
    keys: Sequence[Sequence[str]] = (),
    controls: bool = True,
) -> Html:
    """Charts beside each other; with `controls`, what all of a page share above them."""
    above = element("div", class_="lux-bar", data_lux="chartControls", data_smoothing=f"{smoothing:g}")
    made = [
        element(
            "div", chart_html(chart, smoothing=smoothing, keys=keys[i] if keys else ()), class_="lux-card"
        )
        for i, chart in enumerate(charts)
    ]
    return joined((above if charts and controls else None, element("div", *made, class_="lux-two")))


def parallel_html(parallel: Parallel) -> Html:
    """Parallel coordinates; without script a table."""
    data = {
        "title": parallel.title,
        "names": list(parallel.names),
        "axes": [_axis(axis) for axis in parallel.axes],
    }
    columns = [Column("run"), *(Column(axis.name) for axis in parallel.axes)]
    rows = [[name, *(axis.values[i] for axis in parallel.axes)] for i, name in enumerate(parallel.names)]
    table = element("details", element("summary", "the values"), table_html(Table(columns, rows)))
    return joined((component("parallel", data), table))


@dataclass(frozen=True)
class Flame:
    """A node of a flame graph. `kind` is the number of one of the graph's kinds, and its colour."""

    name: str
    value_ns: int
    n: int = 1
    kind: int = 0
    children: Sequence[Flame] = field(default_factory=list)


def flame_html(
    root: Flame, kinds: Sequence[str], *, ground: int | None = None, ground_said: str = ""
) -> Html:
    """Who called what, width is time. `ground`: the kind of the time in no call, which can be left out, and how much it is in words."""
    return component(
        "flame", {"root": _flame(root), "kinds": list(kinds), "ground": ground, "groundSaid": ground_said}
    )


@dataclass(frozen=True)
class Bar:
    """One span of time in a lane, or `n` calls that are drawn as one."""

    name: str
    detail: str
    start_ns: int
    duration_ns: int
    depth: int
    kind: int = 0
    n: int = 1


@dataclass(frozen=True)
class Timeline:
    """Spans of time, in lanes."""

    title: str
    lanes: Mapping[str, Sequence[Bar]]
    kinds: Sequence[str] = ()
    left_out: int = 0
    ground: int | None = None  # the kind of the time in which a lane has no bar
    start_ns: int | None = None
    end_ns: int | None = None

    def data(self) -> dict[str, Any]:
        """As view/web/timeline.js takes it: texts once, by number."""
        words: dict[str, int] = {"": 0}

        def number(word: str) -> int:
            return words.setdefault(word, len(words))

        lanes = [
            {
                "name": name,
                "depths": 1 + max((b.depth for b in bars), default=0),
                "bars": [[number(b.name), number(b.detail), b.start_ns, b.duration_ns, b.depth, b.kind, b.n] for b in bars],
            }
            for name, bars in self.lanes.items()
        ]  # fmt: skip
        every = [b for bars in self.lanes.values() for b in bars]
        start = min((b.start_ns for b in every), default=0) if self.start_ns is None else self.start_ns
        end = (
            max((b.start_ns + b.duration_ns for b in every), default=1)
            if self.end_ns is None
            else self.end_ns
        )
        return {"title": self.title, "start": start, "end": end, "lanes": lanes, "words": list(words), "kinds": list(self.kinds),
                "leftOut": self.left_out, "ground": self.ground}  # fmt: skip


def timeline_html(timeline: Timeline, *, source: str = "", window: tuple[int, int] | None = None) -> Html:
    """Calls as they went. `source`: where a server gives the part that is looked at; `window`: what is looked at first."""
    more = ({"src": source} if source else {}) | ({"window": list(window)} if window else {})
    return component("timeline", timeline.data() | more)


@dataclass(frozen=True)
class Part:
    """A part of a treemap: what it is worth by each measure, and what is in it."""

    name: str
    path: str
    values: Sequence[float]
    kind: int = 0
    children: Sequence[Part] = field(default_factory=list)


def treemap_html(root: Part, measures: Mapping[str, str], kinds: Sequence[str]) -> Html:
    """Areas of a whole. `measures`: name -> how its values are written (duration, bytes, amount, number)."""
    data = {
        "root": _part(root),
        "measures": [{"name": n, "kind": k} for n, k in measures.items()],
        "kinds": list(kinds),
    }
    return component("treemap", data)


def bars_html(parts: Sequence[tuple[str, float, int]], *, written: Callable[[float], str]) -> Html:
    """One bar in parts, with a legend that says how much each is: (name, value, kind)."""
    whole = sum(value for _, value, _ in parts) or 1.0
    rects, left = [], 0.0
    for name, value, kind in parts:
        wide = 1000 * value / whole
        title = element("title", f"{name}: {written(value)}, {value / whole:.1%}")
        rects.append(
            element("rect", title, x=f"{left:.2f}", width=f"{wide:.2f}", height=30, class_=f"lux-k{kind}")
        )
        left += wide
    svg = element(
        "svg", *rects, viewBox="0 0 1000 30", preserveAspectRatio="none", class_="lux-split", role="img", aria_label="; ".join(f"{n} {v / whole:.1%}" for n, v, _ in parts),
    )  # fmt: skip
    legend = [
        element("li", element("i", class_=f"lux-k{kind}"), f"{name} {written(value)}, {value / whole:.1%}")
        for name, value, kind in parts
    ]
    return joined((svg, element("ul", *legend, class_="lux-legend")))


def number_classes() -> str:
    """The styles of classes that stand for numbers: shares, depths, the colours of lines."""
    parts = [f".lux-p{i}{{--lux-part:{i}%}}" for i in range(101)]
    parts += [f".lux-i{i}{{--lux-depth:{i}}}" for i in range(_DEEPEST + 1)]
    parts += [
        f".lux-c{i}{{background:{c}}}.lux-svg .lux-s{i}{{stroke:{c}}}.lux-svg .band.lux-s{i},.lux-svg .dot.lux-s{i}{{fill:{c}}}"
        for i, c in enumerate(COLOURS)
    ]
    return "".join(parts)


def _flame(node: Flame) -> list[Any]:
    return [node.name, node.value_ns, node.n, node.kind, [_flame(child) for child in node.children]]


def _part(part: Part) -> dict[str, Any]:
    values = [float(v) for v in part.values]
    return {"name": part.name, "path": part.path, "kind": part.kind, "values": values, "children": [_part(c) for c in part.children]}  # fmt: skip


def _line(line: Line) -> dict[str, Any]:
    more = {
        name: None if (v := getattr(line, name)) is None else numbers(v) for name in ("raw", "low", "high")
    }
    return {"name": line.name, "n": line.n, "x": numbers(line.x), "y": numbers(line.y), **more}


def _axis(axis: Axis) -> dict[str, Any]:
    numeric = axis.is_numeric
    values = [None if v is None else (_number(float(v)) if numeric else str(v)) for v in axis.values]
    return {"name": axis.name, "log": axis.log, "numeric": numeric, "values": values}


def numbers(values: Floats) -> list[float | None]:
    """For JSON: seven digits, and None for what is not finite."""
    return [_number(float(value)) for value in values]


def _number(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None
