"""What every page of the app has around it, and what several of them say alike. A page is complete without script."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

from luxmeter.errors import LuxmeterError
from luxmeter.plain_text import one_line, plain
from luxmeter.render import Html, card, element, joined, long_span, state_html
from luxmeter.store import Run
from luxmeter.view.text.runs import when_text
from luxmeter.view.web import linked, whole_style


@cache
def assets() -> dict[str, tuple[str, str]]:
    """What pages load: address -> type and text. The address holds the content's hash, so a browser keeps it for good."""
    made = {}
    for name, kind, text in (("style.css", "text/css", whole_style()), ("app.js", "text/javascript", linked("app"))):  # fmt: skip
        made[f"{hashlib.sha256(text.encode()).hexdigest()[:16]}/{name}"] = (kind, text)
    return made


def shell(title: str, body: str, *, edit: bool = False) -> str:
    """A whole page."""
    style, script = (f"/web/{address}" for address in assets())
    find = element("input", type="search", name="where", placeholder="find runs: a name, or param.lr > 0.1 and metric.acc > 0.9", aria_label="Find runs")  # fmt: skip
    nav = element(
        "nav",
        element("a", "luxmeter", href="/", class_="lux-brand"),
        element("a", "runs", href="/runs"),
        element("a", "traces", href="/traces"),
        element("form", find, action="/runs", class_="lux-find"),
        element(
            "span",
            "editing" if edit else "read-only",
            class_="lux-quiet",
            title="luxmeter ui --edit: notes, tags and trainings may be changed",
        ),
        class_="lux-nav",
        aria_label="luxmeter",
    )
    main = element("main", body, class_="lux-main", id_="main", data_title=title)
    return "".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            element("title", f"{title} - luxmeter"),
            f'<link rel="stylesheet" href="{style}"><link rel="icon" href="data:,">',
            f'<script type="module" src="{script}"></script></head><body>',
            nav,
            main,
            "</body></html>\n",
        )
    )


def error_page(said: str) -> Html:
    """One clear sentence."""
    return joined((element("h1", "This cannot be shown"), error(said)))


def error(said: str) -> Html:
    """A sentence of what is wrong."""
    return element("p", plain(said), class_="lux-error", role="alert")


def quiet(said: str) -> Html:
    """A sentence beside."""
    return element("p", said, class_="lux-quiet")


def readable(name: str, make: Callable[[], str | None]) -> str | None:
    """What cannot be read says so in its place, and the rest is there."""
    try:
        return make()
    except Exception as wrong:  # noqa: BLE001  (whatever damaged bytes make of their readers)
        said = str(wrong) if isinstance(wrong, LuxmeterError) else f"{type(wrong).__name__}: {wrong}"
        return card(name, error(f"This cannot be read: {said}"))


def run_link(run: Run) -> Html:
    """Its name and id, leading to its page."""
    return joined(
        (
            element("a", f"{one_line(run.name)} {run.id}", href=f"/run/{run.id}"),
            Html(" "),
            state_html(run.state),
            Html(" "),
            element("span", f"{when_text(run.created_ns)}, {long_span(run.duration)}", class_="lux-quiet"),
        )
    )


def run_head(run: Run, *, here: str, progress: str = "") -> Html:
    """Name, id and state, and the parts of it that have pages."""
    kinds = {result.kind for result in run.results()}
    places = {"": "overview", "trace": "trace", "code": "code", "files": "files", "log": "output"}
    if "trace" not in kinds:
        del places["trace"]
    links = [
        element("a", name, href=f"/run/{run.id}" + (f"/{place}" if place else ""), aria_current="page" if place == here else None)
        for place, name in places.items()
    ]  # fmt: skip
    return joined(
        (
            element("h1", f"{one_line(run.name)} ", element("small", run.id, class_="lux-quiet"), Html(" "), state_html(run.state, id_="state"),
                    Html(" "), element("small", progress, class_="lux-quiet", id_="progress")),
            element("nav", *links, class_="lux-bar", aria_label="Parts of the run"),
        )
    )  # fmt: skip
