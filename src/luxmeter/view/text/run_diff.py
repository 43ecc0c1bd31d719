"""Two runs side by side, for a terminal or for machines. Texts of the runs are made harmless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, Any

from luxmeter.described import told_apart
from luxmeter.experiment import ABSENT, CANNOT, Change, Explanation, RunDiff
from luxmeter.files import to_json
from luxmeter.plain_text import one_line, plain
from luxmeter.render import NUMBER, SHARE, Column, Table, counted, for_machines, long_span
from luxmeter.store import records
from luxmeter.view.text.runs import value_text, when_text

_MOST_LINES = 60


def as_record(diff: RunDiff, why: Explanation | None) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "a": {"id": diff.a.id, "name": diff.a.name, "state": diff.a.state},
        "b": {"id": diff.b.id, "name": diff.b.name, "state": diff.b.state},
        "params": [_change(change) for change in diff.params],
        "command": [_change(change) for change in diff.command],
        "code": [asdict(file) for file in diff.code],
        "environment": [_change(change) for change in diff.environment],
        "metrics": [{**asdict(m), "difference": m.difference, "relative": m.relative} for m in diff.metrics],
        "explanation": None if why is None else asdict(why),
    }


def write_diff(
    diff: RunDiff, why: Explanation | None, out: IO[str], *, full: bool = False, system: bool = False
) -> None:
    """Parameters, command, code, environment, metrics, and which of them plausibly explains the difference."""
    for letter, run in (("A", diff.a), ("B", diff.b)):
        when = f"{when_text(run.created_ns)}, took {long_span(run.duration)}"
        out.write(f"{letter}  {run.id}  {one_line(run.name)}  {run.state}  {when}\n")
    _section(out, "parameters", diff.params)
    _section(out, "command", diff.command)
    _write_code(diff, out, full=full)
    _section(out, "environment", diff.environment, most=None if full else 20)
    _write_metrics(diff, out, system=system)
    if why is not None:
        _write_explanation(why, out, full=full)


def _section(out: IO[str], title: str, changes: Sequence[Change], *, most: int | None = None) -> None:
    if not changes:
        out.write(f"\n{title}: the same\n")
        return
    out.write(f"\n{title}\n")
    changes_table(changes, most=most).print(out)


def changes_table(changes: Sequence[Change], *, most: int | None = None) -> Table:
    """What differs, in A and in B."""
    shown = changes if most is None else changes[:most]
    rows = [[f"  {c.name}", *told_apart(c.a, c.b, _value_text)] for c in shown]
    rest = len(changes) - len(shown)
    notes = [f"  ... and {rest} more (--full)"] if rest else []
    return Table([Column(""), Column("A"), Column("B")], rows, notes=notes)


def _write_code(diff: RunDiff, out: IO[str], *, full: bool) -> None:
    if not diff.code_known:
        out.write("\ncode: not kept by both\n")
        return
    if not diff.code:
        out.write("\ncode: the same\n")
        return
    out.write("\ncode\n")
    left = 10**9 if full else _MOST_LINES
    for file in diff.code:
        out.write(f"  {one_line(file.path)}: {file.kind}, +{file.added} -{file.removed} lines\n")
        lines = plain(file.text).splitlines()
        out.write("".join(f"    {line}\n" for line in lines[:left]))
        if len(lines) > left:
            out.write(f"    ... {counted(len(lines) - left, 'line')} more (--full)\n")
        left = max(0, left - len(lines))


def _write_metrics(diff: RunDiff, out: IO[str], *, system: bool) -> None:
    table = metric_changes(diff, system=system)
    if not table.rows:
        out.write("\nmetrics: none\n")
        return
    out.write("\nmetrics, last values\n")
    table.print(out)


def metric_changes(diff: RunDiff, *, system: bool = False) -> Table:
    """Every metric in A and in B."""
    shown = [m for m in diff.metrics if system or not m.key.startswith(records.SYSTEM)]
    columns = [
        Column(""),
        Column("A", NUMBER),
        Column("B", NUMBER),
        Column("B - A", NUMBER, form="+.4g"),
        Column("", SHARE, form="+.1%"),
        Column("A from .. to", goes=1),
        Column("B from .. to", goes=1),
    ]
    rows = []
    for m in shown:
        best = [f"{b[0]:.4g} .. {b[1]:.4g}" if b else None for b in (m.a_best, m.b_best)]
        rows.append([f"  {m.key}", value_text(m.a), value_text(m.b), m.difference, m.relative, *best])
    return Table(columns, rows)


def _write_explanation(why: Explanation, out: IO[str], *, full: bool) -> None:
    out.write(f"\nwhy {one_line(why.metric)} differs\n" if why.differs else "\nwhy\n")
    out.write(f"  {one_line(why.conclusion)}\n")
    out.write(f"  chance: {one_line(why.chance.words)}\n")
    table = candidates_table(why, full=full)
    if table.rows:
        table.print(out)
    else:
        out.write("".join(f"{note}\n" for note in table.notes))


def candidates_table(why: Explanation, *, full: bool = False) -> Table:
    """What may have made the difference, the most plausible first."""
    shown = [c for c in why.candidates if full or c.weight > CANNOT]
    rows = [[f"  {place}.", c.kind, c.what, c.evidence or c.why] for place, c in enumerate(shown, 1)]
    hidden = len(why.candidates) - len(shown)
    notes = [f"  and {hidden} that can hardly matter (--full)"] if hidden else []
    return Table([Column(""), Column("kind"), Column("what differs"), Column("because")], rows, notes=notes)


def _change(change: Change) -> dict[str, Any]:
    one, two = _text(change.a), _text(change.b)
    if repr(for_machines(one)) == repr(
        for_machines(two)
    ):  # a list and a tuple, a path and a text of that name
        one, two = to_json(one), to_json(two)
    return {"kind": change.kind, "name": change.name, "a": one, "b": two}


def _value_text(value: Any) -> str:
    return "None" if value is None else value_text(value)


def _text(value: Any) -> Any:
    return None if value is ABSENT else value
