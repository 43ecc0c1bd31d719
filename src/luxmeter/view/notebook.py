"""`%%luxmeter` in IPython and Jupyter: trace a cell.

%load_ext luxmeter
%%luxmeter --inside --top 10 -r step
loss(model(x), y).backward()
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import shlex
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from luxmeter.calls import TraceOptions
from luxmeter.errors import LuxmeterError, UsageError
from luxmeter.render import repr_html
from luxmeter.view.options import add_arguments

BY = (
    "api",
    "signature",
    "module",
    "section",
    "thread",
    "rank",
    "line",
    "function",
)  # as calls.table has it, which is heavy to import; a test compares them

if TYPE_CHECKING:
    from luxmeter.calls import Trace


TAKEN = ("inside", "sync", "device", "totals", "sample", "only", "skip", "keep")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Argparse would end the kernel."""
        raise UsageError(
            "bad-magic", f"%%luxmeter: {message}.", f"It takes {' '.join(self.format_usage()[7:].split())}"
        )


def _rows(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def _options() -> _Parser:
    parser = _Parser(prog="%%luxmeter", add_help=False, allow_abbrev=False)
    add_arguments(parser, TraceOptions, TAKEN)
    parser.add_argument("--by", default="api", choices=BY)
    parser.add_argument("--top", type=_rows, default=20)
    parser.add_argument("-r", "--result", default="_trace")
    return parser


class Shown:
    """What a cell shows: HTML where that can be shown, text elsewhere."""

    def __init__(self, text: str, html: str) -> None:
        self._text, self._html = text, html

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


def trace_cell(line: str, cell: str, shell: Any) -> Shown:
    """Run a cell while tracing; the trace is left in the variable `_trace` (or that of -r).

    The value of the cell's last line is shown as without the magic, above the table.
    """
    value = None
    with contextlib.ExitStack() as stack:
        with _told_in_a_line():
            chosen = _options().parse_args(_arguments(line))
            running = _prepared(chosen)
        body, last = _compiled(shell, shell.transform_cell(cell))
        with _told_in_a_line():
            stack.enter_context(running)
        shell.user_ns[chosen.result] = running
        exec(body, shell.user_ns)  # noqa: S102 - as %%time does: an exception of the cell is shown once, by the shell
        if last is not None:
            value = eval(last, shell.user_ns)  # noqa: S307
    if value is not None:
        _show(value)
    table = running.table(chosen.by)
    text = table.text(top=chosen.top)
    return Shown(text, repr_html(table.as_table(top=chosen.top) if table.rows else text))


def _prepared(chosen: argparse.Namespace) -> Trace:
    """The trace that is asked for; what cannot be done is refused before the cell runs."""
    from luxmeter.calls import check_trace_output, trace

    if not chosen.result.isidentifier():
        raise UsageError("bad-magic", f"-r {chosen.result!r} is no name of a variable.", "Give a plain name.")
    options: Any = {name: value for name, value in vars(chosen).items() if name in TAKEN}
    for out in options.get("keep", ()):
        check_trace_output(out, totals="totals" in options)
    return trace(**options)


@contextlib.contextmanager
def _told_in_a_line() -> Iterator[None]:
    """An error of ours as IPython tells a wrong magic: without the stack."""
    from IPython.core.error import UsageError as ShellError

    try:
        yield
    except LuxmeterError as error:
        raise ShellError(str(error)) from None


def _arguments(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(
            "bad-magic", f"%%luxmeter {line.strip()}: {error}.", "Close the quotation."
        ) from None


def _compiled(shell: Any, source: str) -> tuple[CodeType, CodeType | None]:
    """The cell, and apart from it its last line if that is an expression whose value is to be shown."""
    tree, name = shell.compile.ast_parse(source), shell.compile.cache(source)
    if not tree.body or not isinstance(tree.body[-1], ast.Expr) or source.rstrip().endswith(";"):
        return compile(tree, name, "exec"), None
    last = tree.body.pop()
    return compile(tree, name, "exec"), compile(ast.Expression(last.value), name, "eval")


def _show(value: Any) -> None:
    from IPython.display import display

    display(value)  # type: ignore[no-untyped-call]


def load_ipython_extension(shell: Any) -> None:
    """Called by %load_ext."""

    def luxmeter(line: str, cell: str) -> Shown:
        """Trace every torch call of this cell and show the hottest.

        %%luxmeter [--inside] [--sync] [--device] [--totals] [--sample N] [--only PATTERN] [--skip PATTERN] [--by api|signature|module|section|thread|rank]
                   [--top ROWS] [-o FOLDER OR FILE] [-r VARIABLE]

        The trace is in the variable _trace, or that of -r. -o keeps it in a folder, or in a file: .html .csv .json .parquet .perfetto.json .folded
        """
        return trace_cell(line, cell, shell)

    shell.register_magic_function(luxmeter, magic_kind="cell")
