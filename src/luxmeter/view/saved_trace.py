"""A trace that exists: shown again, or written to other files."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from luxmeter.calls import TraceResult, Window, export, in_window, load_trace, trace_format_of
from luxmeter.errors import StoreError
from luxmeter.render import print_json, terminal_width
from luxmeter.view.named import named_trace
from luxmeter.view.startup import Request
from luxmeter.view.startup.shown import check_shown, shown


def show_saved(
    saved: str,
    request: Request,
    *,
    window: str,
    depth: int | None,
    as_json: bool,
    rank: int | None = None,
) -> None:
    """Print the table (or the steps, or the source), or write the files that are asked for and say where."""
    chosen = Window.parse(window, depth) if window or depth is not None else None
    for out in request.outputs:
        trace_format_of(out)
    check_shown(request)
    result = load_trace(_folder_of(saved))
    if rank is not None:
        result = result.of_rank(rank)
    for out in request.outputs:
        export.write(result, out, window=chosen, what=request.by or "calls")
        sys.stderr.write(f"luxmeter: wrote {out}\n")
    if not as_json and request.outputs:
        return
    part = in_window(result, chosen)
    if as_json:
        print_json(_for_machines(part, request))
    else:
        sys.stdout.write(f"{shown(part, request, terminal_width(sys.stdout))}\n")


def _for_machines(part: TraceResult, request: Request) -> Any:
    if request.steps:
        made = part.steps(request.section or None)
        return {"by": made.by, "steps": [step.to_dict() for step in made]}
    if request.source:
        return [asdict(file) for file in part.source()]
    return [asdict(row) for row in part.table(request.by or "api")]


def _folder_of(saved: str) -> Path:
    """The trace that is named, or what stands there: then the trace's reader says what is wrong with it."""
    try:
        return named_trace(saved) or Path(saved)
    except StoreError as error:
        if error.slug not in ("run-not-found", "no-runs-yet"):
            raise
        return Path(saved)
