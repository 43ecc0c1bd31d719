"""`luxmeter diff`: what changed between two traces."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError

if TYPE_CHECKING:
    from luxmeter.calls.difference import Difference


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter diff before-trace after-trace --by signature")
    def diff(
        a: str = typer.Argument(help="A trace's folder, or a run that has one."),
        b: str = typer.Argument(help="The trace to hold against it."),
        by: str = typer.Option("api", help="api, signature or module."),
        smallest: float = typer.Option(0.05, help="The smallest relative change that counts."),
        top: int = typer.Option(20, min=1, help="Rows shown."),
        show_all: bool = typer.Option(False, "--all", help="Also what is the same or unclear."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """What got slower, what is new, what is gone in trace B against trace A. Noise is not called a difference."""
        from luxmeter.calls import load_trace
        from luxmeter.calls.difference import difference
        from luxmeter.render.tables import print_json

        found = difference(load_trace(_trace_of(a)), load_trace(_trace_of(b)), by=by, smallest=smallest)
        if as_json:
            print_json({**asdict(found), "changes": [asdict(change) for change in found.changes]})
        else:
            _show(found, by=by, top=top, show_all=show_all)


def _show(found: Difference, *, by: str, top: int, show_all: bool) -> None:
    from luxmeter.render.tables import print_table

    kept = [c for c in found.changes if show_all or c.kind not in ("same", "unclear")]
    rows = [
        [c.kind, c.name, f"{c.share_a:.1%}", f"{c.share_b:.1%}", c.n_a, c.n_b, _us(c.median_a_ns), _us(c.median_b_ns),
         "-" if c.relative is None else f"{c.relative:+.1%}", f"{c.weight:+.1%}", c.why]
        for c in kept[:top]
    ]  # fmt: skip
    if rows:
        columns = ["", by, "share A", "share B", "n A", "n B", "us A", "us B", "a call", "of all", "why"]
        print_table(columns, rows)
    if len(kept) > top:
        sys.stdout.write(f"... and {len(kept) - top} more\n")
    quiet = len(found.of("same")) + len(found.of("unclear"))
    counted = ", ".join(f"{len(found.of(k))} {k}" for k in ("slower", "faster", "new", "gone"))
    sys.stdout.write(
        f"{counted}; {quiet} without a difference above {found.threshold:.1%} and beyond chance"
        f" (all calls together: {found.common:+.1%})\n"
    )


def _us(value: float | None) -> float | None:
    return None if value is None else round(value / 1e3, 2)


def _trace_of(reference: str) -> Path:
    """The folder of a trace: itself, or the last one of a run named by path, id, name, tag or `latest`."""
    path = Path(reference)
    if (path / "trace.json").is_file():
        return path
    folder = path
    if not path.is_dir():
        from luxmeter.store import Lab

        lab = Lab.open(create=False)
        try:
            folder = Path(lab.find(reference).folder)
        finally:
            lab.close()
    traces = sorted((folder / "calls").glob("*/trace.json"), key=lambda p: p.stat().st_mtime)
    if not traces:
        raise UsageError(
            "no-trace-to-compare",
            f"{reference} is no trace and has none.",
            "Give the folder that luxmeter trace named at its end, or a run that was traced.",
        )
    return traces[-1].parent
