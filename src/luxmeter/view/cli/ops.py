"""`luxmeter ops`: the distinct operators of a trace, or of what another tool captured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from luxmeter.errors import UsageError
from luxmeter.render import print_json

if TYPE_CHECKING:
    from luxmeter import Operators
from luxmeter.view.options import run_argument, run_option


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        epilog="Example: luxmeter ops latest/trace --top 20 -o ops.jsonl; then: luxmeter bench ops.jsonl --dtypes fp32,bf16"
    )
    def ops(
        sources: list[str] = run_argument(
            metavar="TRACE...",
            help="A trace (its folder, RUN/trace, latest), a run that has one, RUN/ops, an operators file, a PyTorch operator-input log, a torch.profiler "
            "Chrome trace, or ExecutionTraceObserver JSON. Several are merged.",
        ),
        top: int | None = typer.Option(None, "--top", min=1, help="Only the n with most time."),
        name: str | None = typer.Option(None, "--name", help="Only these, by name: '*conv*'."),
        module: str | None = typer.Option(
            None, "--module", help="Only those called from these modules: 'Net.body.*'."
        ),
        backward: bool = typer.Option(False, "--backward", help="Also what their backward passes run."),
        out: Path | None = typer.Option(None, "-o", "--out", help="Save them to this file (JSON lines)."),
        into: str = run_option("--into", help="Put them into this run: RUN/ops."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Which operators ran, with which inputs, how often, how long and from where. Saved, they can be benchmarked."""
        from luxmeter.operators import put_operators
        from luxmeter.view.named import into_run, run_for

        with into_run(run_for(into)):
            found = chosen(sources, top=top, name=name, module=module)
            if backward:
                found = found.with_backward()
            put_operators(found)
        if out is not None:
            _save(found, out)
        if as_json or out is None:
            print_operators(found, as_json=as_json)


def chosen(sources: list[str], *, top: int | None, name: str | None, module: str | None) -> Operators:
    """The operators of all sources together, filtered."""
    from luxmeter import Operators
    from luxmeter.store import without_results

    with without_results():  # what is chosen may be one, not what it is chosen from
        found = sum((operators_from(source) for source in sources), Operators())
    if name is not None or module is not None:
        found = found.filter(name=name, module=module)
    return found if top is None else found.top(top)


def operators_from(source: str) -> Operators:
    """The operators of one source; what could not be read of a foreign file is told on stderr."""
    from luxmeter.calls import load_trace
    from luxmeter.operators import is_operators_file, load_operators

    path = Path(source)
    if not path.is_file():
        found = _found(source)
        return load_operators(found) if found.is_file() else load_trace(found).operators()
    if is_operators_file(path):
        return load_operators(path)
    from luxmeter.operators import load_foreign

    captured = load_foreign(path)
    if captured.problems:
        sys.stderr.write(f"{captured.left_out}\n")
    return captured.operators


def _found(source: str) -> Path:
    """The folder of the trace, or of the last one of the run, that `source` names; or the file of a run's operators."""
    from luxmeter.store import results_of, split_name
    from luxmeter.view.named import Named, named, named_trace

    path = Path(source)
    is_name = split_name(source) is not None or path.exists()
    if not is_name and (path.suffix in (".jsonl", ".json", ".txt", ".gz") or len(path.parts) > 1):
        raise UsageError(
            "operators-unreadable", f"{source} cannot be read: there is no such file.", "Check the path."
        )
    trace = named_trace(source)
    if trace is not None:
        return trace
    found = Named("run", path) if path.is_dir() else named(source)
    held = results_of(found.path, "ops") if found.kind == "run" else []
    if held or found.kind == "ops":
        return held[-1].path if held else found.path
    raise UsageError(
        "no-operators-there",
        f"{source} is no trace and has none.",
        "Give a trace (RUN/trace, latest), a run that was traced, or a file.",
    )


def _save(found: Operators, out: Path) -> None:
    try:
        found.save(out)
    except OSError as error:
        raise UsageError(
            "operators-unwritable", f"{out} cannot be written: {error}.", "Give another place with -o."
        ) from error
    sys.stderr.write(f"{found!r} saved to {out}\n")


def print_operators(found: Operators, *, as_json: bool) -> None:
    """The table, or all of them for machines."""
    (_print_json if as_json else _print_table)(found)


def _print_table(found: Operators) -> None:
    from luxmeter.view.text.operators import operators_table

    operators_table(found).print()


def _print_json(found: Operators) -> None:
    from luxmeter.operators import case_to_json

    print_json([{**case_to_json(case), "share": found.share(case)} for case in found])
