"""`luxmeter diff`: what differs between two runs, traces or benchmarks."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError

if TYPE_CHECKING:
    from luxmeter.calls import ChangeKind, TraceDiff


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter diff latest~1 latest --metric acc; luxmeter diff before-trace after-trace"
    )
    def diff(
        a: str = typer.Argument(
            help="A run (id, name, tag, latest~1, path), a trace's folder or a benchmark's file."
        ),
        b: str = typer.Argument(help="What to hold against it."),
        what: str = typer.Option("", "--what", help="runs or traces, of runs that were traced too."),
        metric: str = typer.Option("", "--metric", "-m", help="Runs: the metric to explain."),
        full: bool = typer.Option(
            False, "--full", help="Runs: all of the code's and environment's differences."
        ),
        system: bool = typer.Option(False, "--system", help="Runs: the machine's metrics too."),
        by: str = typer.Option("api", help="Traces: api, signature or module."),
        smallest: float = typer.Option(
            0.05, help="Traces, benchmarks: the smallest relative change that counts."
        ),
        top: int = typer.Option(20, min=1, help="Traces, benchmarks: rows shown."),
        show_all: bool = typer.Option(
            False, "--all", help="Traces, benchmarks: also what is the same or unclear."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """What differs between two runs (parameters, code, environment, metrics, and which of them plausibly explains
        it), two traces, or two benchmarks. Noise is not called a difference."""
        kind = _kind(a, b, what)
        if kind == "benchmarks":
            _diff_benchmarks(a, b, smallest=smallest, top=top, show_all=show_all, as_json=as_json)
        elif kind == "traces":
            _diff_traces(a, b, by=by, smallest=smallest, top=top, show_all=show_all, as_json=as_json)
        else:
            _diff_runs(a, b, metric=metric, full=full, system=system, as_json=as_json)


def _kind(a: str, b: str, what: str) -> str:
    """What is compared: files are benchmarks, folders with a trace are traces, everything else names runs."""
    if what not in ("", "runs", "traces"):
        raise UsageError("diff-what", f"--what {what} is unknown.", "Use --what runs or --what traces.")
    if what:
        return what
    paths = [Path(reference) for reference in (a, b)]
    if all(path.is_file() for path in paths):
        return "benchmarks"
    return "traces" if any((path / "trace.json").is_file() for path in paths) else "runs"


def _diff_runs(a: str, b: str, *, metric: str, full: bool, system: bool, as_json: bool) -> None:
    from luxmeter.experiment import diff_runs, find_run
    from luxmeter.render import print_json
    from luxmeter.view.text.run_diff import as_record, write_diff

    one, two = find_run(a), find_run(b)
    traced = all(list((run.folder / "calls").glob("*/trace.json")) for run in (one, two))
    if traced and not (one.metrics or two.metrics or one.params or two.params):
        _diff_traces(a, b, by="api", smallest=0.05, top=20, show_all=False, as_json=as_json)
        return
    found, why = diff_runs(one, two, metric=metric)
    if as_json:
        print_json(as_record(found, why))
        return
    write_diff(found, why, sys.stdout, full=full, system=system)
    if traced:
        sys.stdout.write("\nBoth were traced: --what traces compares their calls.\n")


def _diff_benchmarks(a: str, b: str, *, smallest: float, top: int, show_all: bool, as_json: bool) -> None:
    from luxmeter.operators import diff_benchmark_files
    from luxmeter.render import print_json

    found = diff_benchmark_files(a, b, smallest=smallest)
    if as_json:
        print_json(found.to_json())
    elif show_all or top != 20:
        found.table(top=top, everything=show_all).print()
    else:
        sys.stdout.write(f"{found}\n")


def _diff_traces(
    a: str, b: str, *, by: str, smallest: float, top: int, show_all: bool, as_json: bool
) -> None:
    from luxmeter.calls import diff_traces, load_trace
    from luxmeter.render import print_json

    found = diff_traces(load_trace(_trace_of(a)), load_trace(_trace_of(b)), by=by, smallest=smallest)
    if as_json:
        print_json(asdict(found))
    else:
        _say_options(found)
        _show(found, by=by, top=top, show_all=show_all)


def _say_options(found: TraceDiff) -> None:
    from luxmeter.render import Column, Table

    if not found.options:
        return
    sys.stdout.write("A and B were traced with different options: their numbers may not compare.\n")
    rows = [
        [f"  {c.name}", *(", ".join(v) if isinstance(v, list) else v for v in (c.a, c.b)), c.touches]
        for c in found.options
    ]
    Table([Column("  option"), Column("A"), Column("B"), Column("touches")], rows).print()
    sys.stdout.write("\n")


def _show(found: TraceDiff, *, by: str, top: int, show_all: bool) -> None:
    from luxmeter.render import DURATION, NUMBER, SHARE, Column, Table

    kept = [c for c in found.changes if show_all or c.kind not in ("same", "unclear")]
    columns = [
        Column(""),
        Column(by),
        Column("of all", SHARE, form="+.1%"),
        Column("a call", SHARE, form="+.1%", goes=5),
        Column("us A", DURATION, unit="us", form=",.2f", goes=4),
        Column("us B", DURATION, unit="us", form=",.2f", goes=4),
        Column("n A", NUMBER, form=",", goes=3),
        Column("n B", NUMBER, form=",", goes=3),
        Column("share A", SHARE, goes=2),
        Column("share B", SHARE, goes=2),
        Column("why", goes=1),
    ]
    rows = [
        [c.kind, c.name, c.weight, c.relative, c.median_a_ns, c.median_b_ns, c.n_a, c.n_b, c.share_a, c.share_b, c.why]
        for c in kept[:top]
    ]  # fmt: skip
    if rows:
        Table(columns, rows).print()
    if len(kept) > top:
        sys.stdout.write(f"... and {len(kept) - top} more\n")
    counted = [f"{n} {words}" for kind, words in _KINDS.items() if (n := len(found.of(kind)))]
    quiet = len(found.of("same")) + len(found.of("unclear"))
    sys.stdout.write(", ".join(counted) or "no difference beyond noise")
    if quiet:
        sys.stdout.write(
            f"; of {quiet}{' others' if counted else ''} none differs by more than {found.threshold:.1%} beyond chance"
            f" (all calls together: {found.common:+.1%})"
        )
    sys.stdout.write("\n")
    if abs(found.longer - 1) > 0.05:
        sys.stdout.write(f"B has {found.longer:.3g} times as many calls as A.\n")


_KINDS: dict[ChangeKind, str] = {
    "slower": "slower",
    "faster": "faster",
    "more": "called more often",
    "fewer": "called less often",
    "new": "new",
    "gone": "gone",
}


def _trace_of(reference: str) -> Path:
    from luxmeter.view.saved_trace import last_trace_of

    found = last_trace_of(reference)
    if found is None:
        raise UsageError(
            "no-trace-to-compare",
            f"{reference} is no trace and has none.",
            "Give the folder that luxmeter trace named at its end, or a run that was traced.",
        )
    return found
