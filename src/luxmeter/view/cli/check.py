"""`luxmeter check`: operators run for rounds of random inputs, each compared with the CPU in a higher precision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from luxmeter.errors import UsageError
from luxmeter.operators import CheckOptions
from luxmeter.render import counted, print_json
from luxmeter.view.options import run_argument, run_option, takes

if TYPE_CHECKING:
    from luxmeter.operators import CheckResult
    from luxmeter.operators import Operators as Operators_

_EXAMPLE = (
    "Example: luxmeter check opinfo --only torch.nn.functional --rounds 3 --device cuda --shrink --resume check.json "
    "-o check.html; of a training: luxmeter check latest/trace; of your own tests: luxmeter check tests_of_mine/"
)
_TAKEN = (
    "rounds", "dtypes", "device", "backends", "only", "samples", "backward", "seed", "including_success", "shrink", "setup",
    "workers", "timeout_s", "python", "resume",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command(epilog=_EXAMPLE)
    @takes(CheckOptions, *_TAKEN)
    def check(
        sources: list[str] = run_argument(
            None,
            metavar="SOURCE...",
            help="opinfo, modules, optimizers (torch's own databases; without any, all three); an operators file, a trace "
            "(RUN/trace, latest), RUN/ops; a .py file or a folder of them with test classes or functions.",
        ),
        given: Any = None,
        out: list[Path] = typer.Option(
            [], "-o", "--out", help="Write .json, .csv or a page: .html. Repeat for several."
        ),
        into: str = run_option("--into", help="Put the result into this run: RUN/check."),
        scripts: Path | None = typer.Option(
            None,
            "--scripts",
            metavar="FOLDER",
            help="Write a script for each failing case, which shows it and stands alone.",
        ),
        show_all: bool = typer.Option(False, "--all", help="Show what passed, too."),
        as_json: bool = typer.Option(False, "--json", help="For machines."),
    ) -> None:
        """Does this device compute right? Operators with random inputs, compared with the CPU in a higher precision,
        forward and backward. A crash or a hang costs one case. Ctrl-C keeps what is done. Exit code 1 if something is wrong."""
        from luxmeter.operators import CHECK_FORMATS
        from luxmeter.operators import check as check_operators
        from luxmeter.view.cli.bench import refuse_outputs
        from luxmeter.view.named import run_for

        refuse_outputs(out, CHECK_FORMATS, "unknown-check-format")
        if scripts is not None and scripts.exists() and not scripts.is_dir():
            raise UsageError(
                "check-scripts",
                f"--scripts {scripts} is a file.",
                "Give a folder; it is made if there is none.",
            )
        run = run_for(into)
        result = check_operators(*map(_source, sources or ()), **given)
        _finish(
            result, out, run, scripts=scripts, show_all=show_all, as_json=as_json, resume=given.get("resume")
        )


def _source(said: str) -> str | Path | Operators_:
    """A database's name, a path of tests, or captured operators."""
    from luxmeter.operators import DATABASES

    path = Path(said)
    if said in DATABASES:
        return said
    is_tests = (
        path.suffix == ".py"
        or (said.endswith("/") and not path.exists())
        or (path.is_dir() and not any((path / n).is_file() for n in ("trace.json", "run.json")))
    )
    if is_tests:
        return path
    from luxmeter.store import split_name
    from luxmeter.view.cli.ops import operators_from

    if not path.exists() and split_name(said) is None and "/" not in said and not said.startswith("latest"):
        from luxmeter.errors import near_names

        raise UsageError(
            "check-source",
            f"There is nothing to check called {said!r}.",
            near_names(said, DATABASES)
            or (
                f"For one operator: luxmeter check opinfo --only {said}." if said.startswith("torch.") else ""
            )
            or f"Give {', '.join(DATABASES)}, an operators file, a trace, or a file or folder of tests.",
        )
    return operators_from(said)


def _finish(
    result: CheckResult,
    out: list[Path],
    run: Any,
    *,
    scripts: Path | None,
    show_all: bool,
    as_json: bool,
    resume: Any,
) -> None:
    from luxmeter.operators import put_check
    from luxmeter.view.named import into_run

    with into_run(run):
        put_check(result)
    for path in out:
        result.to_file(path)
        sys.stderr.write(f"wrote {path}\n")
    if scripts is not None:
        for path in _write_scripts(result, scripts):
            sys.stderr.write(f"wrote {path}\n")
    if as_json:
        print_json(result.to_dict())
    else:
        result.show(everything=show_all)
        _show_script(result, scripts)
    if not result.complete:
        kept = f"the same command goes on with --resume {resume}" if resume else "next time: --resume FILE"
        sys.stderr.write(f"stopped early, {counted(len(result), 'case')} done; {kept}\n")
        raise typer.Exit(130)
    if not result.ok:
        raise typer.Exit(1)


def _show_script(result: CheckResult, scripts: Path | None) -> None:
    """The script of the first error; the others are in the files."""
    found = [(row, error.script) for row, error in result.errors if error.script]
    if not found or scripts is not None:
        return
    row, script = found[0]
    others = f" (of {len(found)}: --scripts FOLDER writes all)" if len(found) > 1 else ""
    sys.stdout.write(f"\nThis shows {row.name} again{others}:\n\n{script}")


def _write_scripts(result: CheckResult, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, (row, script) in enumerate(
        (row, error.script) for row, error in result.errors if error.script
    ):
        name = "".join(
            c if c.isalnum() else "_" for c in f"{row.name}_{row.dtype}_{row.device}_{row.backend}"
        )[:80]
        path = folder / f"{number:03}_{name}.py"
        path.write_text(script, encoding="utf-8")
        made.append(path)
    return made
