"""Values -> terminal, HTML, SVG. Knows no source: it is given what to show and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.render.amounts import amount as amount
    from luxmeter.render.amounts import counted as counted
    from luxmeter.render.amounts import long_span as long_span
    from luxmeter.render.amounts import number as number
    from luxmeter.render.amounts import size as size
    from luxmeter.render.amounts import span as span
    from luxmeter.render.curves import Axis as Axis
    from luxmeter.render.curves import Chart as Chart
    from luxmeter.render.curves import Floats as Floats
    from luxmeter.render.curves import Line as Line
    from luxmeter.render.curves import Parallel as Parallel
    from luxmeter.render.curves import is_even_log as is_even_log
    from luxmeter.render.curves import smooth as smooth
    from luxmeter.render.curves import thinned as thinned
    from luxmeter.render.figures import save_figure as save_figure
    from luxmeter.render.html import Bar as Bar
    from luxmeter.render.html import Flame as Flame
    from luxmeter.render.html import Html as Html
    from luxmeter.render.html import Part as Part
    from luxmeter.render.html import Timeline as Timeline
    from luxmeter.render.html import bars_html as bars_html
    from luxmeter.render.html import card as card
    from luxmeter.render.html import chart_html as chart_html
    from luxmeter.render.html import charts_html as charts_html
    from luxmeter.render.html import component as component
    from luxmeter.render.html import contents as contents
    from luxmeter.render.html import data_block as data_block
    from luxmeter.render.html import element as element
    from luxmeter.render.html import flame_html as flame_html
    from luxmeter.render.html import joined as joined
    from luxmeter.render.html import number_classes as number_classes
    from luxmeter.render.html import numbers as numbers
    from luxmeter.render.html import pairs as pairs
    from luxmeter.render.html import parallel_html as parallel_html
    from luxmeter.render.html import state_html as state_html
    from luxmeter.render.html import table_html as table_html
    from luxmeter.render.html import tabs as tabs
    from luxmeter.render.html import text_area as text_area
    from luxmeter.render.html import timeline_html as timeline_html
    from luxmeter.render.html import tree_html as tree_html
    from luxmeter.render.html import treemap_html as treemap_html
    from luxmeter.render.json_text import for_machines as for_machines
    from luxmeter.render.json_text import print_json as print_json
    from luxmeter.render.reprs import charts_repr as charts_repr
    from luxmeter.render.reprs import pre_repr as pre_repr
    from luxmeter.render.reprs import repr_html as repr_html
    from luxmeter.render.signatures import signature_text as signature_text
    from luxmeter.render.spark import sparkline as sparkline
    from luxmeter.render.svg import chart_svg as chart_svg
    from luxmeter.render.table import AMOUNT as AMOUNT
    from luxmeter.render.table import BYTES as BYTES
    from luxmeter.render.table import DURATION as DURATION
    from luxmeter.render.table import NUMBER as NUMBER
    from luxmeter.render.table import SHARE as SHARE
    from luxmeter.render.table import TEXT as TEXT
    from luxmeter.render.table import Column as Column
    from luxmeter.render.table import Table as Table
    from luxmeter.render.table import markdown as markdown
    from luxmeter.render.table import markdown_text as markdown_text
    from luxmeter.render.table import terminal_width as terminal_width
    from luxmeter.render.table import write_lines as write_lines

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "amount": "amounts",
        "counted": "amounts",
        "long_span": "amounts",
        "number": "amounts",
        "size": "amounts",
        "span": "amounts",
        "Axis": "curves",
        "Chart": "curves",
        "Floats": "curves",
        "Line": "curves",
        "Parallel": "curves",
        "is_even_log": "curves",
        "smooth": "curves",
        "thinned": "curves",
        "save_figure": "figures",
        "Bar": "html",
        "Flame": "html",
        "Html": "html",
        "Part": "html",
        "Timeline": "html",
        "bars_html": "html",
        "card": "html",
        "chart_html": "html",
        "charts_html": "html",
        "component": "html",
        "contents": "html",
        "data_block": "html",
        "element": "html",
        "flame_html": "html",
        "joined": "html",
        "number_classes": "html",
        "numbers": "html",
        "pairs": "html",
        "parallel_html": "html",
        "state_html": "html",
        "table_html": "html",
        "tabs": "html",
        "text_area": "html",
        "timeline_html": "html",
        "tree_html": "html",
        "treemap_html": "html",
        "for_machines": "json_text",
        "print_json": "json_text",
        "charts_repr": "reprs",
        "pre_repr": "reprs",
        "repr_html": "reprs",
        "signature_text": "signatures",
        "sparkline": "spark",
        "chart_svg": "svg",
        "AMOUNT": "table",
        "BYTES": "table",
        "Column": "table",
        "DURATION": "table",
        "NUMBER": "table",
        "SHARE": "table",
        "TEXT": "table",
        "Table": "table",
        "markdown": "table",
        "markdown_text": "table",
        "terminal_width": "table",
        "write_lines": "table",
    },
)
