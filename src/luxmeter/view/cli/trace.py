"""`luxmeter trace`: time every call of a script."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import typer

from luxmeter.calls import check_trace_output
from luxmeter.errors import UsageError, suggestion
from luxmeter.options import declared
from luxmeter.torch_extra import has_torch, needs_torch
from luxmeter.view.options import run_option, takes
from luxmeter.view.script import become, checked_program, program_name
from luxmeter.view.startup import Request, environment, make_request, starts_by_itself
from luxmeter.view.startup.shown import check_shown

_TAKEN = (
    "inside",
    "sync",
    "device",
    "sample",
    "only",
    "skip",
    "lines",
    "lines_in",
    "totals",
    "coverage",
    "keep",
    "top",
    "by",
    "source",
    "steps",
    "section",
    "into",
)
_OF_ANY = ("keep", "top", "by", "source", "steps", "section")  # of a trace that exists, too


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        epilog="Example: luxmeter trace -o calls.html train.py --epochs 1; later: luxmeter trace --from latest -o calls.csv",
    )
    @takes(Request, *_TAKEN)
    def trace(
        command: list[str] | None = typer.Argument(
            None, metavar="script.py [args]...", help="The script and its arguments."
        ),
        module: str = typer.Option("", "-m", metavar="MODULE", help="Run a module, as python -m does."),
        given: Any = None,
        show_env: bool = typer.Option(
            False, "--env", help="Print the variables that trace any program started with them."
        ),
        saved: str = run_option("--from", metavar="TRACE", help="Show or convert a trace that exists."),
        window: str = typer.Option(
            "", "--window", help="With --from: only calls that begin in these seconds, such as 1.5:2.0."
        ),
        depth: int | None = typer.Option(
            None, "--depth", min=1, help="With --from: only so many levels of calls."
        ),
        rank: int | None = typer.Option(
            None, "--rank", min=0, help="With --from: only the calls of this rank."
        ),
        as_json: bool = typer.Option(False, "--json", help="With --from: the table for machines."),
    ) -> None:
        """Run a script and time every torch call it makes. Ends with the hottest calls and where the result lies."""
        words = list(command or ())
        _check_options(words)
        # Lists in YAML files are read now, before anything runs.
        name = program_name(words, module) if words or module else ""
        started = {"strict": not show_env, "name": name, "into": _run_folder(given.get("into", ""))}
        request = make_request({**given, **started}, who="luxmeter trace")
        if saved:
            _check_nothing_runs(given, words, module, show_env=show_env)
            from luxmeter.view.saved_trace import show_saved

            show_saved(saved, request, window=window, depth=depth, as_json=as_json, rank=rank)
            return
        if window or depth is not None or as_json or rank is not None:
            raise UsageError(
                "trace-needs-from",
                "--window, --depth, --rank and --json work on a trace that exists.",
                "Trace first, then luxmeter trace --from FOLDER.",
            )
        program = checked_program(words, module) if (words or module) and not show_env else []
        check_outputs(request)
        if program and not request.outputs and not request.into:
            _check_lab()
        if not show_env:  # those may be for another Python
            check_frameworks()
        if show_env:
            _print_variables(request)
        elif not program:
            if not request.coverage:
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


def check_outputs(request: Request) -> None:
    """Refuse what cannot be written, or shown, before the script has run for an hour."""
    check_shown(request)
    if request.folder is not None and request.into:
        raise UsageError(
            "two-trace-folders",
            f"The trace is to go to {request.folder} and into a run.",
            "Leave out -o or --into; files (-o calls.html) go with both.",
        )
    for out in request.outputs:
        check_trace_output(out, totals=request.totals and not request.by)


def _check_lab() -> None:
    """A trace that is to go nowhere else may go into the lab."""
    from luxmeter.store import Lab, layout

    check_trace_output(str(Lab.open().folder / layout.TRACES / "new"))


def check_frameworks() -> None:
    """Without torch and MindSpore no program could make a call that is timed."""
    if not has_torch():
        from luxmeter.calls import has_mindspore

        if not has_mindspore():
            raise needs_torch("A trace of anything but MindSpore")


_OPTIONS = (*(f for each in declared(Request).values() for f in each.flags if each.name in _TAKEN),
            "-m", "--env", "--from", "--window", "--depth", "--rank", "--json", "--help")  # fmt: skip

_CALLED = {
    "--every": "--sample",
    "--filter": "--only",
    "--out": "-o or --keep",
    "--output": "-o or --keep",
}  # elsewhere


def _check_options(words: list[str]) -> None:
    """What comes before the script and looks like an option is none that is known: those were taken already."""
    if words and words[0].startswith("-"):
        raise UsageError(
            "unknown-trace-flag",
            f"luxmeter trace has no option {words[0]}.",
            (f"Say {_CALLED[words[0]]}." if words[0] in _CALLED else suggestion(words[0], _OPTIONS))
            or f"It knows {', '.join(_OPTIONS)}; the script's own come after it.",
        )


def _check_nothing_runs(given: dict[str, Any], words: list[str], module: str, *, show_env: bool) -> None:
    """With --from nothing runs: what is about running is refused, not ignored."""
    useless = [what for what, said in {"a script": words, "-m": module, "--env": show_env}.items() if said]
    useless += [f"--{name}" for name in given if name not in _OF_ANY]
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
