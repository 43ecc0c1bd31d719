"""One self-contained HTML page: tables that sort and filter, a flame graph, a timeline. Knows no source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PageTable:
    """Rows under columns; a number is shown to the right and sorted as one."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    left_out: int = 0


@dataclass(frozen=True)
class Flame:
    """A node of a flame graph."""

    name: str
    value_ns: int
    n: int = 1
    children: Sequence[Flame] = field(default_factory=list)


@dataclass(frozen=True)
class Bar:
    """One span of time in a lane."""

    name: str
    detail: str
    start_ns: int
    duration_ns: int
    depth: int


@dataclass(frozen=True)
class Timeline:
    """Spans of time, in lanes."""

    title: str
    lanes: Mapping[str, Sequence[Bar]]
    left_out: int = 0


def page(
    title: str,
    *,
    facts: Sequence[str] = (),
    tables: Sequence[PageTable] = (),
    flame: Flame | None = None,
    timeline: Timeline | None = None,
) -> str:
    """The HTML. It loads nothing: styles, script and data are in it."""
    data = {
        "tables": [{"name": t.name, "columns": list(t.columns), "rows": [list(r) for r in t.rows], "leftOut": t.left_out}
                   for t in tables],
        "flame": _flame(flame) if flame is not None else None,
        "timeline": _timeline(timeline) if timeline is not None else None,
    }  # fmt: skip
    here = files("luxmeter.render")
    style, script, body = (here.joinpath(n).read_text("utf-8") for n in ("page.css", "page.js", "page.html"))
    # "<" is written as an escape: no text of the data can end the script element.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace(
        "<", "\\u003c"
    )
    said = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    for mark, value in (
        ("@title@", escape(title)),
        ("@facts@", said),
        ("@style@", style),
        ("@script@", script),
        ("@data@", text),
    ):
        body = body.replace(mark, value, 1) if mark != "@title@" else body.replace(mark, value)
    return body


def _flame(node: Flame) -> list[Any]:
    return [node.name, node.value_ns, node.n, [_flame(child) for child in node.children]]


def _timeline(timeline: Timeline) -> dict[str, Any]:
    words: dict[str, int] = {}

    def number(word: str) -> int:
        return words.setdefault(word, len(words))

    lanes = [
        {
            "name": name,
            "bars": [[number(b.name), number(b.detail), b.start_ns, b.duration_ns, b.depth] for b in bars],
        }
        for name, bars in timeline.lanes.items()
    ]
    return {"title": timeline.title, "lanes": lanes, "words": list(words), "leftOut": timeline.left_out}
