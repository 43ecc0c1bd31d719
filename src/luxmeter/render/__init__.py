"""Values -> terminal, HTML, SVG. Knows no source: it is given what to show and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.render.amounts import amount as amount
    from luxmeter.render.amounts import long_span as long_span
    from luxmeter.render.amounts import number as number
    from luxmeter.render.amounts import size as size
    from luxmeter.render.amounts import span as span
    from luxmeter.render.charts import chart_page as chart_page
    from luxmeter.render.curves import Axis as Axis
    from luxmeter.render.curves import Chart as Chart
    from luxmeter.render.curves import Floats as Floats
    from luxmeter.render.curves import Line as Line
    from luxmeter.render.curves import Parallel as Parallel
    from luxmeter.render.curves import is_even_log as is_even_log
    from luxmeter.render.curves import smooth as smooth
    from luxmeter.render.curves import thinned as thinned
    from luxmeter.render.figures import save_figure as save_figure
    from luxmeter.render.html_page import Bar as Bar
    from luxmeter.render.html_page import Flame as Flame
    from luxmeter.render.html_page import PageTable as PageTable
    from luxmeter.render.html_page import Timeline as Timeline
    from luxmeter.render.html_page import page as page
    from luxmeter.render.json_text import for_machines as for_machines
    from luxmeter.render.json_text import print_json as print_json
    from luxmeter.render.plain_text import one_line as one_line
    from luxmeter.render.plain_text import plain as plain
    from luxmeter.render.spark import sparkline as sparkline
    from luxmeter.render.table import AMOUNT as AMOUNT
    from luxmeter.render.table import BYTES as BYTES
    from luxmeter.render.table import DURATION as DURATION
    from luxmeter.render.table import NUMBER as NUMBER
    from luxmeter.render.table import SHARE as SHARE
    from luxmeter.render.table import TEXT as TEXT
    from luxmeter.render.table import Column as Column
    from luxmeter.render.table import Table as Table
    from luxmeter.render.table import terminal_width as terminal_width
    from luxmeter.render.table import write_lines as write_lines

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "amount": "amounts",
        "long_span": "amounts",
        "number": "amounts",
        "size": "amounts",
        "span": "amounts",
        "chart_page": "charts",
        "Axis": "curves",
        "Chart": "curves",
        "Floats": "curves",
        "Line": "curves",
        "Parallel": "curves",
        "is_even_log": "curves",
        "smooth": "curves",
        "thinned": "curves",
        "save_figure": "figures",
        "Bar": "html_page",
        "Flame": "html_page",
        "PageTable": "html_page",
        "Timeline": "html_page",
        "page": "html_page",
        "for_machines": "json_text",
        "print_json": "json_text",
        "one_line": "plain_text",
        "plain": "plain_text",
        "sparkline": "spark",
        "AMOUNT": "table",
        "BYTES": "table",
        "Column": "table",
        "DURATION": "table",
        "NUMBER": "table",
        "SHARE": "table",
        "TEXT": "table",
        "Table": "table",
        "terminal_width": "table",
        "write_lines": "table",
    },
)
