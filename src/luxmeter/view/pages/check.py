"""A check as one HTML page that needs nothing else: what is wrong with its scripts, all cases, what was excused."""

from __future__ import annotations

from collections.abc import Sequence

from luxmeter.operators import CheckResult
from luxmeter.render import DURATION, NUMBER, TEXT, Column, Html, Table, card, element, joined, table_html
from luxmeter.view.web import page

MOST_ROWS = 5000
_MOST_SCRIPTS = 200
_NUMBERS = {"round", "sample", "seed", "error", "allowed", "rounds", "samples", "wrong", "worst / allowed", "elements"}  # fmt: skip
_SIGNATURES = {"smallest input", "called with", "largest input"}


def check_page(result: CheckResult) -> str:
    """The page's HTML, complete in itself."""
    machine, packages = result.environment.get("machine", {}), result.environment.get("packages", {})
    facts = [
        result.title,
        f"torch {packages.get('torch', 'unknown')} on {machine.get('processor', 'an unknown processor')}, seed {result.options.get('seed')}",
        f"{result.taken_s:.0f} s",
    ]
    return page("Does it compute right?", check_html(result), facts=facts)


def check_html(result: CheckResult) -> Html:
    """Errors, their scripts, all cases, what was excused: as parts of a page."""
    errors = result.errors
    wrong = [
        [row.name, row.status, row.dtype, row.device, row.backend, e.part, e.error, e.allowed, e.reason, e.shrunk, e.signature,
         e.round, e.sample, e.seed]
        for row, e in errors
    ]  # fmt: skip
    cases = [
        [r.name, r.status, r.dtype, r.device, r.backend, r.failed, r.samples, r.rounds, round(r.worst, 4), r.reason,
         None if r.time_us is None else r.time_us * 1e3, r.elements, r.largest]
        for r in result.rows
    ]  # fmt: skip
    scripts = [
        element(
            "details",
            element(
                "summary", f"{row.name} [{row.dtype}, {row.backend}], round {e.round}: {e.part or row.status}"
            ),
            *(element("pre", text, class_="lux-code") for text in (e.script, e.traceback) if text),
        )
        for row, e in errors[:_MOST_SCRIPTS]
        if e.script or e.traceback
    ]
    heads = ["case", "status", "dtype", "device", "backend"]
    return joined(
        (
            _card("Errors", [*heads, "part", "error", "allowed", "reason", "smallest input", "called with", "round", "sample", "seed"], wrong),
            card("Scripts and tracebacks", *scripts) if scripts else None,
            _card("Cases", [*heads, "wrong", "samples", "rounds", "worst / allowed", "reason", "time", "elements", "largest input"], cases),
            _card("Excused", ["samples", "reason"], [[n, why] for why, n in result.excused().items()]),
        )
    )  # fmt: skip


def _card(title: str, names: list[str], rows: Sequence[Sequence[object]]) -> Html | None:
    if not rows:
        return None
    kinds = {"time": DURATION, **dict.fromkeys(_NUMBERS, NUMBER)}
    columns = [
        Column(name, kinds.get(name, TEXT), hidden="empty", is_signature=name in _SIGNATURES)
        for name in names
    ]
    notes = [f"{len(rows) - MOST_ROWS:,} more are in the result"] if len(rows) > MOST_ROWS else []
    return card(title, table_html(Table(columns, rows[:MOST_ROWS], notes=notes)))
