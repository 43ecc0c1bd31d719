"""`luxmeter code`: the code that a run ran."""

from __future__ import annotations

import sys

import typer

from luxmeter.errors import StoreError
from luxmeter.plain_text import one_line, plain
from luxmeter.render import BYTES, Column, Table, print_json
from luxmeter.view.options import run_argument


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog="Example: luxmeter code latest train.py > train-then.py")
    def code(
        run: str = run_argument("latest", help="The run: id, name, tag, latest~1 or path."),
        path: str = typer.Argument("", help="One of its files, to print it."),
        every: bool = typer.Option(
            False, "--all", help="All files of the git tree too, not only those that ran."
        ),
        changes: bool = typer.Option(
            False, "--changes", help="What was not committed when it ran, as a diff."
        ),
        as_json: bool = typer.Option(False, "--json", help="For machines: path -> text."),
    ) -> None:
        """List the source files of a run, or print one as it was."""
        from luxmeter.experiment import captured_tree, find_run, whole_tree

        found = find_run(run)
        kept = found.snapshot
        if kept is None:
            raise StoreError(
                "no-code-kept",
                f"Run {found.id} keeps no code.",
                "Runs made by lux.Experiment or luxmeter run do.",
            )
        if changes:
            _print(str((kept.git or {}).get("diff", "")).encode())
            return
        ran, whole = captured_tree(found), whole_tree(found)

        def read(name: str) -> bytes:
            return (ran if name in ran.files else whole).read(name)

        if path:
            body = read(path)
            if as_json:
                print_json({path: body.decode("utf-8", "replace")})
            else:
                _print(body)
            return
        # What ran may lie in a submodule, or be ignored: then git's tree has no file of it.
        names = sorted({*ran.files, *(whole.files if every else ())})
        if as_json:
            print_json({name: read(name).decode("utf-8", "replace") for name in names})
            return
        rows = [[name, len(read(name)), name in ran.files] for name in names]
        sys.stdout.write(one_line(f"code of {found.id}, from {kept.root}") + "\n")
        Table([Column("file"), Column("size", BYTES), Column("ran")], rows).print()


def _print(body: bytes) -> None:
    """To a pipe byte by byte; to a terminal without what would steer it."""
    if sys.stdout.isatty():
        sys.stdout.write(plain(body.decode("utf-8", "replace")))
    else:
        sys.stdout.flush()
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None:  # a notebook's stream, or a test's
            sys.stdout.write(body.decode("utf-8", "replace"))
        else:
            stream.write(body)
            stream.flush()
