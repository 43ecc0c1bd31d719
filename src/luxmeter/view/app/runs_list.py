"""The list of runs: filtered, sorted and paged on the server; what is shown stands in the address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

from luxmeter.errors import LuxmeterError
from luxmeter.experiment import Runs, runs
from luxmeter.render import TEXT, Html, Table, element, joined, state_html, table_html
from luxmeter.store import RunRow, parse_field, records
from luxmeter.view.app.shell import error, quiet
from luxmeter.view.text.runs import default_columns, rows_table, short_ids

PAGE = 100
_OWN = ("id", "name", "state", "created", "ended", "duration", "tag", "note", "host", "archived")
_OFFERED = 60  # parameters and metrics in the list of columns; others can be named


class Query(Protocol):
    """The part of an address behind `?`."""

    def get(self, name: str, default: str, /) -> str:
        """One value."""

    def getlist(self, name: str, /) -> list[str]:
        """All of a name."""


@dataclass(frozen=True)
class Asked:
    """What a list was asked for; it is the address."""

    where: str = ""
    sort: str = "-created"
    columns: tuple[str, ...] = ()
    page: int = 1
    archived: bool = False

    @classmethod
    def of(cls, query: Query) -> Asked:
        """From an address; a page that is no number is the first."""
        page = query.get("page", "1")
        named = [part.strip() for text in query.getlist("columns") for part in text.split(",")]
        return cls(
            query.get("where", ""), query.get("sort", "") or "-created", tuple(dict.fromkeys(filter(None, named))),
            int(page) if page.isdecimal() and 0 < int(page) < 10**7 else 1, query.get("archived", "") == "1",
        )  # fmt: skip

    def address(self, **changes: str | int) -> str:
        """The same with other values."""
        values = {"where": self.where, "sort": self.sort, "columns": ",".join(self.columns), "page": self.page, "archived": "1" if self.archived else ""} | changes  # fmt: skip
        given = {k: v for k, v in values.items() if v and (k, v) not in (("sort", "-created"), ("page", 1))}
        return "/runs" + (f"?{urlencode(given)}" if given else "")


def rows_html(rows: Sequence[RunRow], columns: Sequence[str] = ()) -> Html:
    """Runs in a table that is sorted where it is looked at; ids, by their beginnings, and names lead to their pages."""
    columns = columns or default_columns(rows)
    made, short = rows_table(rows, columns), short_ids([row.id for row in rows])
    cells = [
        [short[row.id] if name == "id" else cell for name, cell in zip(columns, line, strict=True)]
        for row, line in zip(rows, made.rows, strict=True)
    ]

    def link(row: int, column: int, _: str) -> str | None:
        return f"/run/{rows[row].id}" if columns[column] in ("id", "name") else None

    return table_html(Table(made.columns, cells), links=link)


def runs_page(asked: Asked, lab: Path) -> Html:
    """A filter that cannot be read is told above the list."""
    try:
        found = runs(asked.where, sort=asked.sort, archived=None if asked.archived else False, lab=lab)
        first = (asked.page - 1) * PAGE
        rows = found[first : first + PAGE].rows
        chosen = list(asked.columns) or default_columns(rows)
        body = _body(asked, found, rows, chosen)
    except LuxmeterError as wrong:
        return joined((element("h1", "Runs"), _form(asked, [], []), error(str(wrong))))
    return joined((element("h1", "Runs"), _form(asked, rows, chosen), body))


def _form(asked: Asked, rows: Sequence[RunRow], chosen: Sequence[str]) -> Html:
    where = element("input", name="where", value=asked.where, type="search", placeholder="mnist, or: param.lr > 0.1 and (metric.acc.max >= 0.9 or tag = best) and not state = failed", class_="lux-filter")  # fmt: skip
    return element(
        "form",
        element("label", "filter ", where, class_="lux-wide"),
        element("input", type="hidden", name="sort", value=asked.sort) if asked.sort != "-created" else None,
        element("label", element("input", name="archived", value="1", type="checkbox", checked=asked.archived), " archived, too"),
        element("button", "show"),
        _columns(asked, rows, chosen),
        action="/runs", class_="lux-bar",
    )  # fmt: skip


def _columns(asked: Asked, rows: Sequence[RunRow], chosen: Sequence[str]) -> Html:
    """Boxes for what these runs have, and a line for what else is wanted."""
    params = dict.fromkeys(f"param.{key}" for row in rows for key in row.params)
    metrics = dict.fromkeys(
        f"metric.{k}" for row in rows for k in row.metrics if not k.startswith(records.SYSTEM)
    )
    offered = [*_OWN, *[*params, *metrics][:_OFFERED]]
    picked = dict.fromkeys(asked.columns)
    boxes = [
        element("label", element("input", type="checkbox", name="columns", value=name, checked=name in picked), f" {name}")
        for name in dict.fromkeys([*picked, *offered])
    ]  # fmt: skip
    other = element("label", "others ", element("input", name="columns", size=40, placeholder="metric.acc.max, param.optim.lr"))  # fmt: skip
    said = f"columns: {', '.join(chosen)}" if asked.columns else "columns: those that tell the runs apart"
    return element(
        "details",
        element("summary", said),
        element("div", *boxes, other, element("button", "show"), class_="lux-bar"),
    )


def _body(asked: Asked, found: Runs, rows: Sequence[RunRow], chosen: Sequence[str]) -> Html:
    if not len(found):
        none = "No run fulfils this." if asked.where else "No run is kept here yet: luxmeter run script.py makes one."  # fmt: skip
        return quiet(none)
    pages = -(-len(found) // PAGE)
    if not rows:
        return joined((quiet(f"There are {pages} pages."), element("a", "the first", href=asked.address(page=1))))  # fmt: skip
    steps = [
        element("a", "before", href=asked.address(page=asked.page - 1), rel="prev") if asked.page > 1 else None,
        element("span", f"page {asked.page:,} of {pages:,}, {len(found):,} {'run' if len(found) == 1 else 'runs'}", class_="lux-quiet"),
        element("a", "next", href=asked.address(page=asked.page + 1), rel="next") if asked.page < pages else None,
    ]  # fmt: skip
    all_of_them = urlencode({"where": asked.where, **({"archived": "1"} if asked.archived else {})})
    compare = element(
        "form",
        element("button", "compare the chosen"),
        element("a", f"compare all {len(found):,}", href=f"/compare?{all_of_them}") if len(found) > 1 else None,
        action="/compare", id_="compare", class_="lux-bar",
    )  # fmt: skip
    return joined(
        (element("nav", *steps, class_="lux-bar", aria_label="Pages"), compare, _table(asked, rows, chosen))
    )


def _table(asked: Asked, rows: Sequence[RunRow], chosen: Sequence[str]) -> Html:
    table = rows_table(rows, chosen)
    heads = [element("th", element("span", "chosen", class_="lux-unseen"), scope="col")]
    for name, column in zip(chosen, table.columns, strict=True):
        field = "tag" if name == "tags" else name
        falling = asked.sort == f"-{field}"
        to = field if falling or (column.kind is TEXT and asked.sort != field) else f"-{field}"
        mark = "descending" if falling else "ascending" if asked.sort == field else None
        link = element("a", column.name, href=asked.address(sort=to, page=1), class_="lux-sort", title=f"sort by {to}")  # fmt: skip
        heads.append(
            element(
                "th",
                link if parse_field(field).kind != "tag" else column.name,
                scope="col",
                aria_sort=mark,
                class_=_side(column.kind is TEXT),
            )
        )
    lines, short = [], short_ids([row.id for row in rows])
    for row, cells in zip(rows, table.cells, strict=True):
        box = element("input", type="checkbox", name="run", value=row.id, form="compare", aria_label=f"choose {row.id}")  # fmt: skip
        made = [element("td", box)]
        for name, column, text in zip(chosen, table.columns, cells, strict=True):
            shown: str = text
            if name in ("id", "name"):
                shown = element("a", short[row.id] if name == "id" else text, title=row.id if name == "id" else None, href=f"/run/{row.id}")  # fmt: skip
            shown = state_html(text) if name == "state" else shown
            made.append(
                element(
                    "td",
                    shown,
                    class_=("w" if column.kind is TEXT else "n") + (" lux-none" if text == "-" else ""),
                    title=text if len(text) > 40 else None,
                )
            )
        lines.append(element("tr", *made))
    grid = element("table", element("thead", element("tr", *heads)), element("tbody", *lines))
    return element("div", element("div", grid, class_="lux-scroll"), class_="lux-table")


def _side(is_text: bool) -> str | None:
    return None if is_text else "n"
