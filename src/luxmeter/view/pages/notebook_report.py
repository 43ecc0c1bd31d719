"""A run as a notebook that has been executed: what the report shows, with the lines that show it, to go on from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from luxmeter.errors import MissingExtraError, UsageError
from luxmeter.files import write_named
from luxmeter.plain_text import one_line
from luxmeter.store import Run

_TIMEOUT_S = 600


def notebook_report(run: Run, path: str | Path) -> Path:
    """Write the notebook, executed, to `path`; a cell that fails holds its error. Returns the path."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise UsageError("notebook-folder", f"There is no folder {target.parent}.", "Make it first.")
    nbformat = _needed()
    notebook = nbformat.v4.new_notebook(metadata={"title": one_line(run.name)})
    for number, (kind, text) in enumerate(_cells(run)):
        make = nbformat.v4.new_markdown_cell if kind == "text" else nbformat.v4.new_code_cell
        notebook.cells.append(make(text, id=f"luxmeter-{number}"))
    _execute(notebook, target.parent)
    write_named(target, nbformat.writes(notebook).encode())
    return target


def _cells(run: Run) -> list[tuple[str, str]]:
    """(text or code, what is in it), one after the other."""
    cells = [
        ("text", f"# {_markdown(run.name)}\n\nRun `{run.id}`, kept by Luxmeter."),
        ("code", f"from pathlib import Path\n\nfrom luxmeter.store import Run\n\nrun = Run(Path({str(run.folder)!r}))\nrun"),
    ]  # fmt: skip
    parts = [("Parameters", "run.flat_params", bool(run.flat_params))]
    has_curve = any(told["n"] > 1 for told in run.metrics.values())
    parts.append(("Curves", "from luxmeter.view import plot\n\nplot([run])", has_curve))
    held = {result.kind for result in run.results()}
    for kind, title in {
        "trace": "Hottest calls",
        "bench": "Operators, measured",
        "model": "What the model costs",
        "check": "Checks",
    }.items():
        parts.append((title, f"run.{kind}", kind in held))
    parts.append(("Output", 'print("\\n".join(run.log_end.splitlines()[-40:]))', bool(run.log_end)))
    for title, code, is_there in parts:
        if is_there:
            cells += [("text", f"## {title}"), ("code", code)]
    return cells


def _markdown(text: str) -> str:
    """Text that Markdown takes for itself, without marks."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+-.!|$&" else c for c in one_line(text))


def _needed() -> Any:
    try:
        import ipykernel  # noqa: F401 - what runs the cells
        import nbclient  # noqa: F401
        import nbformat
    except ImportError as error:
        raise MissingExtraError(
            "needs-nbclient",
            f"A notebook that has been executed needs {error.name}.",
            "Run: pip install 'luxmeter[notebook]'",
        ) from None
    return nbformat


def _execute(notebook: Any, folder: Path) -> None:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    # Of no folder: the kernel of this very Python, not one that a user has put in the place of that name.
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    client = NotebookClient(
        notebook, km=manager, timeout=_TIMEOUT_S, allow_errors=True, resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--HistoryManager.enabled=False", "--log-level=ERROR"],
    )  # fmt: skip
    try:
        client.execute(cleanup_kc=True)
    except (DeadKernelError, CellTimeoutError, RuntimeError) as error:
        raise UsageError(
            "notebook-not-run",
            f"The notebook could not be run with {sys.executable}: {one_line(str(error))[:200]}.",
            "Look at the report instead: luxmeter report RUN -o report.html.",
        ) from error
