"""Whether the program of a run that came from elsewhere may start: `--trust`, or a question where somebody can answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.plain_text import one_line

if TYPE_CHECKING:
    from luxmeter.store import Run


def trusted(run: Run, *, trust: bool = False, **_: Any) -> bool:
    """What `start_rerun` is told. Asks only on a terminal, and only of a run that the user did not make here."""
    from luxmeter.store import is_own

    if trust or is_own(run.identity, run.folder) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return trust
    started = one_line(" ".join(map(str, run.command.argv)) if run.command else run.name)
    return typer.confirm(
        f"Run {run.id} was not made here by you. Start its program ({started}) with your rights?", err=True
    )
