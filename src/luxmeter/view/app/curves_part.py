"""Curves on a page of the app: which metrics, how many at once, a line a run or a band a group. What is shown stands in the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from luxmeter.experiment import curves_of, line_of, lines_of
from luxmeter.render import Chart, Html, Line, charts_html, counted, element, thinned
from luxmeter.store import Run, records
from luxmeter.view.app.runs_list import Query
from luxmeter.view.app.shell import quiet
from luxmeter.view.pages.plots import BANDS

CHARTS = 12  # on a page


@dataclass(frozen=True)
class Chosen:
    """What is drawn; it is the address. `kept`: what else stands in it."""

    at: str
    metrics: str = ""  # words that a metric's name has
    page: int = 1
    by: str = ""  # group by: "", "repeats" or a field
    kept: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, at: str, query: Query, kept: Sequence[str] = ()) -> Chosen:
        """From an address."""
        page = query.get("page", "1")
        others = tuple((name, value) for name in kept for value in query.getlist(name))
        return cls(at, query.get("metrics", ""), int(page) if page.isdecimal() and 0 < int(page) < 10**6 else 1, query.get("by", ""), others)  # fmt: skip

    def address(self, page: int) -> str:
        """The same on another page."""
        given = [("metrics", self.metrics), ("by", self.by), ("page", str(page) if page > 1 else "")]
        said = urlencode([*self.kept, *((k, v) for k, v in given if v)])
        return self.at + (f"?{said}" if said else "")

    def those_of(self, known: Sequence[str]) -> list[str]:
        """The metrics that it asks for; the machine's own only when a word names them."""
        words = self.metrics.lower().split()
        mine = [key for key in known if words or not key.startswith(records.SYSTEM)]
        return [key for key in mine if all(word in key.lower() for word in words)]

    def of_page(self, keys: Sequence[str]) -> Sequence[str]:
        """Those of its page."""
        return keys[(self.page - 1) * CHARTS : self.page * CHARTS]


def known_metrics(runs: Sequence[Run]) -> list[str]:
    """All that one of them logged."""
    return list(dict.fromkeys(key for run in runs for key in run.summary))


def curves_part(
    chosen: Chosen,
    known: Sequence[str],
    make: Callable[[Sequence[str]], list[Chart]],
    *,
    groups: Sequence[str] = (),
    one_run: bool = False,
) -> Html | None:
    """Which metrics, and their charts. `make(keys)` gives one a metric."""
    if not known:
        return None
    keys = chosen.those_of(known)
    shown = chosen.of_page(keys)
    charts = make(shown) if shown else []
    nothing = (
        None
        if shown
        else quiet(f"No metric is called {chosen.metrics!r}.")
        if chosen.metrics
        else quiet("There are no more metrics.")
        if keys
        else quiet("It logged no metric of its own; the machine's are found by the word system.")
    )
    return element(
        "section",
        element("h2", "Curves"),
        _form(chosen, groups) if len(known) > 1 or groups else None,
        _pages(chosen, len(keys)),
        nothing,
        charts_html(charts, keys=[[c.title] for c in charts] if one_run else ()),
        aria_label="Curves",
    )  # fmt: skip


def charts_of(runs: Sequence[Run], keys: Sequence[str], *, by: str = "") -> list[Chart]:
    """A chart a metric: a line a run, or the mean of a group with its band."""
    grouped = by != ""
    sets = curves_of(runs, list(keys), repeats=by == "repeats", by="" if by == "repeats" else by)
    band = "ci" if grouped else "none"
    for key, lines in sets.items():
        if len(runs) == 1 and not any(series for _, series in lines):
            runs[0].metric(key)  # says why it cannot be read
    return [
        Chart(key, "step", [thinned(line) for line in lines], note=BANDS["ci"] if grouped else "")
        for key, lines in lines_of(sets, band=band).items()
    ]


def part_of(run: Run, key: str, start: float | None, end: float | None) -> Line:
    """The points of a metric between two steps, reduced so that peaks survive."""
    name, series = curves_of([run], [key])[key][0]
    line = line_of(name, series, smoothing=0.0, band="none", x="step")
    inside = (line.x >= (-1e300 if start is None else start)) & (line.x <= (1e300 if end is None else end))
    return thinned(replace(line, x=line.x[inside], y=line.y[inside]))


def _form(chosen: Chosen, groups: Sequence[str]) -> Html:
    kept = [element("input", type="hidden", name=name, value=value) for name, value in chosen.kept]
    names = {"": "each run", "repeats": "repeats (all but the seed)"}
    options = [
        element("option", names.get(g, g), value=g, selected=g == chosen.by) for g in dict.fromkeys(groups)
    ]
    return element(
        "form",
        *kept,
        element("label", "metrics ", element("input", name="metrics", type="search", value=chosen.metrics, placeholder="words of a name: loss")),
        element("label", "a line for ", element("select", *options, name="by")) if options else None,
        element("button", "show"),
        action=chosen.at, class_="lux-bar",
    )  # fmt: skip


def _pages(chosen: Chosen, n: int) -> Html | None:
    pages = -(-n // CHARTS)
    if pages < 2:
        return None
    return element(
        "nav",
        element("a", "before", href=chosen.address(chosen.page - 1)) if chosen.page > 1 else None,
        element("span", f"page {chosen.page} of {pages}, {counted(n, 'metric')}", class_="lux-quiet"),
        element("a", "next", href=chosen.address(chosen.page + 1)) if chosen.page < pages else None,
        class_="lux-bar", aria_label="Pages of curves",
    )  # fmt: skip
