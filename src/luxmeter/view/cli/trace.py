"""`luxmeter trace`: time every call of a script."""

from __future__ import annotations

import os
import shlex
import sys

import typer

from luxmeter.errors import UsageError, suggestion
from luxmeter.torch_extra import has_torch, needs_torch
from luxmeter.view.script import become, checked_program, program_name
from luxmeter.view.startup import Request, environment, starts_by_itself


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        epilog="Example: luxmeter trace -o calls.html train.py --epochs 1; later: luxmeter trace --from latest -o calls.csv",
    )
    def trace(
        command: list[str] | None = typer.Argument(
            None, metavar="script.py [args]...", help="The script and its arguments."
        ),
        module: str = typer.Option("", "-m", metavar="MODULE", help="Run a module, as python -m does."),
        inside: bool = typer.Option(False, "--inside", help="Also what torch's calls call themselves."),
        sync: bool = typer.Option(False, "--sync", help="Wait for the device: time to completion."),
        every: int = typer.Option(1, "--every", min=1, help="Record every n-th training step."),
        only: list[str] | None = typer.Option(
            None, "--filter", help="Record these only: a pattern (torch.*) or a YAML list."
        ),
        skip: list[str] | None = typer.Option(None, "--skip", help="Leave these out: as --filter."),
        totals: bool = typer.Option(
            False, "--totals", help="Sums and histograms only: small for any length."
        ),
        coverage: bool = typer.Option(
            False, "--coverage", help="Which callables are seen, which not, and why."
        ),
        out: list[str] | None = typer.Option(
            None,
            "-o",
            "--out",
            help="A folder for the trace, or a file: .html .csv .json .parquet .perfetto.json .folded  [default: the run, or the lab]",
        ),
        into: str = typer.Option("", "--into", metavar="RUN", help="Put the trace into this run: RUN/trace."),
        top: int = typer.Option(20, "--top", min=1, help="Rows of the table at the end."),
        show_env: bool = typer.Option(
            False, "--env", help="Print the variables that trace any program started with them."
        ),
        saved: str = typer.Option("", "--from", metavar="TRACE", help="Show or convert a trace that exists."),
        window: str = typer.Option(
            "", "--window", help="With --from: only calls that begin in these seconds, such as 1.5:2.0."
        ),
        depth: int | None = typer.Option(
            None, "--depth", min=1, help="With --from: only so many levels of calls."
        ),
        by: str = typer.Option(
            "", "--by", help="With --from: the table by api, signature, module, section, thread or rank."
        ),
        as_json: bool = typer.Option(False, "--json", help="With --from: the table for machines."),
    ) -> None:
        """Run a script and time every torch call it makes. Ends with the hottest calls and where the result lies."""
        words = list(command or ())
        _check_options(words)
        name = program_name(words, module) if words or module else ""
        request = Request(
            inside=inside, sync=sync, totals=totals, every=every, filter=_readable(only), skip=_readable(skip),
            out=tuple(out or ()), top=top, coverage=coverage, strict=not show_env, name=name, into=_run_folder(into),
        )  # fmt: skip
        if saved:
            _check_nothing_runs(request, words, module, show_env=show_env)
            from luxmeter.view.saved_trace import show_saved

            show_saved(saved, request, window=window, depth=depth, by=by, as_json=as_json)
            return
        if window or depth is not None or by or as_json:
            raise UsageError(
                "trace-needs-from",
                "--window, --depth, --by and --json work on a trace that exists.",
                "Trace first, then luxmeter trace --from FOLDER.",
            )
        program = checked_program(words, module) if (words or module) and not show_env else []
        check_outputs(request)
        if not show_env:  # those may be for another Python
            check_frameworks()
        if show_env:
            _print_variables(request)
        elif not program:
            if not coverage:
                raise UsageError(
                    "no-script", "There is nothing to trace.", "Name a script, or a module with -m."
                )
            from luxmeter.calls import coverage as all_seen

            sys.stdout.write(f"{all_seen('torch' if has_torch() else 'mindspore')}\n")
        else:
            become(program, environment(request, os.environ))


def _run_folder(into: str) -> str:
    if not into:
        return ""
    from luxmeter.experiment import find_run

    return str(find_run(into).folder.absolute())


def check_frameworks() -> None:
    """Without torch and MindSpore no program could make a call that is timed."""
    if not has_torch():
        from luxmeter.calls import has_mindspore

        if not has_mindspore():
            raise needs_torch("A trace of anything but MindSpore")


_OPTIONS = ("-m", "--inside", "--sync", "--every", "--filter", "--skip", "--totals", "--coverage", "--out", "--into", "--top", "--env",
            "--from", "--window", "--depth", "--by", "--json", "--help")  # fmt: skip


def _check_options(words: list[str]) -> None:
    """What comes before the script and looks like an option is none that is known: those were taken already."""
    if words and words[0].startswith("-"):
        raise UsageError(
            "unknown-trace-flag",
            f"luxmeter trace has no option {words[0]}.",
            suggestion(words[0], _OPTIONS)
            or f"It knows {', '.join(_OPTIONS)}; the script's own come after it.",
        )


def _check_nothing_runs(request: Request, words: list[str], module: str, *, show_env: bool) -> None:
    """With --from nothing runs: what is about running is refused, not ignored."""
    given = {
        "a script": words, "-m": module, "--env": show_env, "--inside": request.inside, "--sync": request.sync,
        "--every": request.every > 1, "--filter": request.filter, "--skip": request.skip,
        "--totals": request.totals, "--coverage": request.coverage, "--into": request.into,
    }  # fmt: skip
    useless = [name for name, value in given.items() if value]
    if useless:
        raise UsageError(
            "trace-from-runs-nothing",
            f"--from shows a trace that exists, and {', '.join(useless)} would need a new one.",
            "Leave out the one or the other.",
        )


def _print_variables(request: Request) -> None:
    wanted = environment(request, os.environ)
    for name in ("LUXMETER_TRACE",) if starts_by_itself() else ("LUXMETER_TRACE", "PYTHONPATH"):
        sys.stdout.write(f"export {name}={shlex.quote(wanted[name])}\n")


def _readable(patterns: list[str] | None) -> tuple[str, ...]:
    """Patterns; lists in YAML files are read now, before anything runs."""
    if not any(p.endswith((".yaml", ".yml")) for p in patterns or ()):
        return tuple(patterns or ())
    from luxmeter.calls import read_patterns

    return read_patterns(patterns or ())


def check_outputs(request: Request) -> None:
    """Refuse what cannot be written before the script has run for an hour."""
    from luxmeter.calls import is_trace_file_name
    from luxmeter.view.outputs import check_output

    folders = [out for out in request.out if not is_trace_file_name(out)]
    if len(folders) > 1:
        raise UsageError(
            "two-trace-folders",
            f"-o names {len(folders)} folders.",
            "Give one folder, and files as you like.",
        )
    if folders and request.into:
        raise UsageError(
            "two-trace-folders",
            f"The trace is to go to {folders[0]} and into a run.",
            "Leave out -o or --into; files (-o calls.html) go with both.",
        )
    for out in request.out:
        check_output(out, totals=request.totals)
