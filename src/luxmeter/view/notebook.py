"""`%%luxmeter` in IPython and Jupyter: trace a cell.

%load_ext luxmeter
%%luxmeter --inside --top 10 -r step
loss(model(x), y).backward()
"""

from __future__ import annotations

import argparse
import html
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from luxmeter.errors import UsageError

if TYPE_CHECKING:
    from luxmeter.calls import Trace


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Argparse would end the kernel."""
        raise UsageError(
            "bad-magic", f"%%luxmeter: {message}.", f"It takes {self.format_usage()[7:].strip()}"
        )


def _options() -> _Parser:
    parser = _Parser(prog="%%luxmeter", add_help=False, allow_abbrev=False)
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--totals", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--filter", action="append", default=[])
    parser.add_argument("--by", default="api")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("-o", "--out", default=None)
    parser.add_argument("-r", "--result", default="_trace")
    return parser


class Shown:
    """A trace's table as a notebook shows it."""

    def __init__(self, trace: Trace, *, by: str, top: int) -> None:
        self.trace = trace
        self._text = trace.table(by).text(top=top)

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f'<pre style="line-height:1.3;overflow-x:auto">{html.escape(self._text)}</pre>'


def trace_cell(line: str, cell: str, shell: Any) -> Shown:
    """Run a cell while tracing; the trace is left in the variable `_trace` (or that of -r)."""
    from luxmeter.calls import export, trace
    from luxmeter.calls.formats import format_of

    chosen = _options().parse_args(shlex.split(line))
    if not chosen.result.isidentifier():
        raise UsageError("bad-magic", f"-r {chosen.result!r} is no name of a variable.", "Give a plain name.")
    if chosen.out is not None:
        format_of(chosen.out)
    running = trace(
        inside=chosen.inside, sync=chosen.sync, totals=chosen.totals, sample=chosen.every, only=chosen.filter
    )
    source = shell.transform_cell(cell)
    code = compile(shell.compile.ast_parse(source), shell.compile.cache(source), "exec")
    shell.user_ns[chosen.result] = running
    with running:
        exec(code, shell.user_ns)  # noqa: S102 - as %%time does: an exception of the cell is shown once, by the shell
    if chosen.out is not None:
        export.write(running, chosen.out)
    return Shown(running, by=chosen.by, top=chosen.top)


def load_ipython_extension(shell: Any) -> None:
    """Called by %load_ext."""

    def luxmeter(line: str, cell: str) -> Shown:
        """Trace every torch call of this cell."""
        return trace_cell(line, cell, shell)

    shell.register_magic_function(luxmeter, magic_kind="cell")
