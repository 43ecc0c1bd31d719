"""A trace that exists: shown again, or written to other files."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from luxmeter.calls import Window, export, in_window, load_trace, trace_format_of
from luxmeter.errors import StoreError
from luxmeter.render import print_json, terminal_width
from luxmeter.view.named import named_trace
from luxmeter.view.startup import Request


def show_saved(
    saved: str,
    request: Request,
    *,
    window: str,
    depth: int | None,
    by: str,
    as_json: bool,
    rank: int | None = None,
    source: bool = False,
    steps: str | None = None,
) -> None:
    """Print the table (or the steps, by the optimizer or a section; or the source), or write the files that are asked for and say where."""
    chosen = Window.parse(window, depth) if window or depth is not None else None
    for out in request.outputs:
        export.check_what(trace_format_of(out), by or "calls")
    result = load_trace(_folder_of(saved))
    if rank is not None:
        result = result.of_rank(rank)
    for out in request.outputs:
        export.write(result, out, window=chosen, what=by or "calls")
        sys.stderr.write(f"luxmeter: wrote {out}\n")
    if not as_json and request.outputs:
        return
    shown = in_window(result, chosen)
    if steps is not None:
        made = shown.steps(steps or None)
        if as_json:
            print_json({"by": made.by, "steps": [step.to_dict() for step in made]})
        else:
            sys.stdout.write(f"{made.text(width=terminal_width(sys.stdout))}\n")
    elif source:
        found = shown.source()
        if as_json:
            print_json([asdict(file) for file in found])
        else:
            sys.stdout.write(f"{found.text(width=terminal_width(sys.stdout))}\n")
    elif as_json:
        print_json([asdict(row) for row in shown.table(by or "api")])
    else:
        sys.stdout.write(f"{shown.text(by or 'api', top=request.top, width=terminal_width(sys.stdout))}\n")


def _folder_of(saved: str) -> Path:
    """The trace that is named, or what stands there: then the trace's reader says what is wrong with it."""
    try:
        return named_trace(saved) or Path(saved)
    except StoreError as error:
        if error.slug not in ("run-not-found", "no-runs-yet"):
            raise
        return Path(saved)
