"""What a page shows of a trace: how a step splits, who called what, the calls in tables, and one step as it went."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from luxmeter.calls import (
    KINDS,
    OUTSIDE,
    RECORDING,
    SECTION,
    CallTable,
    CallTree,
    Step,
    Steps,
    TraceResult,
    Window,
    first_calls,
    kind_of,
)
from luxmeter.render import (
    BYTES,
    DURATION,
    NUMBER,
    SHARE,
    Bar,
    Column,
    Flame,
    Html,
    Table,
    Timeline,
    bars_html,
    card,
    element,
    flame_html,
    joined,
    signature_text,
    span,
    table_html,
    tabs,
    timeline_html,
)
from luxmeter.view.web import page

MOST_BARS = 3000  # in a timeline: beyond, a browser is no longer quick
MOST_FLAMES = 4000
MOST_ROWS = 2000
_DRAWN = ("API", "Signature", "Module")  # by what the graphs name their bars
_INDENT = re.compile("^ +")
_SPARK = re.compile("[\u2581-\u2588][\u2581-\u2588 ]*$")
MOST_FILES = 30
MOST_STEPS = 200


def trace_page(result: TraceResult, *, title: str, window: Window) -> str:
    """The page's HTML, complete in itself. `window` is what the result was cut to."""
    facts = trace_facts(result)
    if str(window):
        facts.append(f"only a part: {window}")
    return page(title, trace_html(result, window=window), facts=[*facts, *result.notes()])


def trace_facts(result: TraceResult) -> list[str]:
    """A line each: how many calls, how long, what tracing cost."""
    cost, table = result.cost(), result.table()
    return [
        f"{cost.calls:,} calls of {len(table):,} APIs",
        f"{span(result.elapsed_ns)} traced",
        cost.of_calls,
        cost.of_once,
        *(["totals only: no flame graph and no timeline"] if result.recording.totals else []),
    ]


def trace_html(result: TraceResult, *, window: Window | None = None, most_rows: int = MOST_ROWS) -> Html:
    """The split of a step, flame graph, tables, steps, timeline: as parts of a page."""
    totals = bool(result.recording.totals)
    return joined(
        (
            None if totals else split_html(result),
            None if totals else card("Flame graph", flame_card(result)),
            card("Hottest calls", tables_html(result, most_rows=most_rows)),
            None if totals else _timeline_card(result, window or Window()),
            None if totals else steps_html(result),
            source_html(result),
        )
    )


def split_html(result: TraceResult) -> Html | None:
    """How a training step splits into kinds of work; of the whole trace where there is no step."""
    found = result.split()
    if found is None:
        return None
    parts = [(KINDS[kind], float(ns), kind) for kind, ns in found.parts]
    return card(
        "Where the time of a step goes" if found.title.startswith("a training") else "Where the time goes",
        bars_html(parts, written=span),
        quiet=f"{found.title}: {span(found.total_ns)}",
    )


def tables_html(result: TraceResult, *, most_rows: int = MOST_ROWS) -> Html:
    """The calls by API, signature, module, section, line, function; by thread and rank where there are several."""
    tables = {name: result.table(name.lower()) for name in groupings(result)}
    made = {name: table_of_calls(name, table, most_rows) for name, table in tables.items() if table.rows}
    return tabs(made) if made else element("p", "no call was recorded", class_="lux-quiet")


