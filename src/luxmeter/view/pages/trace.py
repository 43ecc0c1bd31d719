"""What one HTML page shows of a trace: three tables, who called what, and one step as it went."""

from __future__ import annotations

import numpy as np

from luxmeter.calls import CallTable, CallTree, TraceResult, Window, typical_step
from luxmeter.render import Bar, Flame, PageTable, Timeline, page

MOST_BARS = 3000  # in a timeline: beyond, a browser is no longer quick
MOST_FLAMES = 4000
MOST_ROWS = 2000


def trace_page(result: TraceResult, *, title: str, window: Window) -> str:
    """The page's HTML, complete in itself. `window` is what the result was cut to."""
    cost = result.cost()
    table = result.table()
    totals = bool(result.recording.totals)
    facts = [
        f"{cost.calls:,} calls of {len(table):,} APIs",
        f"{cost.elapsed_ns / 1e9:.3f} s traced",
        cost.of_calls,
        cost.of_once,
        *([f"only a part: {window}"] if str(window) else []),
        *result.notes(),
    ]
    tables = [
        _table(name, result.table(by))
        for name, by in (("API", "api"), ("Signature", "signature"), ("Module", "module"))
    ]
    if totals:
        facts.append("totals only: no flame graph and no timeline")
    return page(
        title,
        facts=facts,
        tables=tables,
        flame=None if totals else _flame(result.tree()),
        timeline=None if totals else _timeline(result, window),
    )


def _table(name: str, table: CallTable) -> PageTable:
    details = any(row.detail for row in table)
    several = any(row.framework not in ("", "torch") for row in table)
    columns = [name, *(["framework"] if several else []), *(["of"] if details else []), "calls", "total ms", "self ms", "share %", "mean us", "p50 us",
               "p95 us", "max us", "first us"]  # fmt: skip
    rows = [
        [row.name, *([row.framework] if several else []), *([row.detail] if details else []), row.n, _scaled(row.total_ns, 1e6), _scaled(row.self_ns, 1e6),
         round(100 * row.share, 2), _scaled(row.mean_ns, 1e3), _scaled(row.p50_ns, 1e3), _scaled(row.p95_ns, 1e3),
         _scaled(row.max_ns, 1e3), _scaled(row.first_ns, 1e3)]
        for row in table.rows[:MOST_ROWS]
    ]  # fmt: skip
    return PageTable(name, columns, rows, left_out=max(0, len(table) - MOST_ROWS))


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value / scale, 3 if scale >= 1e6 else 1)


def _flame(tree: CallTree) -> Flame:
    """The tree without what is too small to be seen."""
    sizes = sorted((node.total_ns for _, node in tree.walk()), reverse=True)
    smallest = sizes[MOST_FLAMES] if len(sizes) > MOST_FLAMES else 0

    def build(node: CallTree) -> Flame:
        label = f"{node.name} ({node.path})" if node.path else node.name
        return Flame(
            label or "all", node.total_ns, node.n, [build(c) for c in node.children if c.total_ns > smallest]
        )

    return build(tree)


def _timeline(result: TraceResult, window: Window) -> Timeline:
    recording = result.recording
    events = recording.events
    at = np.flatnonzero(recording.of_program())
    what = "the chosen part" if window.start_s is not None or window.end_s is not None else "the whole trace"
    if what == "the whole trace":
        step = typical_step(result)
        if step is not None:
            start = events["start_ns"][at]
            at = at[
                (start >= step.start_ns) & (start < step.end_ns) & (events["process"][at] == step.process)
            ]
            what = f"one training step of {(step.end_ns - step.start_ns) / 1e6:.3f} ms (the median of all)"
    left_out = max(0, len(at) - MOST_BARS)
    at = np.sort(at[np.argsort(events["start_ns"][at], kind="stable")][:MOST_BARS])
    zero = int(events["start_ns"][at].min()) if len(at) else 0
    called = recording.process_names() if len(recording.processes) > 1 else []
    lanes: dict[str, list[Bar]] = {}
    for k in at.tolist():
        process = int(events["process"][k])
        lane = recording.processes[process].threads.get(int(events["thread"][k]), "?")
        lane += f" ({called[process]})" if called else ""
        words = recording.callables[int(events["callable"][k])]
        signature = recording.signatures[int(events["signature"][k])]
        lanes.setdefault(lane, []).append(
            Bar(words.shown, words.path or (str(signature) if signature else ""), int(events["start_ns"][k]) - zero,
                int(events["duration_ns"][k] + events["own_ns"][k]), int(events["depth"][k]))
        )  # fmt: skip
    return Timeline(what, lanes, left_out=left_out)
