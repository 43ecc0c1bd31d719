"""Operators as a table."""

from __future__ import annotations

from luxmeter.operators import Operators
from luxmeter.render import BYTES, DURATION, NUMBER, SHARE, Column, Table, counted

_SHOWN = 30  # rows of the table; a file gets all


def operators_table(found: Operators) -> Table:
    """The first ones, and below what part of the whole they are."""
    timed = any(case.total_ns is not None for case in found)
    columns = [
        Column("of the time" if found.whole[0] else "of the calls", SHARE),
        Column("calls", NUMBER),
        Column("time a call", DURATION, hidden="empty", goes=3),
        Column("operator", folds=24),
        Column("called with", is_signature=True, most=90, folds=24),
        Column("inputs", BYTES, goes=1),
        Column("line", hidden="empty", goes=2.5),
        Column("from", goes=2),
    ]
    rows = [
        [found.share(case), case.count, (case.total_ns or 0) / max(1, case.count) if timed else None,
         case.op, str(case.signature), case.size_bytes, _few(case.lines), ", ".join(case.where[:2])]
        for case in found[:_SHOWN]
    ]  # fmt: skip
    more = (
        [f"... and {len(found) - _SHOWN} more (all of them: --json or -o FILE)"]
        if len(found) > _SHOWN
        else []
    )
    return Table(columns, rows, notes=[*more, _covered(found), found.title])


def _few(lines: tuple[str, ...]) -> str:
    return ", ".join(lines[:2]) + (f" and {len(lines) - 2} more" if len(lines) > 2 else "")


def _covered(found: Operators) -> str:
    """What part of the trace, or of the file, the list is."""
    time_ns, calls = found.whole
    of_what = (
        f"of the time of all {counted(calls, 'call')} there"
        if time_ns
        else f"of all {counted(calls, 'call')} there"
    )
    shown = f"; the {_SHOWN} shown: {found[:_SHOWN].coverage:.1%}" if len(found) > _SHOWN else ""
    return f"these are {found.coverage:.1%} {of_what}{shown}"
