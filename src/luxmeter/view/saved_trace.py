"""A trace that exists: shown again, or written to other files."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from luxmeter.calls import Window, export, in_window, load_trace, trace_format_of
from luxmeter.render import print_json, terminal_width
from luxmeter.store import Lab
from luxmeter.view.startup import Request


def show_saved(
    saved: str, request: Request, *, window: str, depth: int | None, by: str, as_json: bool
) -> None:
    """Print the table, or write the files that are asked for and say where."""
    chosen = Window.parse(window, depth) if window or depth is not None else None
    for out in request.outputs:
        export.check_what(trace_format_of(out), by or "calls")
    result = load_trace(Path(saved))
    for out in request.outputs:
        export.write(result, out, window=chosen, what=by or "calls")
        sys.stderr.write(f"luxmeter: wrote {out}\n")
    if not as_json and request.outputs:
        return
    shown = in_window(result, chosen)
    if as_json:
        print_json([asdict(row) for row in shown.table(by or "api")])
    else:
        sys.stdout.write(f"{shown.text(by or 'api', top=request.top, width=terminal_width(sys.stdout))}\n")


def last_trace_of(reference: str) -> Path | None:
    """The folder of a trace: itself, or the last one of a run named by path, id, name, tag or `latest`. None: it has none."""
    folder = Path(reference)
    if (folder / "trace.json").is_file():
        return folder
    if not folder.is_dir():
        lab = Lab.open(create=False)
        try:
            folder = Path(lab.find(reference).folder)
        finally:
            lab.close()
    traces = sorted((folder / "calls").glob("*/trace.json"), key=lambda path: path.stat().st_mtime)
    return traces[-1].parent if traces else None
