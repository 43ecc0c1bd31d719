"""What is shown of a trace: a table, the training steps, or the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.errors import UsageError

if TYPE_CHECKING:
    from luxmeter.calls import TraceResult
    from luxmeter.view.startup import Request


def shown(result: TraceResult, request: Request, width: int | None) -> str:
    """As is asked for."""
    if request.steps:
        return result.steps(request.section or None).text(width=width)
    if request.source:
        return result.source().text(width=width)
    return result.text(request.by or "api", top=request.top, width=width)


def check_shown(request: Request) -> None:
    """Refuse what could not be shown of any trace, or not of the one that is asked for."""
    if request.by:  # else nothing that takes its time to import is needed
        from luxmeter.calls import check_grouping, export, is_trace_file_name, trace_format_of

        check_grouping(request.by)
        for out in filter(is_trace_file_name, request.outputs):
            export.check_what(trace_format_of(out), request.by)
    if request.section and not request.steps:
        raise UsageError(
            "section-needs-steps",
            f"--section {request.section} says which sections are steps.",
            "Add --steps.",
        )
    if request.steps and request.totals:
        raise UsageError(
            "totals-only",
            "--steps needs the calls, and --totals keeps sums only.",
            "Leave out the one or the other.",
        )
    if not request.lines and (request.source or request.by in ("line", "function")):
        asked = "--source" if request.source else f"--by {request.by}"
        raise UsageError(
            "trace-without-lines",
            f"{asked} needs the lines that made the calls, and --no-lines leaves them out.",
            "Leave out the one or the other.",
        )