def groupings(result: TraceResult) -> list[str]:
    """By what its calls can be grouped."""
    recording = result.recording
    asked = {
        "API": True,
        "Signature": True,
        "Module": any(words.path for words in recording.callables),
        "Section": any(words.kind == SECTION for words in recording.callables),
        "Line": _knows_lines(result),
        "Function": _knows_lines(result),
        "Thread": sum(len(process.threads) for process in recording.processes) > 1,
        "Rank": len({process.rank for process in recording.processes}) > 1,
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _knows_lines(result: TraceResult) -> bool:
    return len(result.recording.sites) > 1


def source_html(result: TraceResult) -> Html | None:
    """The user's files, with what the calls of each line cost; None where the trace does not know its lines."""
    if not _knows_lines(result):
        return None
    files = result.source().files
    if not files:
        return None
    parts = {
        f"{file.name} {file.share:.0%}": element(
            "div", table_html(_indented(file.table())), class_="lux-source"
        )
        for file in files[:MOST_FILES]
    }
    left_out = len(files) - len(parts)
    return card("Your code", tabs(parts), quiet=f"{left_out:,} more files made calls" if left_out > 0 else "")


def _indented(table: Table) -> Table:
    """A browser draws several blanks as one."""
    rows = [[*row[:-1], _INDENT.sub(lambda found: "\u00a0" * len(found[0]), row[-1])] for row in table.rows]
    return Table(table.columns, rows)


def table_of_calls(name: str, table: CallTable, most_rows: int = MOST_ROWS) -> Html:
    """One table of calls, the most costly first."""
    several = {row.framework for row in table} - {"", "torch"}
    columns = [
        Column(name), Column("framework", hidden="" if several else "same"), Column("of", hidden="empty", is_signature=name == "Signature"), Column("calls", NUMBER),
        Column("total", DURATION), Column("self", DURATION), Column("share", SHARE, bar=True), Column("mean", DURATION), Column("p50", DURATION),
        Column("p95", DURATION), Column("max", DURATION), Column("first", DURATION), Column("device", DURATION, hidden="empty"), Column("memory", BYTES, hidden="empty"),
    ]  # fmt: skip
    rows = table.rows[:most_rows]
    cells = [
        [r.name, r.framework, r.detail, r.n, r.total_ns, r.self_ns, r.share, r.mean_ns, r.p50_ns, r.p95_ns, r.max_ns, r.first_ns, r.device_ns, r.memory_bytes]
        for r in rows
    ]  # fmt: skip
    left_out = len(table) - len(rows)
    notes = [f"{left_out:,} more are in the trace"] if left_out else []
    names = [r.name for r in rows] if name in _DRAWN else []
    return table_html(Table(columns, cells, notes=notes), names=names)


def flame_of(result: TraceResult) -> Flame:
    """The tree without what is too small to be seen. The time outside is drawn where it lay: in a section, or beside all."""
    tree, main = result.tree(), result.main_outside()
    sizes = sorted((node.total_ns for _, node in tree.walk()), reverse=True)
    smallest = sizes[MOST_FLAMES] if len(sizes) > MOST_FLAMES else 0

    def build(node: CallTree) -> Flame:
        label = f"{node.name} ({node.path})" if node.path else node.name
        inner = [build(c) for c in node.children if c.total_ns > smallest]
        inner += _beside(OUTSIDE, node.outside_ns)
        return Flame(label, node.total_ns, node.n, kind_of(node.name, node.path), inner)

    inner = [build(c) for c in tree.children if c.total_ns > smallest]
    beside = [] if main is None else [
        *_beside(RECORDING, main.describing_ns), *_beside(OUTSIDE, main.outside_ns - main.sections_ns)
    ]  # fmt: skip
    total_ns = tree.total_ns + sum(node.value_ns for node in beside)
    return Flame("all", total_ns, tree.n, OUTSIDE, inner + beside)


def _beside(kind: int, ns: int) -> list[Flame]:
    return [Flame(KINDS[kind], ns, 0, kind)] if ns > 0 else []


def flame_card(result: TraceResult) -> Html:
    """Who called what; the time outside is said as the tables say it."""
    main = result.main_outside()
    said = main.lines()[0] if main is not None else ""
    return flame_html(flame_of(result), KINDS, ground=OUTSIDE, ground_said=said)


def steps_html(result: TraceResult) -> Html | None:
    """The training steps: how long, what they are made of, which are slow. None where there are none."""
    steps = result.steps()
    return card("Steps", steps_table(steps)) if len(steps) else None


def steps_table(steps: Steps, *, link: Callable[[Step], str] | None = None) -> Html:
    """In words, and a line a step: of many the slowest. `link`: where a step leads."""
    shown = steps.slowest(MOST_STEPS) if len(steps) > MOST_STEPS else list(steps)
    left_out = f"the {MOST_STEPS} slowest of {len(steps):,}" if len(steps) > MOST_STEPS else ""
    links = None if link is None else lambda row, column, _: link(shown[row]) if column == 0 else None
    return joined(
        (
            *(_with_spark(line) for line in steps.lines()),
            element("p", left_out, class_="lux-quiet") if left_out else None,
            table_html(steps.table(shown), links=links),
        )
    )


def _with_spark(line: str) -> Html:
    """A curve of letters in a font in which they are narrow: it fits on a phone."""
    found = _SPARK.search(line)
    if found is None:
        return element("p", line)
    return element("p", line[: found.start()], element("span", found[0], class_="lux-spark"))


def _timeline_card(result: TraceResult, window: Window) -> Html:
    """The step of median length; of a whole trace also the slowest, the first and the last, one at a time."""
    steps = result.steps()
    if window.start_s is not None or window.end_s is not None or steps.median is None:
        return card("Timeline", timeline_html(timeline_of(result, window)))
    named = {"median": steps.median, "first": steps[0], "last": steps[-1]}
    named |= {f"slow {n}": step for n, step in enumerate(steps.slowest(3), 1)}
    unlike: dict[int, str] = {}
    for name, step in named.items():
        unlike.setdefault(step.number, name)
    parts = {
        f"step {number} ({name})": timeline_html(timeline_of(result, window, named[name]))
        for number, name in unlike.items()
    }
    return card("Timeline", tabs(parts))


def timeline_of(result: TraceResult, window: Window, step: Step | None = None) -> Timeline:
    """One training step as it went (the one of median length), or the beginning of what was chosen."""
    recording = result.recording
    what = "the chosen part" if window.start_s is not None or window.end_s is not None else "the whole trace"
    is_median = step is None
    if what == "the whole trace" and step is None:
        step = result.steps().median
    if what == "the whole trace" and step is not None:
        events, n = first_calls(
            recording, MOST_BARS, start_ns=step.start_ns, end_ns=step.end_ns, process=step.process
        )
        which = "the median of all" if is_median else f"step {step.number}"
        what = f"one training step of {span(step.end_ns - step.start_ns)}: {which}"
    else:
        events, n = first_calls(recording, MOST_BARS)
    left_out = n - len(events.get("flags", ()))
    zero = int(events["start_ns"].min()) if n else 0
    called = recording.process_names() if len(recording.processes) > 1 else []
    lanes: dict[str, list[Bar]] = {}
    on_devices: dict[str, list[Bar]] = {}  # the same calls as an accelerator worked on them
    for k in range(n - left_out):
        process = int(events["process"][k])
        lane = recording.processes[process].threads.get(int(events["thread"][k]), "?")
        lane += f" ({called[process]})" if called else ""
        words = recording.callables[int(events["callable"][k])]
        signature = recording.signatures[int(events["signature"][k])]
        lanes.setdefault(lane, []).append(
            Bar(words.shown, words.path or (signature_text(str(signature), None) if signature else ""), int(events["start_ns"][k]) - zero,
                int(events["duration_ns"][k] + events["own_ns"][k]), int(events["depth"][k]), kind_of(words.name, words.path))
        )  # fmt: skip
        if "device_ns" in events and events["device_ns"][k] > 0:
            bar = replace(
                lanes[lane][-1],
                start_ns=int(events["device_start_ns"][k]) - zero,
                duration_ns=int(events["device_ns"][k]),
            )
            name = recording.device_name(process, int(events["device"][k])) + (
                f" ({called[process]})" if called else ""
            )
            on_devices.setdefault(name, []).append(bar)
    return Timeline(what, lanes | on_devices, kinds=KINDS, left_out=left_out, ground=OUTSIDE)
